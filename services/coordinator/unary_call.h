#ifndef FLOTILLA_SERVICES_COORDINATOR_UNARY_CALL_H_
#define FLOTILLA_SERVICES_COORDINATOR_UNARY_CALL_H_

#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.grpc.pb.h"
#include "services/rpc/grpc_status.h"

// What the coordinator's clients have in common: one attempt at a call, and the
// pauses between attempts.

namespace flotilla {

// Of one attempt: a connection that has gone dead costs no more.
constexpr absl::Duration kAttempt = absl::Seconds(3);
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(1);

inline absl::Duration NextPause(absl::Duration pause) {
  return std::min(2 * pause, kLongestPause);
}

template <typename Request, typename Response>
using CoordinatorMethod = grpc::Status (v1::CoordinatorService::Stub::*)(
    grpc::ClientContext*, const Request&, Response*);

// Blocks for `timeout` at most.
template <typename Request, typename Response>
absl::Status CallOnce(v1::CoordinatorService::Stub* stub,
                      CoordinatorMethod<Request, Response> method,
                      const Request& request, absl::Duration timeout,
                      bool wait_for_ready, Response* response) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMilliseconds(timeout));
  context.set_wait_for_ready(wait_for_ready);
  return FromGrpc((stub->*method)(&context, request, response));
}

// What a lost coordinator or connection looks like. It may be back soon.
inline bool IsLoss(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_UNARY_CALL_H_
