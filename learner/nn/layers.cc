#include "learner/nn/layers.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

const double kSqrt2 = std::sqrt(2.0);

int64_t ConvOut(int64_t size, int64_t kernel, int64_t stride) {
  return (size - kernel) / stride + 1;
}

std::vector<LayerSpec> PlanNatureCnn(const std::string& name, const Spaces& s,
                                     const v1::ModelConfig& config,
                                     int64_t features) {
  int64_t c[] = {32, 64, 64};
  for (int i = 0; i < config.conv_channels_size(); ++i) {
    c[i] = config.conv_channels(i);
  }
  int64_t h = s.height, w = s.width;
  for (auto [kernel, stride] :
       {std::pair<int64_t, int64_t>{8, 4}, {4, 2}, {3, 1}}) {
    h = ConvOut(h, kernel, stride);
    w = ConvOut(w, kernel, stride);
  }
  return {{name + ".0", {c[0], s.stack, 8, 8}, kSqrt2, 4},
          {name + ".2", {c[1], c[0], 4, 4}, kSqrt2, 2},
          {name + ".4", {c[2], c[1], 3, 3}, kSqrt2, 1},
          {name + ".7", {features, c[2] * h * w}, kSqrt2}};
}

// Three times: convolution, max pooling that halves, two residual blocks.
std::vector<LayerSpec> PlanResnet(const std::string& name, const Spaces& s,
                                  int64_t features) {
  std::vector<LayerSpec> layers;
  int64_t channels = s.stack, h = s.height, w = s.width;
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
    h = (h + 1) / 2;
    w = (w + 1) / 2;
  }
  layers.push_back({name + ".5", {features, channels * h * w}, kSqrt2});
  return layers;
}

torch::Tensor Apply(const Layer& layer, const torch::Tensor& x) {
  const torch::Tensor weight = layer.weight.to(x.scalar_type());
  const torch::Tensor bias = layer.bias.to(x.scalar_type());
  return layer.stride > 0
             ? torch::conv2d(x, weight, bias, layer.stride, layer.padding)
             : torch::linear(x, weight, bias);
}

// Espeholt et al. 2018, figure 3, right.
torch::Tensor ResidualConvolutions(const std::vector<Layer>& layers,
                                   torch::Tensor x) {
  constexpr size_t kConvolutions = 5;  // of one stage
  for (size_t i = 0; i + 1 < layers.size(); i += kConvolutions) {
    x = torch::max_pool2d(Apply(layers[i], x), /*kernel_size=*/3, /*stride=*/2,
                          /*padding=*/1);
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

std::vector<LayerSpec> PlanEncoder(const std::string& name, const Spaces& s,
                                   const v1::ModelConfig& config) {
  const std::vector<int64_t> hidden = HiddenWidths(config, s.frames);
  if (!s.frames) return PlanMlp(name, s.features, hidden);
  return config.encoder() == v1::RESNET
             ? PlanResnet(name, s, hidden.back())
             : PlanNatureCnn(name, s, config, hidden.back());
}

std::vector<int64_t> HiddenWidths(const v1::ModelConfig& config, bool frames) {
  if (config.hidden_size() > 0) {
    return {config.hidden().begin(), config.hidden().end()};
  }
  if (config.encoder() == v1::RESNET) return {256};
  return frames ? std::vector<int64_t>{512} : std::vector<int64_t>{64, 64};
}

absl::Status CheckEncoder(const Spaces& spaces, const v1::ModelConfig& config) {
  const bool wants_frames = config.encoder() != v1::MLP;
  if (config.encoder() != v1::ENCODER_AUTO && wants_frames != spaces.frames) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.encoder ", v1::Encoder_Name(config.encoder()), " does not fit ",
        spaces.frames ? "frames; use NATURE_CNN or RESNET"
                      : "a vector; use MLP",
        " or leave it out"));
  }
  if (spaces.frames && config.encoder() != v1::RESNET &&
      (spaces.height < 36 || spaces.width < 36)) {
    return absl::InvalidArgumentError(
        absl::StrCat("frames of ", spaces.height, " x ", spaces.width,
                     " are too small for NATURE_CNN; it needs 36 x 36, RESNET "
                     "takes any size"));
  }
  return absl::OkStatus();
}

int64_t CountParameters(const std::vector<LayerSpec>& specs) {
  int64_t total = 0;
  for (const LayerSpec& p : specs) {
    total += c10::multiply_integers(p.weight) + p.weight[0];
  }
  return total;
}

std::vector<Layer> MakeLayers(const std::vector<LayerSpec>& specs,
                              FlatParameters* parameters) {
  std::vector<Layer> layers;
  for (const LayerSpec& p : specs) {
    torch::Tensor weight = parameters->Take(p.name + ".weight", p.weight);
    torch::Tensor bias = parameters->Take(p.name + ".bias", {p.weight[0]});
    layers.push_back({weight, bias, p.gain, p.stride, p.padding});
  }
  return layers;
}

torch::Tensor Forward(const std::vector<Layer>& layers, torch::Tensor x,
                      const ForwardOptions& options) {
  const auto dtype = options.bf16 ? torch::kBFloat16 : torch::kFloat32;
  if (x.scalar_type() == torch::kUInt8) {
    x = x.to(dtype, /*non_blocking=*/false, /*copy=*/false,
             torch::MemoryFormat::ChannelsLast)
            .mul_(1.0 / 255.0);
  }
  size_t first = 0;
  if (options.residual) {
    x = ResidualConvolutions(layers, x);
    first = layers.size() - 1;
  }
  for (size_t i = first; i < layers.size(); ++i) {
    if (layers[i].stride == 0 && x.dim() > 2) x = x.contiguous().flatten(1);
    x = Apply(layers[i], x);
    if (i + 1 == layers.size() && !options.activate_last) break;
    x = options.relu ? torch::relu_(x) : torch::tanh_(x);
  }
  return x.to(torch::kFloat32);
}

}  // namespace flotilla
