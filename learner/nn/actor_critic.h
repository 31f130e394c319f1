#ifndef FLOTILLA_LEARNER_NN_ACTOR_CRITIC_H_
#define FLOTILLA_LEARNER_NN_ACTOR_CRITIC_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "learner/nn/flat_parameters.h"
#include "learner/nn/layers.h"
#include "learner/nn/recurrent.h"
#include "learner/rollout/spaces.h"
#include "learner/torch.h"

namespace flotilla {

struct ActorCriticOutput {
  torch::Tensor policy;  // [N, A] logits, or means of continuous actions
  torch::Tensor value;   // [N]
  torch::Tensor state;   // [B, S]  recurrent, and only without gradients
};

// What a recurrent network needs besides observations: N = T * B of them are T
// steps of B sequences, time first.
struct Sequences {
  torch::Tensor state;  // [B, S] float32  before the first step
  torch::Tensor keep;   // [T, B, 1] float32  0: the state is forgotten before
                        // this step, which begins an episode; else 1
};

// PPO's and IMPALA's network, of the shape CleanRL uses:
//
//   vector     two MLPs (critic, actor), or one trunk with two heads
//   frames     conv 32@8s4, 64@4s2, 64@3s1, linear 512 (Mnih et al. 2015), two
//              heads (model.conv_channels has other widths); or the 15
//              convolutions with residual blocks of Espeholt et al. 2018,
//              linear 256
//   recurrent  one trunk, then LSTM or GRU layers, then two heads
//              (ppo_atari_lstm.py)
//
// Parameters, in the flat buffer's order (and the names in checkpoints):
//
//   actor_logstd                                      continuous actions, [A]
//   critic.0.weight, critic.0.bias, critic.2.weight, ..., actor.0.weight, ...
//   or, with one trunk,
//   trunk.0.weight, ..., policy.weight, policy.bias, value.weight, value.bias
//   where between trunk and policy recurrent networks have, for each layer l,
//   lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0, lstm.bias_hh_l0, ...
//
// The numbers count activations too, as in CleanRL's nn.Sequential; continuous
// actors are actor_mean; a GRU is gru; RESNET's convolutions are
// trunk.0.conv, trunk.0.res_block0.conv0, ... as in CleanRL's ppo_procgen.py.
// kernels/mlp_shape.h has the same layout for MLPs. Weights are [out, in] like
// torch.nn.Linear's, [out, in, kh, kw] for convolutions. Not thread-safe.
class ActorCritic {
 public:
  // Errors: kInvalidArgument for an encoder that does not fit the observation.
  static absl::StatusOr<ActorCritic> Make(const Spaces& spaces,
                                          const v1::ModelConfig& config,
                                          torch::Device device);

  // Orthogonal weights (gain sqrt 2; 0.01 for the policy head, 1 for the value
  // head and recurrent layers), zero biases. The same seed gives the same
  // weights on every rank.
  void Initialize(uint64_t seed);

  // `observation` is [N, D] float32, or [N, k, H, W] uint8. `sequences` is for
  // recurrent networks, and they need it.
  ActorCriticOutput Forward(const torch::Tensor& observation,
                            const Sequences& sequences = {}) const;

  bool recurrent() const { return !recurrent_.empty(); }
  // S: numbers of recurrent state in a row; 0 if there is none. A row holds h,
  // or h and c, of the first layer, then those of the next.
  int64_t state_size() const;

  // Parameters and gradients, [P] float32 each.
  const FlatParameters& Flat() const { return flat_; }
  const torch::Tensor& parameters() const { return flat_.parameters; }
  const torch::Tensor& gradients() const { return flat_.gradients; }
  int64_t num_parameters() const { return flat_.size(); }

  // [A]; undefined for discrete actions.
  const torch::Tensor& log_std() const { return log_std_; }

  // Views into parameters(), in its order.
  const std::vector<NamedTensor>& Named() const { return flat_.named; }

  // The same shape with weights of its own.
  ActorCritic Clone() const;

  const Spaces& spaces() const { return spaces_; }
  const v1::ModelConfig& config() const { return config_; }
  torch::Device device() const { return flat_.device(); }

  // Convolutions in bfloat16, weights and everything else in float32.
  void set_bf16(bool on) { bf16_ = on; }

 private:
  ActorCritic() = default;
  void Build(torch::Device device);
  torch::Tensor Recur(const torch::Tensor& features, const Sequences& sequences,
                      torch::Tensor* state) const;

  Spaces spaces_;
  v1::ModelConfig config_;
  bool bf16_ = false;
  FlatParameters flat_;
  torch::Tensor log_std_;
  // Two MLPs and no trunk, or a trunk and two heads of one layer each.
  std::vector<Layer> trunk_, critic_, actor_;
  std::vector<RecurrentWeights> recurrent_;  // per layer
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_ACTOR_CRITIC_H_
