#ifndef FLOTILLA_LEARNER_NN_OBSERVATION_ENCODER_H_
#define FLOTILLA_LEARNER_NN_OBSERVATION_ENCODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/v1/config.pb.h"
#include "learner/nn/flat_parameters.h"
#include "learner/nn/layers.h"
#include "learner/rollout/batch.h"
#include "learner/torch.h"
#include "services/env/encoder_plan.h"
#include "services/env/spaces.h"

namespace flotilla {

// From a Batch to features [N, F], as an EncoderPlan has it. Parameters, with
// `name` ahead:
//
//   one vector or image   NAME.0.weight, NAME.0.bias, ...
//   else                  NAME.leaf.PATH.0.weight, ..., then the trunk's
//                         NAME.0.weight, ...
//
// where an embedding is NAME.leaf.PATH.embedding.weight, [sum of n_i, width]: one
// table for each element, end to end.
class ObservationEncoder {
 public:
  ObservationEncoder() = default;
  // `plan` is PlanEncoders' for the same spaces.
  ObservationEncoder(const std::string& name, const Spaces& spaces,
                     const EncoderPlan& plan, v1::Activation activation);

  int64_t CountParameters() const;
  // Takes its parameters, once.
  void Take(FlatParameters* parameters);
  const std::vector<Layer*> layers();  // in the order of parameters

  int64_t features() const { return features_; }  // F
  // Whether any leaf is an image: nothing else is in bfloat16.
  bool sees_images() const;
  // Whether layers behind it go through RELU.
  bool relu() const { return relu_; }

  // Says that the weights stay as they are, until Unsettle or the next call: Forward
  // without gradients, in bfloat16 or not, converts and packs images' layers no more.
  void Settle(bool bf16);
  void Unsettle();
  // What Settle made; it stays where it is until Unsettle.
  std::vector<torch::Tensor> settled() const;

  // `activate_last`: whether the last layer of an encoder without a trunk is
  // activated. What images go through is in bfloat16 if `bf16`. `learned`: as
  // QNetwork::Forward, of an encoder without a trunk.
  torch::Tensor Forward(const Batch& batch, bool bf16,
                        bool activate_last = true,
                        int64_t learned = kAllRows) const;

 private:
  struct Leaf {
    LeafSpec spec;
    LeafEncoder encoder;
    std::vector<LayerSpec> planned;
    std::vector<Layer> layers;
    torch::Tensor offset;  // [K] int64  of each element's embeddings
  };
  torch::Tensor Encode(const Leaf& leaf, const torch::Tensor& x, bool bf16,
                       bool activate_last, int64_t learned = kAllRows) const;

  std::vector<Leaf> leaf_;
  std::vector<LayerSpec> planned_trunk_;
  std::vector<Layer> trunk_;
  int64_t features_ = 0;
  bool relu_ = false;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_OBSERVATION_ENCODER_H_
