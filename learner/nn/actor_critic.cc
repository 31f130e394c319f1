#include "learner/nn/actor_critic.h"

#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "learner/nn/vector_math.h"

namespace flotilla {
namespace {

struct Plan {
  std::string name;
  std::vector<int64_t> weight;  // shape
  double gain;
  int64_t stride = 0;
  int64_t padding = 0;
};

const double kSqrt2 = std::sqrt(2.0);

std::vector<Plan> PlanMlp(const std::string& name, int64_t inputs,
                          const std::vector<int64_t>& hidden) {
  std::vector<Plan> layers;
  for (size_t i = 0; i < hidden.size(); ++i) {
    layers.push_back(
        {absl::StrCat(name, ".", 2 * i), {hidden[i], inputs}, kSqrt2});
    inputs = hidden[i];
  }
  return layers;
}

int64_t ConvOut(int64_t size, int64_t kernel, int64_t stride) {
  return (size - kernel) / stride + 1;
}

std::vector<Plan> PlanNatureCnn(const Spaces& s, int64_t features) {
  int64_t h = s.height, w = s.width;
  for (auto [kernel, stride] :
       {std::pair<int64_t, int64_t>{8, 4}, {4, 2}, {3, 1}}) {
    h = ConvOut(h, kernel, stride);
    w = ConvOut(w, kernel, stride);
  }
  return {{"trunk.0", {32, s.stack, 8, 8}, kSqrt2, 4},
          {"trunk.2", {64, 32, 4, 4}, kSqrt2, 2},
          {"trunk.4", {64, 64, 3, 3}, kSqrt2, 1},
          {"trunk.7", {features, 64 * h * w}, kSqrt2}};
}

// Three times: convolution, max pooling that halves, two residual blocks.
std::vector<Plan> PlanResnet(const Spaces& s, int64_t features) {
  std::vector<Plan> layers;
  int64_t channels = s.stack, h = s.height, w = s.width;
  for (int stage = 0; stage < 3; ++stage) {
    const int64_t out = stage == 0 ? 16 : 32;
    auto convolution = [&](const std::string& name, int64_t in) {
      layers.push_back({absl::StrCat("trunk.", stage, ".", name),
                        {out, in, 3, 3},
                        kSqrt2,
                        1,
                        1});
    };
    convolution("conv", channels);
    for (const char* name : {"res_block0.conv0", "res_block0.conv1",
                             "res_block1.conv0", "res_block1.conv1"}) {
      convolution(name, out);
    }
    channels = out;
    h = (h + 1) / 2;
    w = (w + 1) / 2;
  }
  layers.push_back({"trunk.5", {features, channels * h * w}, kSqrt2});
  return layers;
}

std::vector<int64_t> Hidden(const v1::ModelConfig& config, bool frames) {
  if (config.hidden_size() > 0) {
    return {config.hidden().begin(), config.hidden().end()};
  }
  if (config.encoder() == v1::RESNET) return {256};
  return frames ? std::vector<int64_t>{512} : std::vector<int64_t>{64, 64};
}

// Orthogonal rows (or columns, whichever are fewer), as
// torch.nn.init.orthogonal_ makes them, from a generator of our own: nothing
// that others draw in this process can change the weights.
torch::Tensor Orthogonal(torch::IntArrayRef shape, double gain,
                         at::Generator generator) {
  const int64_t rows = shape[0];
  const int64_t columns = c10::multiply_integers(shape) / rows;
  torch::Tensor drawn = torch::randn({rows, columns}, generator);
  if (rows < columns) drawn = drawn.t();
  auto [q, r] = torch::linalg_qr(drawn);
  q = q * r.diag().sign();
  if (rows < columns) q = q.t();
  return (q * gain).reshape(shape);
}

}  // namespace

absl::StatusOr<ActorCritic> ActorCritic::Make(const Spaces& spaces,
                                              const v1::ModelConfig& config,
                                              torch::Device device) {
  SettleVectorMath();
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
  ActorCritic net;
  net.spaces_ = spaces;
  net.config_ = config;
  net.Build(device);
  return net;
}

void ActorCritic::Build(torch::Device device) {
  const std::vector<int64_t> hidden = Hidden(config_, spaces_.frames);
  const int64_t A = spaces_.actions;
  std::vector<Plan> trunk, critic, actor;
  const bool recurrent = config_.recurrent() != v1::NONE;
  const int64_t H = config_.recurrent_size();
  if (spaces_.frames || config_.share_trunk() || recurrent) {
    if (!spaces_.frames) {
      trunk = PlanMlp("trunk", spaces_.features, hidden);
    } else {
      trunk = config_.encoder() == v1::RESNET
                  ? PlanResnet(spaces_, hidden.back())
                  : PlanNatureCnn(spaces_, hidden.back());
    }
    const int64_t features = recurrent ? H : hidden.back();
    actor = {{"policy", {A, features}, 0.01}};
    critic = {{"value", {1, features}, 1.0}};
  } else {
    const std::string head = absl::StrCat(".", 2 * hidden.size());
    const std::string actor_name = spaces_.continuous ? "actor_mean" : "actor";
    critic = PlanMlp("critic", spaces_.features, hidden);
    critic.push_back({"critic" + head, {1, hidden.back()}, 1.0});
    actor = PlanMlp(actor_name, spaces_.features, hidden);
    actor.push_back({actor_name + head, {A, hidden.back()}, 0.01});
  }

  const bool shared = !trunk.empty();
  int64_t total = spaces_.continuous ? A : 0;
  for (const auto* part : {&trunk, &critic, &actor}) {
    for (const Plan& p : *part) {
      total += c10::multiply_integers(p.weight) + p.weight[0];
    }
  }
  const int64_t GH = RecurrentGates(config_.recurrent()) * H;
  const int layers = recurrent ? config_.recurrent_layers() : 0;
  for (int l = 0; l < layers; ++l) {
    total += GH * ((l == 0 ? hidden.back() : H) + H + 2);
  }
  const auto f32 = torch::TensorOptions().dtype(torch::kFloat32).device(device);
  parameters_ = torch::zeros({total}, f32);
  gradient_message_ = torch::zeros({total + FlatParameters::kTail}, f32);
  gradients_ = gradient_message_.narrow(0, 0, total);

  int64_t offset = 0;
  auto take = [&](torch::IntArrayRef shape) {
    const int64_t n = c10::multiply_integers(shape);
    torch::Tensor p = parameters_.narrow(0, offset, n).view(shape).detach();
    p.set_requires_grad(true);
    p.mutable_grad() = gradients_.narrow(0, offset, n).view(shape);
    offset += n;
    return p;
  };
  auto build = [&](const std::vector<Plan>& plans, std::vector<Layer>* out) {
    for (const Plan& p : plans) {
      torch::Tensor weight = take(p.weight);
      torch::Tensor bias = take({p.weight[0]});
      out->push_back({weight, bias, p.name, p.gain, p.stride, p.padding});
    }
  };
  if (spaces_.continuous) log_std_ = take({A});
  build(trunk, &trunk_);
  for (int l = 0; l < layers; ++l) {
    const torch::Tensor weight_ih = take({GH, l == 0 ? hidden.back() : H});
    const torch::Tensor weight_hh = take({GH, H});
    const torch::Tensor bias_ih = take({GH});
    recurrent_.push_back({weight_ih, weight_hh, bias_ih, take({GH})});
  }
  if (shared) {
    build(actor, &actor_);
    build(critic, &critic_);
  } else {
    build(critic, &critic_);
    build(actor, &actor_);
  }
}

void ActorCritic::Initialize(uint64_t seed) {
  torch::NoGradGuard no_grad;
  // On the CPU whatever the device, so that all ranks draw the same numbers.
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  for (auto* layers : {&trunk_, &critic_, &actor_}) {
    for (Layer& layer : *layers) {
      layer.weight.copy_(
          Orthogonal(layer.weight.sizes(), layer.gain, generator));
      layer.bias.zero_();
    }
  }
  for (RecurrentWeights& layer : recurrent_) {
    layer.weight_ih.copy_(Orthogonal(layer.weight_ih.sizes(), 1.0, generator));
    layer.weight_hh.copy_(Orthogonal(layer.weight_hh.sizes(), 1.0, generator));
    layer.bias_ih.zero_();
    layer.bias_hh.zero_();
  }
  if (log_std_.defined()) log_std_.fill_(config_.initial_log_std());
}

torch::Tensor ActorCritic::Activate(torch::Tensor x) const {
  if (spaces_.frames || config_.activation() == v1::RELU) {
    return torch::relu_(x);
  }
  return torch::tanh_(x);
}

torch::Tensor ActorCritic::Trunk(const torch::Tensor& observation) const {
  torch::Tensor x = observation;
  if (spaces_.frames) {
    const auto dtype = bf16_ ? torch::kBFloat16 : torch::kFloat32;
    x = x.to(dtype, /*non_blocking=*/false, /*copy=*/false,
             torch::MemoryFormat::ChannelsLast)
            .mul_(1.0 / 255.0);
  }
  const bool residual = config_.encoder() == v1::RESNET;
  if (residual) x = ResidualConvolutions(x);
  for (const Layer& layer : trunk_) {
    if (residual && layer.stride > 0) continue;
    if (layer.stride == 0 && x.dim() > 2) x = x.contiguous().flatten(1);
    x = Activate(Apply(layer, x));
  }
  return bf16_ ? x.to(torch::kFloat32) : x;
}

torch::Tensor ActorCritic::Apply(const Layer& layer,
                                 const torch::Tensor& x) const {
  const auto dtype = bf16_ ? torch::kBFloat16 : torch::kFloat32;
  const torch::Tensor weight = layer.weight.to(dtype);
  const torch::Tensor bias = layer.bias.to(dtype);
  return layer.stride > 0
             ? torch::conv2d(x, weight, bias, layer.stride, layer.padding)
             : torch::linear(x, weight, bias);
}

// Espeholt et al. 2018, figure 3, right.
torch::Tensor ActorCritic::ResidualConvolutions(torch::Tensor x) const {
  constexpr size_t kConvolutions = 5;  // of one stage
  for (size_t i = 0; i + 1 < trunk_.size(); i += kConvolutions) {
    x = torch::max_pool2d(Apply(trunk_[i], x), /*kernel_size=*/3, /*stride=*/2,
                          /*padding=*/1);
    for (size_t block : {i + 1, i + 3}) {
      const torch::Tensor inner = Apply(trunk_[block], torch::relu(x));
      x = x + Apply(trunk_[block + 1], torch::relu(inner));
    }
  }
  return torch::relu(x);
}

int64_t ActorCritic::state_size() const {
  return recurrent_.size() * RecurrentPlanes(config_.recurrent()) *
         config_.recurrent_size();
}

torch::Tensor ActorCritic::Recur(const torch::Tensor& features,
                                 const Sequences& sequences,
                                 torch::Tensor* state) const {
  const int64_t B = sequences.state.size(0);
  const int64_t layers = recurrent_.size(), S = state_size() / layers;
  torch::Tensor x = features.reshape({-1, B, features.size(1)});
  std::vector<torch::Tensor> after;
  for (int64_t l = 0; l < layers; ++l) {
    const RecurrentOutput out =
        RunRecurrent(config_.recurrent(), recurrent_[l], x,
                     sequences.state.narrow(1, l * S, S), sequences.keep);
    x = out.output;
    after.push_back(out.state);
  }
  if (after[0].defined())
    *state = layers == 1 ? after[0] : torch::cat(after, 1);
  return x.flatten(0, 1);
}

ActorCriticOutput ActorCritic::Forward(const torch::Tensor& observation,
                                       const Sequences& sequences) const {
  torch::Tensor features = trunk_.empty() ? observation : Trunk(observation);
  torch::Tensor state;
  if (recurrent()) features = Recur(features, sequences, &state);
  auto mlp = [&](const std::vector<Layer>& layers) {
    torch::Tensor x = features;
    for (size_t i = 0; i < layers.size(); ++i) {
      x = torch::linear(x, layers[i].weight, layers[i].bias);
      if (i + 1 < layers.size()) x = Activate(x);
    }
    return x;
  };
  return {mlp(actor_), mlp(critic_).squeeze(1), state};
}

std::vector<NamedTensor> ActorCritic::Named() const {
  std::vector<NamedTensor> named;
  if (log_std_.defined()) named.push_back({"actor_logstd", log_std_.detach()});
  auto add = [&](const std::vector<Layer>& layers) {
    for (const Layer& layer : layers) {
      named.push_back({layer.name + ".weight", layer.weight.detach()});
      named.push_back({layer.name + ".bias", layer.bias.detach()});
    }
  };
  add(trunk_);
  const std::string cell = config_.recurrent() == v1::LSTM ? "lstm." : "gru.";
  for (size_t l = 0; l < recurrent_.size(); ++l) {
    const RecurrentWeights& w = recurrent_[l];
    named.push_back(
        {absl::StrCat(cell, "weight_ih_l", l), w.weight_ih.detach()});
    named.push_back(
        {absl::StrCat(cell, "weight_hh_l", l), w.weight_hh.detach()});
    named.push_back({absl::StrCat(cell, "bias_ih_l", l), w.bias_ih.detach()});
    named.push_back({absl::StrCat(cell, "bias_hh_l", l), w.bias_hh.detach()});
  }
  add(trunk_.empty() ? critic_ : actor_);
  add(trunk_.empty() ? actor_ : critic_);
  return named;
}

ActorCritic ActorCritic::Clone() const {
  ActorCritic copy;
  copy.spaces_ = spaces_;
  copy.config_ = config_;
  copy.bf16_ = bf16_;
  copy.Build(device());
  copy.parameters_.copy_(parameters_);
  return copy;
}

}  // namespace flotilla
