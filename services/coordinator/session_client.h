#ifndef FLOTILLA_SERVICES_COORDINATOR_SESSION_CLIENT_H_
#define FLOTILLA_SERVICES_COORDINATOR_SESSION_CLIENT_H_

#include <grpcpp/client_context.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "flotilla/v1/coordinator.grpc.pb.h"
#include "services/base/mutex.h"

namespace flotilla {

// The client's end of one Session call: heartbeats out, commands in. At most
// one heartbeat is on its way; a newer one replaces one that waits.
//
// Thread-safe. Destroy it on a thread of your own: with the last of a channel
// go the threads that its calls ran on, and one of those would wait for itself.
class SessionClient final
    : public grpc::ClientBidiReactor<v1::Heartbeat, v1::Command> {
 public:
  // Called on gRPC's threads; must be quick. `on_over` comes once, last, and
  // before the destructor returns.
  struct Handlers {
    std::function<void(const v1::Command&)> on_command;
    std::function<void(const absl::Status&)> on_over;
  };

  static std::unique_ptr<SessionClient> Start(
      std::shared_ptr<v1::CoordinatorService::Stub> stub, Handlers handlers);

  // Cancels the call and blocks until gRPC is done with it.
  ~SessionClient() override;

  void Send(const v1::Heartbeat& heartbeat);

  // Ends the call soon; on_over follows.
  void Cancel() { context_.TryCancel(); }

  // For gRPC.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  SessionClient(std::shared_ptr<v1::CoordinatorService::Stub> stub,
                Handlers handlers)
      : stub_(std::move(stub)), handlers_(std::move(handlers)) {}

  void Proceed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<v1::CoordinatorService::Stub> stub_;
  const Handlers handlers_;
  grpc::ClientContext context_;
  v1::Command command_;  // gRPC's, or OnReadDone's

  Mutex mu_;
  std::condition_variable done_changes_;
  v1::Heartbeat heartbeat_ ABSL_GUARDED_BY(mu_);  // gRPC's while writing_
  std::optional<v1::Heartbeat> next_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool over_ ABSL_GUARDED_BY(mu_) = false;  // nothing more may be started
  bool done_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_SESSION_CLIENT_H_
