#include "learner/training/agreement.h"

namespace flotilla {

Agreement::Agreement(int world_size)
    : world_size_(world_size), values_(kNumSlots, 0.0) {}

absl::Status Agreement::Reduce(Collective* collective) {
  return collective->AllReduceSum(torch::from_blob(
      values_.data(), {static_cast<int64_t>(values_.size())}, torch::kFloat64));
}

}  // namespace flotilla
