#ifndef FLOTILLA_SERVICES_COORDINATOR_SESSION_CLIENT_H_
#define FLOTILLA_SERVICES_COORDINATOR_SESSION_CLIENT_H_

#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "flotilla/v1/coordinator.grpc.pb.h"
#include "services/base/mutex.h"

namespace flotilla {

// The client's end of one Session call: heartbeats out, commands in. At most
// one heartbeat is on its way; a newer one replaces one that waits.
//
// Thread-safe. Lives until gRPC is done with it, and as long as anyone holds
// it.
class SessionClient final
    : public grpc::ClientBidiReactor<v1::Heartbeat, v1::Command> {
 public:
  // Called on gRPC's threads; must be quick. `on_over` comes once, last.
  struct Handlers {
    std::function<void(const v1::Command&)> on_command;
    std::function<void(const absl::Status&)> on_over;
  };

  static std::shared_ptr<SessionClient> Start(
      v1::CoordinatorService::Stub* stub, Handlers handlers);

  void Send(const v1::Heartbeat& heartbeat);

  // Ends the call soon; on_over follows.
  void Cancel() { context_.TryCancel(); }

  // For gRPC.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  explicit SessionClient(Handlers handlers) : handlers_(std::move(handlers)) {}

  void Proceed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Handlers handlers_;
  grpc::ClientContext context_;
  std::shared_ptr<SessionClient> self_;  // until OnDone
  v1::Command command_;                  // gRPC's, or OnReadDone's

  Mutex mu_;
  v1::Heartbeat heartbeat_ ABSL_GUARDED_BY(mu_);  // gRPC's while writing_
  std::optional<v1::Heartbeat> next_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool over_ ABSL_GUARDED_BY(mu_) = false;  // nothing more may be started
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_SESSION_CLIENT_H_
