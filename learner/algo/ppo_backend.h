#ifndef FLOTILLA_LEARNER_ALGO_PPO_BACKEND_H_
#define FLOTILLA_LEARNER_ALGO_PPO_BACKEND_H_

#include <functional>
#include <memory>

#include "learner/algo/policy_loss.h"
#include "learner/kernels/ppo_loss.h"
#include "learner/nn/network.h"
#include "learner/rollout/rollout.h"
#include "learner/torch.h"
#include "services/env/spaces.h"

namespace flotilla {

// A minibatch: M of a rollout's T * B steps.
struct PpoBatch {
  const Rollout* rollout = nullptr;
  // Indices lie where the rollout does, which may be a device.
  torch::Tensor index;  // [M] int32   t * B + b, valid steps only
  // Recurrent networks: the environments whose sequences are replayed from
  // rollout.initial_state. `index` has all their valid steps, by t and then in
  // this order.
  torch::Tensor columns;  // [b] int32
  // Of a rollout on a device: both on the host.
  torch::Tensor host_index, host_columns;
  torch::Tensor advantage;  // [T, B] float32
  torch::Tensor returns;    // [T, B] float32
  // On a device: all of these but the indices stay where they are from update to
  // update, so that a graph may read them.
  bool stays = false;
  double clip_ratio = 0;
  double value_clip = 0;  // 0: off
  // If set, called before the backward pass that completes the gradient. The
  // kernels, which have no such pass, do not.
  std::function<void()> before_last_backward;
};

// Computes PPO's gradient. Three implementations of one definition (the loss in
// kernels/ppo_loss.h), held equal by tests/learner/algo/ppo_backend_test.cc.
//
// Not thread-safe.
class PpoBackend {
 public:
  virtual ~PpoBackend() = default;

  // Leaves in the network's gradients() the sum, not the mean, over the batch
  // of the loss's gradient. An empty batch leaves zeros.
  virtual PpoSums Compute(const PpoBatch& batch) = 0;

  // The same for a network on a device, of which the host learns nothing: what
  // PpoSums has behind `samples` is left there, [kSums] float64.
  static constexpr int64_t kSums = 6;
  virtual torch::Tensor ComputeLater(const PpoBatch& batch) = 0;

  // Computes that of `loss` from now on.
  virtual void set_loss(const PolicyLoss& loss) = 0;
};

// Through autograd: any network, any device. `net` is borrowed by both.
std::unique_ptr<PpoBackend> MakeTorchPpoBackend(const Network* net,
                                                const Spaces& spaces,
                                                const PolicyLoss& loss);

// The same with the loss and its gradient in one operator (learner/cuda): where each
// operator is a launch.
std::unique_ptr<PpoBackend> MakeFusedPpoBackend(const Network* net,
                                                const Spaces& spaces,
                                                const PolicyLoss& loss);

// Through learner/kernels, in one pass without autograd, which Torch's threads share:
// networks that have a KernelShape.
std::unique_ptr<PpoBackend> MakeKernelPpoBackend(const Network* net,
                                                 const Spaces& spaces,
                                                 const PolicyLoss& loss);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_PPO_BACKEND_H_
