#include "learner/algo/algorithm.h"
#include "learner/algo/dqn.h"
#include "learner/algo/impala.h"
#include "learner/algo/ppo.h"

namespace flotilla {

absl::StatusOr<std::unique_ptr<Algorithm>> MakeAlgorithm(
    const v1::RunConfig& config, const Spaces& spaces, torch::Device device) {
  switch (config.algorithm_case()) {
    case v1::RunConfig::kPpo:
      return MakePpo(config, spaces, device);
    case v1::RunConfig::kDqn:
      return MakeDqn(config, spaces, device);
    case v1::RunConfig::kImpala:
      return MakeImpala(config, spaces, device);
    case v1::RunConfig::ALGORITHM_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "the configuration names no algorithm; add ppo { }");
}

}  // namespace flotilla
