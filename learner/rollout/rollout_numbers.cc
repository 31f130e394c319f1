#include "learner/rollout/rollout_numbers.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/env/numbers.h"

namespace flotilla {

std::string DescribeNumbers(const Rollout& r) {
  std::string largest;
  std::vector<std::pair<const char*, torch::Tensor>> tensors;
  for (int i = 0; i < r.observation.num_leaves(); ++i) {
    // Without the frames that a stack has ahead of step 0: a rollout before
    // learned from those.
    const torch::Tensor& leaf = r.observation.leaf(i);
    const int64_t steps = r.observation.steps();
    tensors.emplace_back("observation",
                         leaf.narrow(0, leaf.size(0) - steps, steps));
  }
  tensors.insert(tensors.end(), {{"reward", r.reward},
                                 {"action", r.action.continuous},
                                 {"log_prob", r.log_prob},
                                 {"value", r.value},
                                 {"bootstrap_value", r.bootstrap_value}});
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || !tensor.is_floating_point() ||
        tensor.numel() == 0) {
      continue;
    }
    const int64_t columns = tensor.dim() > 1 ? tensor.size(1) : 1;
    // [steps, B]: the magnitude of each row's largest.
    const torch::Tensor size =
        tensor.abs().reshape({tensor.size(0), columns, -1}).amax(2);
    const torch::Tensor bad = (size <= kMaxMagnitude).logical_not();
    if (bad.any().item<bool>()) {
      const int64_t at =
          bad.flatten().to(torch::kUInt8).argmax().item<int64_t>();
      return absl::StrCat("the rollout's ", name, " at step ", at / columns,
                          ", row ", at % columns, " is ",
                          size.flatten()[at].item<float>(), " in magnitude");
    }
    absl::StrAppend(&largest, largest.empty() ? "" : ", ", name, " ",
                    size.max().item<float>());
  }
  return absl::StrCat(
      "all that was collected last is finite (the largest: ", largest,
      "), so the weights diverged: lower "
      "optimizer.learning_rate, or scale what is large "
      "(env.reward_clamp, model.normalize_rewards, "
      "model.normalize_observations)");
}

absl::Status CheckNoted(std::span<const double> noted) {
  for (const double sum : noted) {
    if (std::isfinite(sum)) continue;
    return absl::InternalError(absl::StrCat(
        "what observations or rewards add to their running mean and variance "
        "is ",
        sum, ", want a finite number; these are as they were"));
  }
  return absl::OkStatus();
}

}  // namespace flotilla
