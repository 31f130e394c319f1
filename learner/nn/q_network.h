#ifndef FLOTILLA_LEARNER_NN_Q_NETWORK_H_
#define FLOTILLA_LEARNER_NN_Q_NETWORK_H_

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

namespace flotilla {

// DQN's network, of the shape DI-engine uses:
//
//   vector: MLP, every layer activated
//   frames: convolutions of Mnih et al. 2015, then a linear layer without
//           activation (DI-engine's pong_dqn: conv_channels [128, 128, 512])
//   more:   an encoder for each leaf, then an MLP (observation_encoder.h)
//   heads:  linear H, ReLU, linear; H is the encoder's width
//
// Dueling (Wang et al. 2016) has two heads, Q = A - mean(A) + V. Of several
// choices each has a Q of its own, and V is common to all (Tavakoli et al. 2018,
// branching dueling Q-networks). Parameters, in
// the flat buffer's order and with their names in checkpoints:
//
//   encoder.0.weight, encoder.0.bias, encoder.2.weight, ...
//   advantage.0.weight, ..., advantage.2.bias, value.0.weight, ...,
//   value.2.bias or, without dueling, q.0.weight, ..., q.2.bias
//
// Not thread-safe.
class QNetwork {
 public:
  // Errors: kInvalidArgument for continuous actions or an encoder that does not
  // fit the observation.
  static absl::StatusOr<QNetwork> Make(const Spaces& spaces,
                                       const v1::ModelConfig& config,
                                       bool dueling, torch::Device device);

  // Weights and biases uniform in +-1 / sqrt(inputs), as torch.nn.Linear and
  // Conv2d start. The same seed gives the same weights on every rank.
  void Initialize(uint64_t seed);

  // Q [N, L]: of every value of every choice. Forbidden ones have one too. Of rows from
  // `learned` on no gradient may be wanted: where LearnsFromSome the encoder's takes no
  // time for them.
  torch::Tensor Forward(const Batch& observation,
                        int64_t learned = kAllRows) const;
  bool LearnsFromSome() const;

  // Parameters and gradients, [P] float32 each.
  const FlatParameters& Flat() const { return flat_; }

  // Views into the parameters, in their order.
  const std::vector<NamedTensor>& Named() const { return flat_.named; }

  // The same shape with weights of its own.
  QNetwork Clone() const;

  // The shape that the hand-written kernels know it by, or none: they take one
  // vector, the first leaf, of ReLU layers to one choice, on a CPU. Of a mask they
  // know nothing: it is for those who choose.
  std::optional<MlpShape> KernelShape() const;

  // The linear weight behind an image's convolutions, which of frames as large as Atari's
  // most of the parameters are of, by its place in Flat().leaf, and the dtype of what goes
  // in: where LinearByKernel takes it. None of what sees more than an image, and on a GPU.
  struct Widest {
    size_t leaf;
    torch::Dtype dtype;
  };
  std::optional<Widest> WidestWeight() const;

  const Spaces& spaces() const { return spaces_; }
  torch::Device device() const { return flat_.device(); }

  // As a Network's. Between Settle and Unsettle the weights stay as they are.
  void set_bf16(bool on) { bf16_ = on && encoder_.sees_images(); }
  bool bf16() const { return bf16_; }
  void Settle() { encoder_.Settle(bf16_); }
  void Unsettle() { encoder_.Unsettle(); }

 private:
  QNetwork() = default;
  void Build(torch::Device device);

  Spaces spaces_;
  v1::ModelConfig config_;
  bool dueling_ = true;
  bool bf16_ = false;
  size_t encoder_leaves_ = 0;  // how many of flat_.leaf, from the first on
  FlatParameters flat_;
  EncoderPlan plan_;
  ObservationEncoder encoder_;
  std::vector<Layer> advantage_, value_;  // value_: dueling only
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_Q_NETWORK_H_
