#ifndef FLOTILLA_LEARNER_NN_INPUT_TENSOR_H_
#define FLOTILLA_LEARNER_NN_INPUT_TENSOR_H_

#include "learner/nn/policy.h"
#include "learner/rollout/spaces.h"
#include "learner/torch.h"

namespace flotilla {

// `seen` as networks take it, on `device`: [R, D] float32, or [R, k, H, W]
// uint8. On the CPU a view, which must not outlive it.
inline torch::Tensor ToTensor(const Observations& seen, const Spaces& s,
                              torch::Device device) {
  const torch::Tensor host =
      s.frames ? torch::from_blob(const_cast<uint8_t*>(seen.frames),
                                  {seen.rows, s.stack, s.height, s.width},
                                  torch::kUInt8)
               : torch::from_blob(const_cast<float*>(seen.vector),
                                  {seen.rows, s.features}, torch::kFloat32);
  return host.to(device);
}

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_INPUT_TENSOR_H_
