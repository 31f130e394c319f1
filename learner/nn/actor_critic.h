#ifndef FLOTILLA_LEARNER_NN_ACTOR_CRITIC_H_
#define FLOTILLA_LEARNER_NN_ACTOR_CRITIC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "learner/nn/flat_parameters.h"
#include "learner/rollout/spaces.h"
#include "learner/torch.h"

namespace flotilla {

struct ActorCriticOutput {
  torch::Tensor policy;  // [N, A] logits, or means of continuous actions
  torch::Tensor value;   // [N]
};

// PPO's and IMPALA's network, of the shape CleanRL uses:
//
//   vector: two MLPs (critic, actor), or one trunk with two heads
//   frames: conv 32@8s4, 64@4s2, 64@3s1, linear 512 (Mnih et al. 2015), two
//   heads
//
// All parameters are views into one flat buffer, and all gradients into
// another (FlatParameters). Parameters, in the buffer's order (and the names in
// checkpoints):
//
//   actor_logstd                                      continuous actions, [A]
//   critic.0.weight, critic.0.bias, critic.2.weight, ..., actor.0.weight, ...
//   or, with one trunk,
//   trunk.0.weight, ..., policy.weight, policy.bias, value.weight, value.bias
//
// The numbers count activations too, as in CleanRL's nn.Sequential; continuous
// actors are actor_mean. kernels/mlp_shape.h has the same layout for MLPs.
// Weights are [out, in] like torch.nn.Linear's, [out, in, kh, kw] for
// convolutions. Not thread-safe.
class ActorCritic {
 public:
  // Errors: kInvalidArgument for an encoder that does not fit the observation.
  static absl::StatusOr<ActorCritic> Make(const Spaces& spaces,
                                          const v1::ModelConfig& config,
                                          torch::Device device);

  // Orthogonal weights (gain sqrt 2; 0.01 for the policy head, 1 for the value
  // head), zero biases. The same seed gives the same weights on every rank.
  void Initialize(uint64_t seed);

  // `observation` is [N, D] float32, or [N, k, H, W] uint8.
  ActorCriticOutput Forward(const torch::Tensor& observation) const;

  // The flat buffers, [P] float32.
  const torch::Tensor& parameters() const { return parameters_; }
  const torch::Tensor& gradients() const { return gradients_; }
  int64_t num_parameters() const { return parameters_.numel(); }
  // All of it as the optimizer sees it: views.
  FlatParameters Flat() const {
    return {parameters_, gradient_message_, gradients_, Named()};
  }

  // [A]; undefined for discrete actions.
  const torch::Tensor& log_std() const { return log_std_; }

  // Views into parameters(), in its order.
  std::vector<NamedTensor> Named() const;

  // The same shape with weights of its own.
  ActorCritic Clone() const;

  const Spaces& spaces() const { return spaces_; }
  const v1::ModelConfig& config() const { return config_; }
  torch::Device device() const { return parameters_.device(); }

  // Convolutions in bfloat16, weights and everything else in float32.
  void set_bf16(bool on) { bf16_ = on; }

 private:
  struct Layer {
    torch::Tensor weight, bias;
    std::string name;
    double gain;
    int64_t stride = 0;  // 0: linear
  };

  ActorCritic() = default;
  void Build(torch::Device device);
  torch::Tensor Trunk(const torch::Tensor& observation) const;
  torch::Tensor Activate(torch::Tensor x) const;

  Spaces spaces_;
  v1::ModelConfig config_;
  bool bf16_ = false;
  torch::Tensor parameters_, gradient_message_, gradients_, log_std_;
  // Two MLPs and no trunk, or a trunk and two heads of one layer each.
  std::vector<Layer> trunk_, critic_, actor_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_ACTOR_CRITIC_H_
