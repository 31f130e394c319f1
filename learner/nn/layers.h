#ifndef FLOTILLA_LEARNER_NN_LAYERS_H_
#define FLOTILLA_LEARNER_NN_LAYERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "learner/nn/flat_parameters.h"
#include "learner/nn/numbers.h"
#include "learner/torch.h"
#include "services/env/encoder_plan.h"
#include "services/env/spaces.h"

namespace flotilla {

// A linear or convolution layer before it has parameters.
struct LayerSpec {
  std::string name;             // in checkpoints, without ".weight"
  std::vector<int64_t> weight;  // [out, in], or [out, in, kh, kw]
  double gain;                  // of orthogonal weights
  int64_t stride = 0;           // 0: linear
  int64_t padding = 0;
  bool bias = true;  // an embedding has none
};

struct Layer {
  torch::Tensor weight, bias;  // `bias` undefined where there is none
  double gain;
  int64_t stride = 0;  // 0: linear
  int64_t padding = 0;
  // What SettleLayers made of them, packed where kernels take the layer (linear.h,
  // convolution.h), whose bias stays float32; undefined before.
  torch::Tensor settled_weight = {}, settled_bias = {};
};

// Layers of these widths, named `name`.0, `name`.2, ...: the numbers count
// activations too, as in torch.nn.Sequential.
std::vector<LayerSpec> PlanMlp(const std::string& name, int64_t inputs,
                               const std::vector<int64_t>& widths);

// What one leaf goes through (services/env/encoder_plan.h):
//
//   MLP         linear layers
//   NATURE_CNN  Mnih et al. 2015: 8x8 by 4, 4x4 by 2, 3x3 by 1, linear
//   RESNET      Espeholt et al. 2018, figure 3: 15 convolutions, linear
//   EMBEDDING   a table, then linear layers
std::vector<LayerSpec> PlanEncoder(const std::string& name,
                                   const LeafSpec& leaf,
                                   const LeafEncoder& encoder);

int64_t CountParameters(const std::vector<LayerSpec>& specs);

// Gives each layer its parameters, weight before bias.
std::vector<Layer> MakeLayers(const std::vector<LayerSpec>& specs,
                              FlatParameters* parameters);

struct ForwardOptions {
  bool relu = false;           // else tanh
  bool activate_last = true;   // between layers always
  bool bf16 = false;           // layers in bfloat16; the result in float32
  bool residual = false;       // all but the last layer are RESNET's
  int64_t learned = kAllRows;  // see QNetwork::Forward
};

// What will be seen by layers whose weights are settled.
struct SettleOptions {
  bool pixels = false;  // uint8
  bool bf16 = false;
  int64_t height = 0, width = 0;  // of images
};

// Says that the weights stay as they are until the next call: Forward without
// gradients takes a copy of them in place of converting or packing them each time. In
// float32 that is what kernels take; other layers' weights are read as they are.
void SettleLayers(const SettleOptions& seen, std::vector<Layer>* layers);

// `x` is [N, D], or images [N, C, H, W], float32; or the same uint8, which are
// divided by 255. Without layers, `x` as it is.
torch::Tensor Forward(const std::vector<Layer>& layers, torch::Tensor x,
                      const ForwardOptions& options);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_LAYERS_H_
