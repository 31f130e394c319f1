#include "learner/nn/layers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/cuda/operators.h"
#include "learner/device/host.h"
#include "learner/kernels/convolution.h"
#include "learner/kernels/pixels.h"
#include "learner/nn/convolution.h"
#include "learner/nn/linear.h"

namespace flotilla {
namespace {

const double kSqrt2 = std::sqrt(2.0);
constexpr double kPixelScale = 1.0 / 255.0;

std::vector<LayerSpec> PlanNatureCnn(const std::string& name,
                                     const LeafSpec& leaf,
                                     const LeafEncoder& encoder) {
  const std::vector<int64_t>& c = encoder.channels;
  return {
      {name + ".0", {c[0], leaf.stack * leaf.channels, 8, 8}, kSqrt2, 4},
      {name + ".2", {c[1], c[0], 4, 4}, kSqrt2, 2},
      {name + ".4", {c[2], c[1], 3, 3}, kSqrt2, 1},
      {name + ".7", {encoder.hidden.back(), FlatWidth(leaf, encoder)}, kSqrt2}};
}

// Three times: convolution, max pooling that halves, two residual blocks.
std::vector<LayerSpec> PlanResnet(const std::string& name, const LeafSpec& leaf,
                                  const LeafEncoder& encoder) {
  std::vector<LayerSpec> layers;
  int64_t channels = leaf.stack * leaf.channels;
  for (int stage = 0; stage < 3; ++stage) {
    const int64_t out = stage == 0 ? 16 : 32;
    auto convolution = [&](const std::string& part, int64_t in) {
      layers.push_back({absl::StrCat(name, ".", stage, ".", part),
                        {out, in, 3, 3},
                        kSqrt2,
                        1,
                        1});
    };
    convolution("conv", channels);
    for (const char* part : {"res_block0.conv0", "res_block0.conv1",
                             "res_block1.conv0", "res_block1.conv1"}) {
      convolution(part, out);
    }
    channels = out;
  }
  layers.push_back(
      {name + ".5", {encoder.hidden.back(), FlatWidth(leaf, encoder)}, kSqrt2});
  return layers;
}

// A table whose entries are of the size of 1 to begin with, as
// torch.nn.Embedding's are, then linear layers.
std::vector<LayerSpec> PlanEmbedding(const std::string& name,
                                     const LeafSpec& leaf,
                                     const LeafEncoder& encoder) {
  int64_t values = 0;
  for (const int64_t n : leaf.num_values) values += n;
  const int64_t width = encoder.hidden[0];
  LayerSpec table = {name + ".embedding", {values, width}, 0};
  table.gain = std::sqrt(static_cast<double>(std::max(values, width)));
  table.bias = false;
  std::vector<LayerSpec> layers = {table};
  for (LayerSpec& layer :
       PlanMlp(name, FlatWidth(leaf, encoder),
               {encoder.hidden.begin() + 1, encoder.hidden.end()})) {
    layers.push_back(std::move(layer));
  }
  return layers;
}

// Of whole pixels in bfloat16, which keeps all of their bits, the first layer's
// weights are scaled in place of them.
double FirstScale(bool pixels, bool bf16) {
  return pixels && bf16 ? kPixelScale : 1.0;
}

// `scale`: what goes in was not yet multiplied by it.
torch::Tensor ScaledWeight(const Layer& layer, double scale) {
  return scale == 1 ? layer.weight : layer.weight * scale;
}

// See linear.h.
bool IsByKernel(const Layer& layer, torch::Dtype dtype) {
  return layer.stride == 0 && IsLinearByKernel(layer.weight, dtype);
}

// Whether kernels may take the convolution, if a ReLU is behind it: whoever learns and
// whoever decides by it computes alike. What comes out of another layer, and needs a
// gradient where it is learned from, has to have channels that fit.
bool MayBeByKernel(const Layer& layer, bool first) {
  return layer.stride > 0 && layer.padding == 0 &&
         (first || layer.weight.size(1) % kConvolutionWidth == 0);
}

// Along an image's side of `size`.
int64_t PlacesOut(const Layer& layer, int64_t size) {
  return (size + 2 * layer.padding - layer.weight.size(2)) / layer.stride + 1;
}

// Whether it is settled for x of `dtype`, and this is for who decides.
bool ReadsSettled(const Layer& layer, torch::Dtype dtype) {
  return layer.settled_weight.defined() &&
         layer.settled_weight.scalar_type() == dtype &&
         !at::GradMode::is_enabled();
}

// Weights and biases as a layer takes them, when `x` is what goes in.
struct Operands {
  torch::Tensor weight, bias;
};

Operands OperandsOf(const Layer& layer, torch::Dtype dtype, double scale) {
  if (dtype == torch::kBFloat16 && ReadsSettled(layer, dtype)) {
    return {layer.settled_weight, layer.settled_bias};
  }
  return {ScaledWeight(layer, scale).to(dtype), layer.bias.to(dtype)};
}

// Of a linear layer that kernels take; settled weights are packed.
torch::Tensor ByKernel(const Layer& layer, const torch::Tensor& x, double scale,
                       bool relu, int64_t learned) {
  if (ReadsSettled(layer, x.scalar_type())) {
    return LinearByPacked(x, layer.settled_weight, layer.settled_bias, relu);
  }
  return LinearByKernel(x, ScaledWeight(layer, scale), layer.bias, relu,
                        learned);
}

// As ByKernel, of a convolution.
torch::Tensor ConvolveByKernel(const Layer& layer, const torch::Tensor& x,
                               double scale, int64_t learned) {
  if (ReadsSettled(layer, x.scalar_type())) {
    return ConvolveReluByPacked(x, layer.settled_weight, layer.settled_bias,
                                layer.weight.size(2), layer.stride);
  }
  return ConvolveRelu(x, ScaledWeight(layer, scale), layer.bias, layer.stride,
                      learned);
}

torch::Tensor Apply(const Layer& layer, const torch::Tensor& x,
                    double scale = 1) {
  const auto [weight, bias] = OperandsOf(layer, x.scalar_type(), scale);
  return layer.stride > 0
             ? torch::conv2d(x, weight, bias, layer.stride, layer.padding)
             : torch::linear(x, weight, bias);
}

// uint8 [N, C, H, W] in `dtype`, channels last: of float32 between 0 and 1, of
// bfloat16, which holds whole numbers up to 256 exactly, as they are.
torch::Tensor Pixels(const torch::Tensor& x, torch::Dtype dtype) {
  const bool half = dtype == torch::kBFloat16;
  const bool plain = x.is_contiguous() && x.dim() == 4;
  if (!x.is_cpu() && plain && !half) return ScalePixels(x, kPixelScale);
  if (!x.is_cpu() || !plain) {
    const torch::Tensor y = x.to(dtype, /*non_blocking=*/false, /*copy=*/false,
                                 torch::MemoryFormat::ChannelsLast);
    return half ? y : y.mul_(kPixelScale);
  }
  const int64_t N = x.size(0), C = x.size(1), P = x.size(2) * x.size(3);
  const torch::Tensor y = torch::empty({N, x.size(2), x.size(3), C}, dtype);
  const uint8_t* from = Host<uint8_t>(x);
  uint8_t* const to = HostBytes(y);
  constexpr int64_t kFrames = 16;  // that are worth a thread
  at::parallel_for(0, N, kFrames, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * C * P;
    if (half) {
      PixelsToBfloat16(from + at, end - begin, C, P,
                       reinterpret_cast<uint16_t*>(to) + at);
    } else {
      PixelsToFloat(from + at, end - begin, C, P,
                    static_cast<float>(kPixelScale),
                    reinterpret_cast<float*>(to) + at);
    }
  });
  return y.permute({0, 3, 1, 2});
}

// Espeholt et al. 2018, figure 3, right.
torch::Tensor ResidualConvolutions(const std::vector<Layer>& layers,
                                   torch::Tensor x, double scale) {
  constexpr size_t kConvolutions = 5;  // of one stage
  for (size_t i = 0; i + 1 < layers.size(); i += kConvolutions) {
    x = torch::max_pool2d(Apply(layers[i], x, i == 0 ? scale : 1),
                          /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
    for (size_t block : {i + 1, i + 3}) {
      const torch::Tensor inner = Apply(layers[block], torch::relu(x));
      x = x + Apply(layers[block + 1], torch::relu(inner));
    }
  }
  return torch::relu(x);
}

}  // namespace

std::vector<LayerSpec> PlanMlp(const std::string& name, int64_t inputs,
                               const std::vector<int64_t>& widths) {
  std::vector<LayerSpec> layers;
  for (size_t i = 0; i < widths.size(); ++i) {
    layers.push_back(
        {absl::StrCat(name, ".", 2 * i), {widths[i], inputs}, kSqrt2});
    inputs = widths[i];
  }
  return layers;
}

std::vector<LayerSpec> PlanEncoder(const std::string& name,
                                   const LeafSpec& leaf,
                                   const LeafEncoder& encoder) {
  switch (encoder.encoder) {
    case v1::NATURE_CNN:
      return PlanNatureCnn(name, leaf, encoder);
    case v1::RESNET:
      return PlanResnet(name, leaf, encoder);
    case v1::EMBEDDING:
      return PlanEmbedding(name, leaf, encoder);
    default:
      return PlanMlp(name, FlatWidth(leaf, encoder), encoder.hidden);
  }
}

int64_t CountParameters(const std::vector<LayerSpec>& specs) {
  int64_t total = 0;
  for (const LayerSpec& p : specs) {
    total += c10::multiply_integers(p.weight) + (p.bias ? p.weight[0] : 0);
  }
  return total;
}

std::vector<Layer> MakeLayers(const std::vector<LayerSpec>& specs,
                              FlatParameters* parameters) {
  std::vector<Layer> layers;
  for (const LayerSpec& p : specs) {
    torch::Tensor weight = parameters->Take(p.name + ".weight", p.weight);
    torch::Tensor bias;
    if (p.bias) bias = parameters->Take(p.name + ".bias", {p.weight[0]});
    layers.push_back({weight, bias, p.gain, p.stride, p.padding});
  }
  return layers;
}

void SettleLayers(const SettleOptions& seen, std::vector<Layer>* layers) {
  torch::NoGradGuard no_grad;
  const auto dtype = seen.bf16 ? torch::kBFloat16 : torch::kFloat32;
  int64_t height = seen.height, width = seen.width;
  bool first = true;
  for (Layer& layer : *layers) {
    const double scale = first ? FirstScale(seen.pixels, seen.bf16) : 1;
    const torch::Tensor weight = std::exchange(layer.settled_weight, {});
    Operands now;
    if (IsByKernel(layer, dtype)) {
      now = {PackLinearWeight(ScaledWeight(layer, scale), dtype),
             layer.bias.clone()};
    } else if (MayBeByKernel(layer, first) &&
               IsConvolutionByKernel(layer.weight, dtype)) {
      now = {PackConvolutionWeight(ScaledWeight(layer, scale), height, width,
                                   layer.stride, dtype),
             layer.bias.clone()};
    } else if (seen.bf16) {
      now = OperandsOf(layer, dtype, scale);
    }
    if (layer.stride > 0) {
      height = PlacesOut(layer, height);
      width = PlacesOut(layer, width);
    }
    first = false;
    if (!now.weight.defined()) continue;
    // Where it is it stays: graphs of decisions read it there.
    if (weight.defined()) {
      layer.settled_weight = weight.copy_(now.weight);
      layer.settled_bias.copy_(now.bias);
    } else {
      layer.settled_weight = now.weight;
      layer.settled_bias = now.bias;
    }
  }
}

torch::Tensor Forward(const std::vector<Layer>& layers, torch::Tensor x,
                      const ForwardOptions& options) {
  const auto dtype = options.bf16 ? torch::kBFloat16 : torch::kFloat32;
  const bool pixels = x.scalar_type() == torch::kUInt8;
  const double scale = FirstScale(pixels, options.bf16);
  if (pixels) {
    x = Pixels(x, dtype);
  } else if (options.bf16) {
    x = x.to(dtype);
  }
  size_t first = 0;
  if (options.residual) {
    x = ResidualConvolutions(layers, x, scale);
    first = layers.size() - 1;
  }
  for (size_t i = first; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    if (layer.stride == 0 && x.dim() > 2) x = ChannelsFirst(x).flatten(1);
    const bool activate = i + 1 < layers.size() || options.activate_last;
    if (MayBeByKernel(layer, /*first=*/i == 0) && options.relu && activate &&
        ConvolvesByKernel(x, layer.weight)) {
      x = ConvolveByKernel(layer, x, i == 0 ? scale : 1, options.learned);
      continue;
    }
    if (x.dim() == 2 && IsByKernel(layer, x.scalar_type())) {
      x = ByKernel(layer, x, i == 0 ? scale : 1, options.relu && activate,
                   options.learned);
      if (activate && !options.relu) x = torch::tanh_(x);
      if (i + 1 < layers.size()) x = x.to(dtype);
      continue;
    }
    x = Apply(layer, x, i == 0 ? scale : 1);
    if (!activate) break;
    x = options.relu ? torch::relu_(x) : torch::tanh_(x);
  }
  return x.to(torch::kFloat32);
}

}  // namespace flotilla
