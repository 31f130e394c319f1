#include "learner/rollout/rollout.h"

namespace flotilla {

Rollout MakeRollout(const Spaces& spaces, int64_t length, int64_t rows,
                    bool pinned) {
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
  return r;
}

}  // namespace flotilla
