#ifndef FLOTILLA_LEARNER_NN_SAC_NETWORKS_H_
#define FLOTILLA_LEARNER_NN_SAC_NETWORKS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "learner/kernels/mlp_shape.h"
#include "learner/nn/flat_parameters.h"
#include "learner/nn/layers.h"
#include "learner/nn/observation_encoder.h"
#include "learner/rollout/batch.h"
#include "learner/torch.h"
#include "services/env/encoder_plan.h"
#include "services/env/spaces.h"

// The networks of soft actor-critic, with CleanRL's heads and, for a vector, its
// layers.

namespace flotilla {

// From observations to a Gaussian (squashed_gaussian.h): the configured encoder,
// then a linear layer each for means and log standard deviations. Parameters:
//
//   actor.0.weight, actor.0.bias, actor.2.weight, ...
//   actor_mean.weight, actor_mean.bias, actor_logstd.weight, actor_logstd.bias
//
// Not thread-safe.
class SacActor {
 public:
  struct Output {
    torch::Tensor mean;     // [N, A]
    torch::Tensor log_std;  // [N, A]  from -5 to 2, by tanh
  };

  // Errors: kInvalidArgument for an encoder that does not fit the observation.
  static absl::StatusOr<SacActor> Make(const Spaces& spaces,
                                       const v1::ModelConfig& config,
                                       torch::Device device);

  // Weights and biases uniform in +-1 / sqrt(inputs), as torch.nn.Linear and
  // Conv2d start. The same seed gives the same weights on every rank.
  void Initialize(uint64_t seed);

  Output Forward(const Batch& observation) const;

  const FlatParameters& Flat() const { return flat_; }

  // The shape that the hand-written kernels know it by, or none: they take one vector,
  // on a CPU.
  std::optional<MlpShape> KernelShape() const;

  const Spaces& spaces() const { return spaces_; }
  torch::Device device() const { return flat_.device(); }

  // The same shape with weights of its own.
  SacActor Clone() const;

  // Convolutions in bfloat16, weights and everything else in float32.
  void set_bf16(bool on) { bf16_ = on; }

 private:
  SacActor() = default;
  void Build(torch::Device device);

  Spaces spaces_;
  v1::ModelConfig config_;
  EncoderPlan plan_;
  bool bf16_ = false;
  FlatParameters flat_;
  ObservationEncoder encoder_;
  std::vector<Layer> mean_, log_std_;  // one layer each
};

// Two critics of observations and actions, which share nothing. The action is one
// more leaf of the observation:
//
//   one vector   laid before the action, then an MLP of the configured widths
//   one image    its encoder, beside it the action, then a layer of the
//                encoder's width
//   more         each leaf's encoder, beside them the action, then the trunk
//
// and then a linear layer. Parameters: critic1.0.weight, ..., critic1_q.weight,
// critic1_q.bias, critic2.0.weight, ...
//
// Not thread-safe.
class TwinCritics {
 public:
  // As SacActor::Make.
  static absl::StatusOr<TwinCritics> Make(const Spaces& spaces,
                                          const v1::ModelConfig& config,
                                          torch::Device device);
  void Initialize(uint64_t seed);  // as SacActor

  // Q [N] of each critic. `action` is [N, A] on the device.
  std::array<torch::Tensor, 2> Forward(const Batch& observation,
                                       const torch::Tensor& action) const;

  const FlatParameters& Flat() const { return flat_; }
  std::optional<MlpShape> KernelShape() const;  // as SacActor's
  TwinCritics Clone() const;
  void set_bf16(bool on) { bf16_ = on; }

 private:
  struct Critic {
    ObservationEncoder encoder;
    std::vector<Layer> head;
  };

  TwinCritics() = default;
  void Build(torch::Device device);

  Spaces spaces_;  // with the action as the last leaf of the observation
  v1::ModelConfig config_;
  EncoderPlan plan_;
  bool bf16_ = false;
  FlatParameters flat_;
  std::array<Critic, 2> critic_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_SAC_NETWORKS_H_
