#ifndef FLOTILLA_LEARNER_COLLECTIVE_GLOO_COLLECTIVE_H_
#define FLOTILLA_LEARNER_COLLECTIVE_GLOO_COLLECTIVE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/collective/collective.h"
#include "services/coordinator/coordinator_client.h"

namespace flotilla {

// The collective of ranks on several hosts: TCP connections between all pairs
// of ranks, made and served by Gloo (LibTorch's c10d::ProcessGroupGloo).
//
// Only Gloo's sends and receives are used; the all-reduce over them is ours.
// c10d's own cannot be abandoned before its timeout, and would write into the
// tensor until then; sends and receives can. Rank r sums part r of the tensor,
// in the order of the ranks, and hands it to the others: 2 (N - 1) / N of the
// tensor each way, as in a ring, in two steps. Small tensors go to everyone at
// once, in one.
//
// GLOO_SOCKET_IFNAME names the network interface to use; without it, it is
// loopback for one host, else the one that the route to a peer leaves by.
//
// Makes this process ignore SIGPIPE, unless it handles it.
//
// Errors: kDeadlineExceeded naming the ranks that did not come; kAborted once
// the generation is fenced; kFailedPrecondition, with the remedy, if no address
// that peers can reach is found.
absl::StatusOr<std::unique_ptr<Collective>> MakeGlooCollective(
    const v1::Assignment& assignment, CoordinatorClient* coordinator,
    absl::Duration timeout);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_GLOO_COLLECTIVE_H_
