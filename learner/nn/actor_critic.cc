#include "learner/nn/actor_critic.h"

#include "absl/strings/str_cat.h"
#include "learner/cuda/operators.h"
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

absl::StatusOr<std::unique_ptr<ActorCritic>> ActorCritic::Make(
    const Spaces& spaces, const v1::ModelConfig& config, torch::Device device) {
  SettleVectorMath();
  std::unique_ptr<ActorCritic> net(new ActorCritic);
  ASSIGN_OR_RETURN(net->plan_, PlanEncoders(spaces, config));
  net->spaces_ = spaces;
  net->config_ = config;
  net->Build(device);
  return net;
}

void ActorCritic::Build(torch::Device device) {
  const int64_t A = spaces_.action.continuous, O = spaces_.action.outputs();
  const bool recurrent = config_.recurrent() != v1::NONE;
  const int64_t H = config_.recurrent_size();
  const LeafEncoder& first = plan_.leaf[0];
  const LeafSpec& seen = spaces_.observation[first.leaf];
  apart_ = !plan_.merged() && seen.kind == LeafKind::kVector &&
           !config_.share_trunk() && !recurrent;
  std::vector<LayerSpec> critic, actor;
  int64_t features = 0;
  int64_t total = A;
  if (apart_) {
    const std::vector<int64_t>& hidden = first.hidden;
    const int64_t inputs = FlatWidth(seen, first);
    const std::string head = absl::StrCat(".", 2 * hidden.size());
    const std::string actor_name = A > 0 ? "actor_mean" : "actor";
    critic = PlanMlp("critic", inputs, hidden);
    critic.push_back({"critic" + head, {1, hidden.back()}, 1.0});
    actor = PlanMlp(actor_name, inputs, hidden);
    actor.push_back({actor_name + head, {O, hidden.back()}, 0.01});
  } else {
    encoder_ =
        ObservationEncoder("trunk", spaces_, plan_, config_.activation());
    total += encoder_.CountParameters();
    features = encoder_.features();
    const int64_t inputs = recurrent ? H : features;
    actor = {{"policy", {O, inputs}, 0.01}};
    critic = {{"value", {1, inputs}, 1.0}};
  }
  total += CountParameters(critic) + CountParameters(actor);
  const int64_t GH = RecurrentGates(config_.recurrent()) * H;
  const int layers = recurrent ? config_.recurrent_layers() : 0;
  for (int l = 0; l < layers; ++l) {
    total += GH * ((l == 0 ? features : H) + H + 2);
  }
  flat_ = FlatParameters(total, device);
  if (A > 0) log_std_ = flat_.Take("actor_logstd", {A});
  encoder_.Take(&flat_);
  const std::string cell = config_.recurrent() == v1::LSTM ? "lstm." : "gru.";
  for (int l = 0; l < layers; ++l) {
    const auto take = [&](const std::string& name, torch::IntArrayRef shape) {
      return flat_.Take(absl::StrCat(cell, name, "_l", l), shape);
    };
    const torch::Tensor weight_ih =
        take("weight_ih", {GH, l == 0 ? features : H});
    const torch::Tensor weight_hh = take("weight_hh", {GH, H});
    const torch::Tensor bias_ih = take("bias_ih", {GH});
    recurrent_.push_back(
        {weight_ih, weight_hh, bias_ih, take("bias_hh", {GH})});
  }
  if (apart_) {
    critic_ = MakeLayers(critic, &flat_);
    actor_ = MakeLayers(actor, &flat_);
  } else {
    actor_ = MakeLayers(actor, &flat_);
    critic_ = MakeLayers(critic, &flat_);
  }
  if (device.is_cpu()) return;
  device_shape_ = Shape();
  if (device_shape_ && !MlpOperatorsTake(*device_shape_)) device_shape_.reset();
}

void ActorCritic::Initialize(uint64_t seed) {
  torch::NoGradGuard no_grad;
  // On the CPU whatever the device, so that all ranks draw the same numbers.
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  std::vector<Layer*> layers = encoder_.layers();
  for (auto* head : {&critic_, &actor_}) {
    for (Layer& layer : *head) layers.push_back(&layer);
  }
  for (Layer* layer : layers) {
    layer->weight.copy_(
        Orthogonal(layer->weight.sizes(), layer->gain, generator));
    if (layer->bias.defined()) layer->bias.zero_();
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

NetworkOutput ActorCritic::Forward(const Batch& observation,
                                   const Sequences& sequences) const {
  ForwardOptions head;
  head.relu = apart_ ? config_.activation() == v1::RELU : encoder_.relu();
  head.activate_last = false;
  torch::Tensor features, state;
  const bool fused = DeviceShape().has_value() && !at::GradMode::is_enabled();
  if (apart_ || fused) {
    features = observation.leaf[plan_.leaf[0].leaf];
    if (features.dim() > 2) features = features.flatten(1);
  } else {
    features = encoder_.Forward(observation, bf16_);
  }
  if (fused) {
    const MlpOutputs out =
        MlpForwardOperator(*device_shape_, parameters(), features.contiguous());
    return {out.policy, log_std_, out.value, state};
  }
  if (recurrent()) features = Recur(features, sequences, &state);
  return {flotilla::Forward(actor_, features, head), log_std_,
          flotilla::Forward(critic_, features, head).squeeze(1), state};
}

std::optional<MlpShape> ActorCritic::Shape() const {
  const LeafEncoder& first = plan_.leaf[0];
  const LeafSpec& seen = spaces_.observation[first.leaf];
  const ActionSpace& action = spaces_.action;
  if (plan_.merged() || seen.kind != LeafKind::kVector || recurrent() ||
      (action.choices() > 0 && action.continuous > 0)) {
    return std::nullopt;
  }
  MlpShape shape;
  shape.observations = static_cast<int>(FlatWidth(seen, first));
  shape.hidden.assign(first.hidden.begin(), first.hidden.end());
  shape.activation =
      config_.activation() == v1::RELU ? Activation::kRelu : Activation::kTanh;
  shape.share_trunk = !apart_;
  shape.actions = static_cast<int>(action.outputs());
  shape.continuous = action.continuous > 0;
  if (action.choices() > 1) {
    shape.choices.assign(action.num_values.begin(), action.num_values.end());
  }
  CHECK_EQ(ParameterCount(shape), num_parameters());
  return shape;
}

std::optional<MlpShape> ActorCritic::KernelShape() const {
  const LeafSpec& seen = spaces_.observation[plan_.leaf[0].leaf];
  if (!device().is_cpu() || seen.stack > 1) return std::nullopt;
  std::optional<MlpShape> shape = Shape();
  if (shape.has_value()) shape->bfloat16 = bf16_mlp_;
  return shape;
}

std::unique_ptr<Network> ActorCritic::Clone() const {
  std::unique_ptr<ActorCritic> copy(new ActorCritic);
  copy->spaces_ = spaces_;
  copy->config_ = config_;
  copy->plan_ = plan_;
  copy->bf16_ = bf16_;
  copy->bf16_mlp_ = bf16_mlp_;
  copy->Build(device());
  torch::NoGradGuard no_grad;
  copy->parameters().copy_(parameters());
  return copy;
}

}  // namespace flotilla
