#ifndef FLOTILLA_SERVICES_COORDINATOR_SESSION_STREAM_H_
#define FLOTILLA_SERVICES_COORDINATOR_SESSION_STREAM_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.pb.h"
#include "services/base/mutex.h"
#include "services/coordinator/caller.h"

namespace flotilla {

class SessionStream;

// What a session stream asks of the service. Calls come from gRPC's threads and
// must be quick.
class SessionHost {
 public:
  virtual ~SessionHost() = default;

  // Takes a heartbeat; returns whether its sender has to register again. An
  // error ends the stream.
  virtual absl::StatusOr<bool> OnHeartbeat(
      const std::shared_ptr<SessionStream>& stream,
      const v1::Heartbeat& heartbeat) = 0;
  // What `member_id` is told now. Called with the stream's lock held.
  virtual v1::Command NewestCommand(const std::string& member_id) = 0;
  virtual void OnSessionOver(const std::shared_ptr<SessionStream>& stream) = 0;
  virtual absl::Time Now() = 0;
};

// The server's end of one Session call: heartbeats in, commands out. At most
// one command is on its way; what changes meanwhile goes into the next, so a
// slow reader costs nothing.
//
// Thread-safe. Lives until gRPC is done with it, and as long as anyone holds
// it.
class SessionStream final
    : public grpc::ServerBidiReactor<v1::Heartbeat, v1::Command> {
 public:
  // `host` and `context` must outlive the call.
  static std::shared_ptr<SessionStream> Start(
      SessionHost* host, grpc::CallbackServerContext* context);

  // Sends the newest command, as soon as the one before is out.
  void Push();

  // Ends the call, as soon as the last command is out.
  void Close(const absl::Status& status);

  // As Close, behind the newest command.
  void Conclude(const absl::Status& status);

  // Ends it at once, whatever the client reads.
  void Cut();

  // When the last heartbeat came; when the call came, before the first.
  absl::Time last_heard() const;

  // Whose it is; "" before the first heartbeat.
  std::string member_id() const;
  uint64_t incarnation() const;

  // The key of who opened it: all of its heartbeats are in that one's name.
  const std::string& key() const { return key_; }

  // For gRPC.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  SessionStream(SessionHost* host, grpc::CallbackServerContext* context)
      : host_(host),
        context_(context),
        key_(CallerOf(*context).key),
        last_heard_(host->Now()) {}

  absl::Status TakeHeartbeat();
  void Proceed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  SessionHost* const host_;
  grpc::CallbackServerContext* const context_;
  const std::string key_;
  std::shared_ptr<SessionStream> self_;  // until OnDone
  v1::Heartbeat heartbeat_;              // gRPC's, or OnReadDone's

  mutable Mutex mu_;
  v1::Command command_ ABSL_GUARDED_BY(mu_);     // gRPC's while writing_
  bool wanted_ ABSL_GUARDED_BY(mu_) = false;     // another command
  bool concludes_ ABSL_GUARDED_BY(mu_) = false;  // behind that one
  bool register_again_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;  // context_ is gone
  std::optional<absl::Status> closing_ ABSL_GUARDED_BY(mu_);
  absl::Time last_heard_ ABSL_GUARDED_BY(mu_);
  std::string member_id_ ABSL_GUARDED_BY(mu_);
  uint64_t incarnation_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_SESSION_STREAM_H_
