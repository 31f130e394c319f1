#ifndef FLOTILLA_SERVICES_ENV_DIAL_SERVICE_H_
#define FLOTILLA_SERVICES_ENV_DIAL_SERVICE_H_

#include <condition_variable>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "services/base/mutex.h"
#include "services/env/dial_stream.h"
#include "services/env/play_transport.h"

namespace flotilla {

struct DialOptions {
  absl::Duration introduction_timeout = absl::Seconds(10);
  // How long a server that came waits for somebody to play it: the learner may
  // not have noticed yet that it has lost the server's stream before.
  absl::Duration patience = absl::Seconds(10);
  int max_streams = 1000;  // open at once, refused ones among them
};

// Where env servers dial in: proto/flotilla/v1/env.proto's DialService.
//
//   Dial --> introduced --> waits --Await--> plays --> over
//                |            |                          ^
//                |            '--- `patience`: NOT_FOUND |
//                '-- a newer incarnation ends the older, wherever that is: ABORTED
//
// A stream that ends does so at once for whoever plays it; what the network still
// has to carry to its other end is nobody's to wait for.
//
// Thread-safe.
class DialService final : public v1::DialService::WithRawCallbackMethod_Dial<
                              v1::DialService::Service>,
                          private DialHost {
 public:
  explicit DialService(const DialOptions& options);

  // Call after the server has shut down. Waits for gRPC to be done with every
  // stream.
  ~DialService() override;

  // Blocks until env server `id` is there, newer than any that was played, and
  // takes it; what is returned may outlive neither this nor the server.
  // Errors: kDeadlineExceeded; kCancelled when `stop` is requested; kUnavailable
  // after Shutdown.
  absl::StatusOr<std::unique_ptr<PlayTransport>> Await(const std::string& id,
                                                       absl::Duration timeout,
                                                       std::stop_token stop);

  // Whether Await would find `id` at once.
  bool Waits(const std::string& id) const;

  // Streams open, those among them that are about to end.
  int streams() const;

  // Ends every stream, now and later, with UNAVAILABLE. Idempotent.
  void Shutdown();

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Dial(
      grpc::CallbackServerContext* context) override;

 private:
  enum class Stage { kNew, kWaits, kPlays, kEnded };
  struct Held {
    Stage stage = Stage::kNew;
    absl::Time until;    // of stages that end, as SteadyNow says it
    std::string server;  // once it is introduced
  };
  using Stream = std::shared_ptr<DialStream>;

  void OnIntroduced(const Stream& stream) override;
  void OnEnded(const Stream& stream) override;
  void OnGone(const Stream& stream) override;

  // The thread that watches the clock.
  void Run();
  absl::Time NextDeadline() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndOverdue(absl::Time now);

  const DialOptions options_;

  mutable Mutex mu_;
  std::condition_variable changed_;
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
  bool quit_ ABSL_GUARDED_BY(mu_) = false;
  std::map<Stream, Held> streams_ ABSL_GUARDED_BY(mu_);
  // The newest of each server that has not ended.
  std::map<std::string, Stream> of_server_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;  // last: it uses the rest
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_DIAL_SERVICE_H_
