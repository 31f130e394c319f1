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
  if (spaces.frames) {
    r.observation =
        torch::zeros({T + spaces.stack, B, spaces.height, spaces.width}, u8);
    r.age = torch::zeros({T + 1, B}, u8);
  } else {
    r.observation = torch::zeros({T + 1, B, spaces.features}, f32);
  }
  r.action = spaces.continuous ? torch::zeros({T, B, spaces.actions}, f32)
                               : torch::zeros({T, B}, options(torch::kInt64));
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
  torch::Tensor starts = torch::zeros_like(r.valid);
  const int64_t after = r.length - 1;
  starts.narrow(0, 1, after)
      .copy_(r.terminated.narrow(0, 0, after)
                 .logical_or(r.truncated.narrow(0, 0, after))
                 .logical_or_(r.valid.narrow(0, 0, after) == 0));
  return starts;
}

}  // namespace flotilla
