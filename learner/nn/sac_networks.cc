#include "learner/nn/sac_networks.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/kernels/sac_samples.h"
#include "learner/nn/initialize.h"
#include "learner/nn/vector_math.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr ForwardOptions kHead = {.activate_last = false};

std::vector<LayerSpec> PlanHead(const std::string& name, int64_t inputs,
                                int64_t outputs) {
  return {{name, {outputs, inputs}, 1.0}};
}

// `spaces` with the action as one more leaf that is seen.
Spaces WithAction(Spaces spaces) {
  LeafSpec action;
  action.path = "action";
  action.shape = {spaces.action.continuous};
  spaces.observation.push_back(action);
  return spaces;
}

// The plan for that, from the one for the observation alone.
EncoderPlan PlanWithAction(EncoderPlan plan, int action_leaf) {
  if (!plan.merged()) {
    LeafEncoder& alone = plan.leaf[0];
    if (alone.encoder == v1::MLP) {
      plan.trunk.swap(alone.hidden);
    } else {
      plan.trunk = {alone.hidden.back()};
    }
  }
  LeafEncoder as_it_is;
  as_it_is.leaf = action_leaf;
  plan.leaf.push_back(as_it_is);
  return plan;
}

// Of layers `hidden` on the one vector that is seen, without what is on top.
std::optional<MlpShape> ShapeOf(const Spaces& spaces, const EncoderPlan& plan,
                                const std::vector<int64_t>& hidden,
                                v1::Activation activation,
                                torch::Device device) {
  const LeafSpec& seen = spaces.observation[plan.leaf[0].leaf];
  if (!device.is_cpu() || seen.kind != LeafKind::kVector || seen.stack > 1 ||
      hidden.empty()) {
    return std::nullopt;
  }
  MlpShape shape;
  shape.observations = static_cast<int>(seen.elements());
  shape.hidden.assign(hidden.begin(), hidden.end());
  shape.activation =
      activation == v1::RELU ? Activation::kRelu : Activation::kTanh;
  return shape;
}

}  // namespace

absl::StatusOr<SacActor> SacActor::Make(const Spaces& spaces,
                                        const v1::ModelConfig& config,
                                        torch::Device device) {
  SettleVectorMath();
  SacActor net;
  ASSIGN_OR_RETURN(net.plan_, PlanEncoders(spaces, config));
  net.spaces_ = spaces;
  net.config_ = config;
  net.Build(device);
  return net;
}

void SacActor::Build(torch::Device device) {
  encoder_ = ObservationEncoder("actor", spaces_, plan_, config_.activation());
  const int64_t F = encoder_.features(), A = spaces_.action.continuous;
  const auto mean = PlanHead("actor_mean", F, A);
  const auto log_std = PlanHead("actor_logstd", F, A);
  flat_ = FlatParameters(encoder_.CountParameters() + CountParameters(mean) +
                             CountParameters(log_std),
                         device);
  encoder_.Take(&flat_);
  mean_ = MakeLayers(mean, &flat_);
  log_std_ = MakeLayers(log_std, &flat_);
}

void SacActor::Initialize(uint64_t seed) {
  std::vector<Layer*> layers = encoder_.layers();
  layers.push_back(&mean_[0]);
  layers.push_back(&log_std_[0]);
  InitializeUniformly(layers, seed);
}

SacActor::Output SacActor::Forward(const Batch& observation) const {
  const torch::Tensor features = encoder_.Forward(observation, bf16_);
  const torch::Tensor squashed =
      flotilla::Forward(log_std_, features, kHead).tanh();
  return {flotilla::Forward(mean_, features, kHead),
          kLeastLogStd + 0.5 * (kMostLogStd - kLeastLogStd) * (squashed + 1)};
}

