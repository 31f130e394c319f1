#include "learner/rollout/rollout.h"

namespace flotilla {

Rollout MakeRollout(const Spaces& spaces, int64_t length, int64_t rows,
                    bool pinned, int64_t state_size) {
  const auto options = [pinned](torch::Dtype dtype) {
    return torch::TensorOptions().dtype(dtype).pinned_memory(pinned);
  };
  const auto f32 = options(torch::kFloat32);
  const auto u8 = options(torch::kUInt8);
  const int64_t T = length, B = rows;

  Rollout r;
  r.length = T;
  r.rows = B;
  r.observation = ObservationStore(spaces, T + 1, B, pinned);
  r.action = MakeActions(spaces.action, {T, B}, pinned);
  r.log_prob = torch::zeros({T, B}, f32);
  r.value = torch::zeros({T + 1, B}, f32);
  r.reward = torch::zeros({T, B}, f32);
  r.terminated = torch::zeros({T, B}, u8);
  r.truncated = torch::zeros({T, B}, u8);
  r.bootstrap_value = torch::zeros({T, B}, f32);
  r.valid = torch::zeros({T, B}, u8);
  if (state_size > 0) r.initial_state = torch::zeros({B, state_size}, f32);
  return r;
}

torch::Tensor Starts(const Rollout& r) {
  torch::Tensor starts = torch::zeros({r.length + 1, r.rows}, torch::kUInt8);
  starts.narrow(0, 1, r.length)
      .copy_(r.terminated.logical_or(r.truncated).logical_or_(r.valid == 0));
  return starts;
}

}  // namespace flotilla
