#ifndef FLOTILLA_LEARNER_NN_LAYERS_H_
#define FLOTILLA_LEARNER_NN_LAYERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "flotilla/v1/config.pb.h"
#include "learner/nn/flat_parameters.h"
#include "learner/rollout/spaces.h"
#include "learner/torch.h"

namespace flotilla {

// A linear or convolution layer before it has parameters.
struct LayerSpec {
  std::string name;             // in checkpoints, without ".weight"
  std::vector<int64_t> weight;  // [out, in], or [out, in, kh, kw]
  double gain;                  // of orthogonal weights
  int64_t stride = 0;           // 0: linear
  int64_t padding = 0;
};

struct Layer {
  torch::Tensor weight, bias;
  double gain;
  int64_t stride = 0;  // 0: linear
  int64_t padding = 0;
};

// Layers of these widths, named `name`.0, `name`.2, ...: the numbers count
// activations too, as in torch.nn.Sequential.
std::vector<LayerSpec> PlanMlp(const std::string& name, int64_t inputs,
                               const std::vector<int64_t>& widths);

// The encoder that the configuration and the observation ask for:
//
//   MLP         linear layers
//   NATURE_CNN  Mnih et al. 2015: 8x8 by 4, 4x4 by 2, 3x3 by 1, linear
//   RESNET      Espeholt et al. 2018, figure 3: 15 convolutions, linear
//
// Widths are HiddenWidths, for frames the last of them, and model.conv_channels
// for NATURE_CNN.
std::vector<LayerSpec> PlanEncoder(const std::string& name, const Spaces& s,
                                   const v1::ModelConfig& config);

// model.hidden, or the encoder's default.
std::vector<int64_t> HiddenWidths(const v1::ModelConfig& config, bool frames);

// Errors: kInvalidArgument for an encoder that does not fit the observation.
absl::Status CheckEncoder(const Spaces& spaces, const v1::ModelConfig& config);

int64_t CountParameters(const std::vector<LayerSpec>& specs);

// Gives each layer its parameters, weight before bias.
std::vector<Layer> MakeLayers(const std::vector<LayerSpec>& specs,
                              FlatParameters* parameters);

struct ForwardOptions {
  bool relu = false;          // else tanh
  bool activate_last = true;  // between layers always
  bool bf16 = false;          // layers in bfloat16; the result in float32
  bool residual = false;      // all but the last layer are RESNET's
};

// `x` is [N, D] float32, or frames [N, k, H, W] uint8, which are divided by
// 255.
torch::Tensor Forward(const std::vector<Layer>& layers, torch::Tensor x,
                      const ForwardOptions& options);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_LAYERS_H_
