#ifndef FLOTILLA_SERVICES_ENV_ENV_SERVICE_H_
#define FLOTILLA_SERVICES_ENV_ENV_SERVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "services/base/mutex.h"
#include "services/env/play_stream.h"
#include "services/env/vector_env.h"

namespace flotilla {

// Serves the environments of a factory: proto/flotilla/v1/env.proto over gRPC.
//
// Each stream has a thread of its own, where cheap environments also step: no
// work is done in a gRPC reaction. One learner plays at a time; its newer
// incarnation takes over from its older one.
//
// Thread-safe.
class EnvService final : public v1::EnvService::WithRawCallbackMethod_Play<
                             v1::EnvService::Service>,
                         private PlayHost {
 public:
  static constexpr int kMaxReplays = 4;

  // `factory` must outlive this.
  EnvService(const VectorEnvFactory* factory, const PlayOptions& options)
      : factory_(factory), options_(options) {}

  // Call after the server has shut down. Waits for every stream's thread and
  // every replay.
  ~EnvService() override;

  // Ends every stream, now and later, with UNAVAILABLE. Idempotent.
  void Shutdown();

  // Waits for streams and replays to be over; false at the timeout.
  bool AwaitStreams(absl::Duration timeout);

  // Environment steps served since the start.
  int64_t steps() const;

  // Environments now played; 0: nobody plays.
  int num_envs() const;

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Play(
      grpc::CallbackServerContext* context) override;

  grpc::Status GetSpec(grpc::ServerContext* context,
                       const v1::GetSpecRequest* request,
                       v1::GetSpecResponse* response) override;

  // At most kMaxReplays at a time.
  grpc::Status Replay(grpc::ServerContext* context,
                      const v1::ReplayRequest* request,
                      grpc::ServerWriter<v1::ReplayStep>* writer) override;

 private:
  bool shut_down() const;
  absl::Status BeginReplay();
  absl::Status TakeSeat(PlayStream* stream, const v1::Hello& hello) override;
  void LeaveSeat(PlayStream* stream) override;
  void StreamEnded(PlayStream* stream) override;
  absl::Status Describe(const v1::GetSpecRequest& request,
                        v1::GetSpecResponse* response) const;

  const VectorEnvFactory* const factory_;
  const PlayOptions options_;

  mutable Mutex mu_;
  std::condition_variable ended_;
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
  std::unordered_set<PlayStream*> streams_ ABSL_GUARDED_BY(mu_);
  int replays_ ABSL_GUARDED_BY(mu_) = 0;
  PlayStream* playing_ ABSL_GUARDED_BY(mu_) = nullptr;
  v1::Hello player_ ABSL_GUARDED_BY(mu_);  // of playing_
  int64_t finished_steps_ ABSL_GUARDED_BY(mu_) = 0;
  // The stream that ended last: its thread is on its way out.
  std::unique_ptr<PlayStream> last_ended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_ENV_SERVICE_H_
