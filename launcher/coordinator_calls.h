#ifndef FLOTILLA_LAUNCHER_COORDINATOR_CALLS_H_
#define FLOTILLA_LAUNCHER_COORDINATOR_CALLS_H_

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.grpc.pb.h"
#include "services/rpc/channel.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// The calls that people and launchers make to a coordinator. They need no seat
// in the run; CoordinatorClient is for those who have one.
//
// Thread-safe. Each call blocks until its timeout at most.
// Errors: kUnavailable, naming the address and the remedy, when nobody answers
// there; kFailedPrecondition when what answers is no coordinator;
// kUnauthenticated or kPermissionDenied, with the remedy, when it refuses us.
class CoordinatorCalls {
 public:
  static absl::StatusOr<std::unique_ptr<CoordinatorCalls>> Make(
      const std::string& address, const RpcCredentials& credentials);

  absl::StatusOr<v1::Status> GetStatus(absl::Duration timeout);

  // Between a call that failed and the next: over early when the coordinator
  // can be reached again.
  void Pause(absl::Duration duration) {
    PauseBetweenCalls(channel_.get(), duration);
  }

  // Gives every status to `on_status` until that returns false or `stop` is
  // requested (OK both), or the connection breaks.
  absl::Status WatchStatus(
      absl::Duration interval,
      const std::function<bool(const v1::Status&)>& on_status,
      std::stop_token stop = {});

  absl::Status Stop(const std::string& reason, absl::Duration timeout);
  // Changes fields in flight; blocks until the ranks have agreed on the update.
  absl::StatusOr<v1::Change> Set(const std::vector<std::string>& overrides,
                                 absl::Duration timeout);
  // In the name of the learner `member_id`, whose slot has `secret`.
  absl::Status CloseRun(const std::string& member_id, const std::string& secret,
                        const std::string& status, absl::Duration timeout);

  const std::string& address() const { return address_; }

 private:
  CoordinatorCalls(std::string address, RpcCredentials credentials,
                   std::shared_ptr<grpc::Channel> channel)
      : address_(std::move(address)),
        credentials_(std::move(credentials)),
        channel_(std::move(channel)),
        stub_(v1::CoordinatorService::NewStub(channel_)) {}

  absl::Status Explain(const grpc::Status& status);
  absl::Status Explained(const absl::Status& status) const;

  const std::string address_;
  const RpcCredentials credentials_;
  std::atomic<bool> agreed_ = false;  // a call has succeeded
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::CoordinatorService::Stub> stub_;
};

// Whether something accepts connections at HOST:PORT.
bool SomethingListens(const std::string& address);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_COORDINATOR_CALLS_H_
