#include "learner/nn/actor_critic.h"

#include "absl/strings/str_cat.h"
#include "learner/nn/vector_math.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

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
  RETURN_IF_ERROR(CheckEncoder(spaces, config));
  ActorCritic net;
  net.spaces_ = spaces;
  net.config_ = config;
  net.Build(device);
  return net;
}

void ActorCritic::Build(torch::Device device) {
  const std::vector<int64_t> hidden = HiddenWidths(config_, spaces_.frames);
  const int64_t A = spaces_.actions;
  std::vector<LayerSpec> trunk, critic, actor;
  const bool recurrent = config_.recurrent() != v1::NONE;
  const int64_t H = config_.recurrent_size();
  if (spaces_.frames || config_.share_trunk() || recurrent) {
    trunk = PlanEncoder("trunk", spaces_, config_);
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
    total += CountParameters(*part);
  }
  const int64_t GH = RecurrentGates(config_.recurrent()) * H;
  const int layers = recurrent ? config_.recurrent_layers() : 0;
  for (int l = 0; l < layers; ++l) {
    total += GH * ((l == 0 ? hidden.back() : H) + H + 2);
  }
  flat_ = FlatParameters(total, device);
  if (spaces_.continuous) log_std_ = flat_.Take("actor_logstd", {A});
  trunk_ = MakeLayers(trunk, &flat_);
  const std::string cell = config_.recurrent() == v1::LSTM ? "lstm." : "gru.";
  for (int l = 0; l < layers; ++l) {
    const auto take = [&](const std::string& name, torch::IntArrayRef shape) {
      return flat_.Take(absl::StrCat(cell, name, "_l", l), shape);
    };
    const torch::Tensor weight_ih =
        take("weight_ih", {GH, l == 0 ? hidden.back() : H});
    const torch::Tensor weight_hh = take("weight_hh", {GH, H});
    const torch::Tensor bias_ih = take("bias_ih", {GH});
    recurrent_.push_back(
        {weight_ih, weight_hh, bias_ih, take("bias_hh", {GH})});
  }
  if (shared) {
    actor_ = MakeLayers(actor, &flat_);
    critic_ = MakeLayers(critic, &flat_);
  } else {
    critic_ = MakeLayers(critic, &flat_);
    actor_ = MakeLayers(actor, &flat_);
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
  ForwardOptions options;
  options.relu = spaces_.frames || config_.activation() == v1::RELU;
  options.residual = config_.encoder() == v1::RESNET;
  options.bf16 = bf16_ && spaces_.frames;
  torch::Tensor features = observation;
  if (!trunk_.empty()) features = flotilla::Forward(trunk_, features, options);
  torch::Tensor state;
  if (recurrent()) features = Recur(features, sequences, &state);
  const ForwardOptions head{.relu = options.relu, .activate_last = false};
  return {flotilla::Forward(actor_, features, head),
          flotilla::Forward(critic_, features, head).squeeze(1), state};
}

ActorCritic ActorCritic::Clone() const {
  ActorCritic copy;
  copy.spaces_ = spaces_;
  copy.config_ = config_;
  copy.bf16_ = bf16_;
  copy.Build(device());
  copy.parameters().copy_(parameters());
  return copy;
}

}  // namespace flotilla
