#ifndef FLOTILLA_ENVSERVER_GYM_VECTOR_ENV_H_
#define FLOTILLA_ENVSERVER_GYM_VECTOR_ENV_H_

#include <condition_variable>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "envserver/gym_server.h"
#include "services/base/mutex.h"
#include "services/env/env_stream.h"
#include "services/env/vector_env.h"

namespace flotilla {

// The specification of a gym: environment, from a Python server started to ask.
// Errors: those of GymServer::Start, and the Python server's.
absl::StatusOr<v1::EnvSpec> DescribeGym(const std::string& env_id,
                                        const v1::EnvOptions& options);

// gym: environments behind this server: it plays them on a Python server of its
// own, over the protocol that it serves. So other hosts get them with its
// credentials and leases, and Python serves nobody else.
class GymVectorEnv final : public VectorEnv {
 public:
  // Starts the Python server, for as many environments as `hello` asks for, and
  // shakes hands as `hello`. `listener` must outlive the result.
  // Errors: those of DescribeGym.
  static absl::StatusOr<std::unique_ptr<GymVectorEnv>> Make(
      v1::Hello hello, GymServerOptions options, Listener* listener);

  // Kills the Python server: an environment that hangs holds nobody up.
  ~GymVectorEnv() override;

  const v1::EnvSpec& spec() const override { return stream_->spec(); }
  void Reset(int group, ObservationBuffers observation,
             v1::StepBatch* out) override;
  void Step(int group, const v1::ActionBatch& actions,
            ObservationBuffers observation, v1::StepBatch* out) override;

 private:
  struct Operation {
    const v1::ActionBatch* actions;  // null: a reset
    ObservationBuffers observation;
    v1::StepBatch* out;
    int group;
  };

  GymVectorEnv(std::unique_ptr<GymServer> server,
               std::unique_ptr<EnvStream> stream, Listener* listener);

  void Begin(const Operation& operation);
  void ThreadMain();
  absl::Status Run(const Operation& operation);

  const std::unique_ptr<GymServer> server_;
  const std::unique_ptr<EnvStream> stream_;
  Listener* const listener_;
  v1::StepBatch batch_;  // of the thread alone

  Mutex mu_;
  std::condition_variable work_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Operation> queue_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_GYM_VECTOR_ENV_H_
