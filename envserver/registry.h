#ifndef FLOTILLA_ENVSERVER_REGISTRY_H_
#define FLOTILLA_ENVSERVER_REGISTRY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "envserver/environment.h"
#include "flotilla/v1/config.pb.h"
#include "services/env/vector_env.h"

namespace flotilla {

// Every id that MakeEnvironment takes, sorted.
std::vector<std::string> ListEnvironments();

// Makes one environment for `worker_id`. Its specification has its own step
// limit, not that of `options`.
// Errors: kNotFound, naming the nearest id, if there is no such environment;
// kInvalidArgument naming the option that does not fit; kFailedPrecondition,
// with the remedy, if this build or machine lacks what it needs.
absl::StatusOr<std::unique_ptr<Environment>> MakeEnvironment(
    const std::string& env_id, const v1::EnvOptions& options,
    uint64_t worker_id);

// Makes the registry's environments in rows of ThreadVectorEnv, and gym: ones
// behind a GymVectorEnv.
//
// Thread-safe.
class RegistryFactory final : public VectorEnvFactory {
 public:
  // `threads` step the rows of a stream where that pays; at least 1. What is
  // done with environments that failed, gym: ones too: see
  // ThreadVectorEnv::Options.
  explicit RegistryFactory(int threads,
                           absl::Duration retry_wait = absl::ZeroDuration(),
                           bool renew_failed = false)
      : threads_(threads),
        retry_wait_(retry_wait),
        renew_failed_(renew_failed) {}

  std::vector<std::string> ListEnvironments() const override;
  absl::StatusOr<v1::EnvSpec> Describe(
      const std::string& env_id, const v1::EnvOptions& options) const override;
  absl::StatusOr<std::unique_ptr<VectorEnv>> Make(
      const v1::Hello& hello, VectorEnv::Listener* listener) const override;

 private:
  const int threads_;
  const absl::Duration retry_wait_;
  const bool renew_failed_;
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_REGISTRY_H_