std::optional<MlpShape> SacActor::KernelShape() const {
  if (plan_.merged()) return std::nullopt;
  std::optional<MlpShape> shape = ShapeOf(spaces_, plan_, plan_.leaf[0].hidden,
                                          config_.activation(), device());
  if (!shape.has_value()) return shape;
  shape->actions = static_cast<int>(spaces_.action.continuous);
  shape->output = MlpOutput::kSquashedGaussian;
  CHECK_EQ(ParameterCount(*shape), flat_.size());
  return shape;
}

SacActor SacActor::Clone() const {
  SacActor copy;
  copy.spaces_ = spaces_;
  copy.config_ = config_;
  copy.plan_ = plan_;
  copy.bf16_ = bf16_;
  copy.Build(device());
  torch::NoGradGuard no_grad;
  copy.flat_.parameters.copy_(flat_.parameters);
  return copy;
}

absl::StatusOr<TwinCritics> TwinCritics::Make(const Spaces& spaces,
                                              const v1::ModelConfig& config,
                                              torch::Device device) {
  SettleVectorMath();
  TwinCritics net;
  ASSIGN_OR_RETURN(EncoderPlan plan, PlanEncoders(spaces, config));
  net.spaces_ = WithAction(spaces);
  net.plan_ = PlanWithAction(std::move(plan),
                             static_cast<int>(spaces.observation.size()));
  net.config_ = config;
  net.Build(device);
  return net;
}

void TwinCritics::Build(torch::Device device) {
  std::array<std::vector<LayerSpec>, 2> head;
  int64_t total = 0;
  for (size_t i = 0; i < critic_.size(); ++i) {
    const std::string name = absl::StrCat("critic", i + 1);
    critic_[i].encoder =
        ObservationEncoder(name, spaces_, plan_, config_.activation());
    head[i] = PlanHead(name + "_q", critic_[i].encoder.features(), 1);
    total += critic_[i].encoder.CountParameters() + CountParameters(head[i]);
  }
  flat_ = FlatParameters(total, device);
  for (size_t i = 0; i < critic_.size(); ++i) {
    critic_[i].encoder.Take(&flat_);
    critic_[i].head = MakeLayers(head[i], &flat_);
  }
}

void TwinCritics::Initialize(uint64_t seed) {
  std::vector<Layer*> layers;
  for (Critic& critic : critic_) {
    for (Layer* layer : critic.encoder.layers()) layers.push_back(layer);
    layers.push_back(&critic.head[0]);
  }
  InitializeUniformly(layers, seed);
}

std::array<torch::Tensor, 2> TwinCritics::Forward(
    const Batch& observation, const torch::Tensor& action) const {
  Batch seen = observation;
  seen.leaf.push_back(action);
  std::array<torch::Tensor, 2> q;
  for (size_t i = 0; i < critic_.size(); ++i) {
    q[i] = flotilla::Forward(critic_[i].head,
                             critic_[i].encoder.Forward(seen, bf16_), kHead)
               .squeeze(1);
  }
  return q;
}

std::optional<MlpShape> TwinCritics::KernelShape() const {
  // A vector's layers are behind it and the action: see PlanWithAction.
  if (plan_.leaf.size() != 2) return std::nullopt;
  std::optional<MlpShape> shape = ShapeOf(spaces_, plan_, plan_.trunk,
                                          config_.activation(), flat_.device());
  if (!shape.has_value()) return shape;
  shape->observations += static_cast<int>(spaces_.action.continuous);
  shape->actions = 1;
  shape->output = MlpOutput::kTwinCritics;
  CHECK_EQ(ParameterCount(*shape), flat_.size());
  return shape;
}

TwinCritics TwinCritics::Clone() const {
  TwinCritics copy;
  copy.spaces_ = spaces_;
  copy.config_ = config_;
  copy.plan_ = plan_;
  copy.bf16_ = bf16_;
  copy.Build(flat_.device());
  torch::NoGradGuard no_grad;
  copy.flat_.parameters.copy_(flat_.parameters);
  return copy;
}

}  // namespace flotilla
