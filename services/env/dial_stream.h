#ifndef FLOTILLA_SERVICES_ENV_DIAL_STREAM_H_
#define FLOTILLA_SERVICES_ENV_DIAL_STREAM_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <condition_variable>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "flotilla/v1/env.pb.h"
#include "services/base/mutex.h"
#include "services/env/play_transport.h"

namespace flotilla {

class DialStream;

// What a stream asks of the service it belongs to. Calls come without the
// stream's lock, from any thread, and must be quick.
class DialHost {
 public:
  virtual ~DialHost() = default;

  // The stream has said, once, who it is.
  virtual void OnIntroduced(const std::shared_ptr<DialStream>& stream) = 0;
  // Nothing more comes or goes.
  virtual void OnEnded(const std::shared_ptr<DialStream>& stream) = 0;
  // gRPC is done with it. The last call about it, after OnEnded.
  virtual void OnGone(const std::shared_ptr<DialStream>& stream) = 0;
};

// The learner's end of one Dial call.
//
// Thread-safe, but that Read, AwaitReadable and Write are one thread's. Lives
// until gRPC is done with it, and as long as anyone holds it.
class DialStream final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using Clock = PlayTransport::Clock;
  using Progress = PlayTransport::Progress;

  // `host` and `context` must outlive the call.
  static std::shared_ptr<DialStream> Make(DialHost* host,
                                          grpc::CallbackServerContext* context);

  // Begins to wait for the introduction. Call it once.
  void Listen();

  // Who dialled in; from OnIntroduced on.
  const v1::Introduction& introduction() const { return introduction_; }

  // As PlayTransport has them.
  Progress Read(Clock::time_point deadline, grpc::ByteBuffer* message);
  bool AwaitReadable(Clock::time_point deadline);
  Progress Write(Clock::time_point deadline, grpc::ByteBuffer* message);

  // Ends the call with `status`, which the other side is told if it listens.
  // The first one counts. Never blocks.
  void End(const absl::Status& status);

  // Does not wait for the other side to listen, once it has ended.
  void Cut();

  // What it ended with; OK before.
  absl::Status ended() const;

  // For gRPC.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  DialStream(DialHost* host, grpc::CallbackServerContext* context)
      : host_(host), context_(context) {}

  absl::Status TakeIntroduction();

  DialHost* const host_;
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<DialStream> self_;  // until OnDone
  v1::Introduction introduction_;     // OnReadDone's, until it is there
  bool introduced_ = false;           // OnReadDone's

  mutable Mutex mu_;
  std::condition_variable changed_;
  grpc::ByteBuffer in_;   // gRPC's while reading_ and nothing was read
  grpc::ByteBuffer out_;  // gRPC's while writing_
  bool reading_ ABSL_GUARDED_BY(mu_) = true;  // begun, and nobody took it
  bool read_done_ ABSL_GUARDED_BY(mu_) = false;
  bool read_ok_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;  // context_ is gone
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_DIAL_STREAM_H_
