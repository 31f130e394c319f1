#ifndef FLOTILLA_LEARNER_NN_ACTOR_CRITIC_H_
#define FLOTILLA_LEARNER_NN_ACTOR_CRITIC_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "learner/nn/flat_parameters.h"
#include "learner/nn/layers.h"
#include "learner/nn/network.h"
#include "learner/nn/observation_encoder.h"
#include "learner/nn/recurrent.h"
#include "learner/torch.h"
#include "services/env/encoder_plan.h"
#include "services/env/spaces.h"

namespace flotilla {

// The network that a configuration describes, for PPO and IMPALA; where there is
// one leaf to see, of the shape CleanRL uses:
//
//   vector     two MLPs (critic, actor), or one trunk with two heads
//   frames     conv 32@8s4, 64@4s2, 64@3s1, linear 512 (Mnih et al. 2015), two
//              heads (model.conv_channels has other widths); or the 15
//              convolutions with residual blocks of Espeholt et al. 2018,
//              linear 256
//   more       an encoder for each leaf, then one trunk with two heads
//              (observation_encoder.h)
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
// torch.nn.Linear's, [out, in, kh, kw] for convolutions.
class ActorCritic : public Network {
 public:
  // Errors: kInvalidArgument for an encoder that does not fit the observation.
  static absl::StatusOr<std::unique_ptr<ActorCritic>> Make(
      const Spaces& spaces, const v1::ModelConfig& config,
      torch::Device device);

  // Orthogonal weights (gain sqrt 2; 0.01 for the policy head, 1 for the value
  // head and recurrent layers), zero biases. The same seed gives the same
  // weights on every rank.
  void Initialize(uint64_t seed) override;

  NetworkOutput Forward(const Batch& observation,
                        const Sequences& sequences = {}) const override;
  const FlatParameters& Flat() const override { return flat_; }
  std::unique_ptr<Network> Clone() const override;
  // A row holds h, or h and c, of the first layer, then those of the next.
  int64_t state_size() const override;
  // MLPs on one vector, with choices, masked or not, or continuous values, on the CPU.
  std::optional<MlpShape> KernelShape() const override;
  // Likewise on a device, with any choices, masked or not; not in bfloat16.
  std::optional<MlpShape> DeviceShape() const override {
    return bf16_ ? std::nullopt : device_shape_;
  }
  void set_bf16(bool on) override {
    bf16_ = on && encoder_.sees_images();
    bf16_mlp_ = on && config_.encoder() == v1::MLP;
  }
  void Settle() override { encoder_.Settle(bf16_); }
  bool settles() const override {
    return bf16_ || (device().is_cpu() && encoder_.sees_images());
  }
  std::vector<torch::Tensor> settled() const override {
    return encoder_.settled();
  }
  bool recordable() const override { return true; }

 private:
  ActorCritic() = default;
  void Build(torch::Device device);
  // What the kernels would have to run; nothing if that is no MLP on one vector.
  std::optional<MlpShape> Shape() const;
  torch::Tensor Recur(const torch::Tensor& features, const Sequences& sequences,
                      torch::Tensor* state) const;

  Spaces spaces_;
  v1::ModelConfig config_;
  bool bf16_ = false;      // what images go through
  bool bf16_mlp_ = false;  // hidden layers by kernels
  FlatParameters flat_;
  torch::Tensor log_std_;
  EncoderPlan plan_;
  // Two MLPs and no encoder, or an encoder and two heads of one layer each.
  bool apart_ = false;
  ObservationEncoder encoder_;
  std::vector<Layer> critic_, actor_;
  std::vector<RecurrentWeights> recurrent_;  // per layer
  std::optional<MlpShape> device_shape_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_ACTOR_CRITIC_H_
