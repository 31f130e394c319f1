#include "services/algorithms/minibatches.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

int64_t BatchOf(const v1::RunConfig& config) {
  return int64_t{config.rollout().length()} * config.env().num_envs();
}

}  // namespace

UpdatePlan PlanOfMinibatches(const v1::RunConfig& config, int64_t epochs,
                             int64_t minibatches) {
  return {.minibatch = BatchOf(config) / minibatches,
          .gradient_steps = epochs * minibatches};
}

double MinibatchSteps(const v1::RunConfig& config, int64_t minibatches) {
  return static_cast<double>(BatchOf(config)) /
         static_cast<double>(std::max<int64_t>(1, minibatches));
}

int PolicyAndValueTrunks(const v1::RunConfig& config, bool may_split) {
  return may_split && !config.model().share_trunk() ? 2 : 1;
}

void RequireWholeMinibatches(const v1::RunConfig& config,
                             const std::string& path, int64_t minibatches,
                             std::vector<ConfigProblem>* problems) {
  const int64_t rows = config.env().num_envs();
  const int64_t steps = config.rollout().length();
  if (minibatches < 1 || rows < 1 || steps < 1) return;
  const int64_t batch = rows * steps;
  Require(batch % minibatches == 0, path,
          absl::StrCat("is ", minibatches,
                       ", which does not divide the batch rollout.length * "
                       "env.num_envs = ",
                       steps, " * ", rows, " = ", batch, "; ",
                       NearbyDivisors(batch, minibatches)),
          problems);
  Require(config.model().recurrent() == v1::NONE || rows % minibatches == 0,
          path,
          absl::StrCat("is ", minibatches,
                       ", which does not divide env.num_envs = ", rows,
                       "; a recurrent model keeps whole sequences together; ",
                       NearbyDivisors(rows, minibatches)),
          problems);
}

std::string NearbyDivisors(int64_t total, int64_t value) {
  constexpr int64_t kFar = 1 << 20;
  int64_t below = std::min(value, total), above = value;
  const int64_t lowest = below - kFar, highest = std::min(total, value + kFar);
  while (below > 1 && below > lowest && total % below != 0) --below;
  while (above < highest && total % above != 0) ++above;
  if (total % below != 0) below = 1;
  if (total % above != 0) above = total;
  return absl::StrCat("use ", below, " or ", above);
}

}  // namespace flotilla
