#include "learner/rollout/gather.h"

#include <numeric>
#include <span>
#include <vector>

#include "learner/kernels/frame_ops.h"

namespace flotilla {
namespace {

FrameStorage Frames(const Rollout& rollout, const Spaces& spaces) {
  return {.frames = rollout.observation.data_ptr<uint8_t>(),
          .age = rollout.age.data_ptr<uint8_t>(),
          .rows = rollout.rows,
          .pixels = spaces.features,
          .stack = spaces.stack};
}

}  // namespace

torch::Tensor GatherObservations(const Rollout& rollout, const Spaces& spaces,
                                 const torch::Tensor& index) {
  if (!spaces.frames) {
    return rollout.observation.flatten(0, 1).index_select(0, index);
  }
  torch::Tensor stacks =
      torch::empty({index.numel(), spaces.stack, spaces.height, spaces.width},
                   torch::kUInt8);
  StackFrames(Frames(rollout, spaces),
              {index.data_ptr<int32_t>(), static_cast<size_t>(index.numel())},
              stacks.data_ptr<uint8_t>());
  return stacks;
}

void StackRows(const Rollout& rollout, const Spaces& spaces, int64_t t,
               int64_t first, int64_t rows, uint8_t* out) {
  std::vector<int32_t> steps(rows);
  std::iota(steps.begin(), steps.end(), t * rollout.rows + first);
  StackFrames(Frames(rollout, spaces), steps, out);
}

}  // namespace flotilla
