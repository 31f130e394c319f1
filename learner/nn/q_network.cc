#include "learner/nn/q_network.h"

#include <string>

#include "learner/nn/convolution.h"
#include "learner/nn/initialize.h"
#include "learner/nn/linear.h"
#include "learner/nn/vector_math.h"
#include "services/algorithms/algorithm_traits.h"
#include "services/base/status_macros.h"

namespace flotilla {

absl::StatusOr<QNetwork> QNetwork::Make(const Spaces& spaces,
                                        const v1::ModelConfig& config,
                                        bool dueling, torch::Device device) {
  const std::string problem =
      ActionsProblem(*FindAlgorithm("dqn"), spaces.action.choices() > 0,
                     spaces.action.low, spaces.action.high);
  if (!problem.empty()) return absl::InvalidArgumentError(problem);
  SettleVectorMath();
  QNetwork net;
  ASSIGN_OR_RETURN(net.plan_, PlanEncoders(spaces, config));
  net.spaces_ = spaces;
  net.config_ = config;
  net.dueling_ = dueling;
  net.Build(device);
  return net;
}

void QNetwork::Build(torch::Device device) {
  encoder_ =
      ObservationEncoder("encoder", spaces_, plan_, config_.activation());
  const int64_t H = encoder_.features();
  const std::vector<LayerSpec> advantage =
      PlanMlp(dueling_ ? "advantage" : "q", H, {H, spaces_.action.logits()});
  std::vector<LayerSpec> value;
  if (dueling_) value = PlanMlp("value", H, {H, 1});
  flat_ =
      FlatParameters(encoder_.CountParameters() + CountParameters(advantage) +
                         CountParameters(value),
                     device);
  encoder_.Take(&flat_);
  encoder_leaves_ = flat_.leaf.size();
  advantage_ = MakeLayers(advantage, &flat_);
  value_ = MakeLayers(value, &flat_);
}

void QNetwork::Initialize(uint64_t seed) {
  std::vector<Layer*> layers = encoder_.layers();
  for (auto* head : {&advantage_, &value_}) {
    for (Layer& layer : *head) layers.push_back(&layer);
  }
  InitializeUniformly(layers, seed);
}

torch::Tensor QNetwork::Forward(const Batch& observation,
                                int64_t learned) const {
  const bool image =
      spaces_.observation[plan_.leaf[0].leaf].kind == LeafKind::kImage;
  const torch::Tensor features =
      encoder_.Forward(observation, bf16_, /*activate_last=*/!image, learned);
  const ForwardOptions options = {.relu = true, .activate_last = false};
  const torch::Tensor advantage =
      flotilla::Forward(advantage_, features, options);
  if (!dueling_) return advantage;
  const torch::Tensor value = flotilla::Forward(value_, features, options);
  const auto q = [&](const torch::Tensor& a) {
    return a - a.mean(1, /*keepdim=*/true) + value;
  };
  const std::vector<int64_t>& choices = spaces_.action.num_values;
  if (choices.size() == 1) return q(advantage);
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& a : advantage.split_with_sizes(choices, 1)) {
    all.push_back(q(a));
  }
  return torch::cat(all, 1);
}

std::optional<MlpShape> QNetwork::KernelShape() const {
  const LeafEncoder& first = plan_.leaf[0];
  const LeafSpec& seen = spaces_.observation[first.leaf];
  if (plan_.merged() || seen.kind != LeafKind::kVector || seen.stack > 1 ||
      spaces_.action.choices() != 1 || config_.activation() != v1::RELU ||
      !device().is_cpu()) {
    return std::nullopt;
  }
  MlpShape shape;
  shape.observations = static_cast<int>(seen.elements());
  shape.hidden.assign(first.hidden.begin(), first.hidden.end());
  shape.activation = Activation::kRelu;
  shape.actions = static_cast<int>(spaces_.action.logits());
  shape.output = dueling_ ? MlpOutput::kDuelingQ : MlpOutput::kQ;
  CHECK_EQ(ParameterCount(shape), flat_.size());
  return shape;
}

std::optional<QNetwork::Widest> QNetwork::WidestWeight() const {
  const LeafKind kind = spaces_.observation[plan_.leaf[0].leaf].kind;
  if (plan_.merged() || kind != LeafKind::kImage) return std::nullopt;
  const Widest last = {.leaf = encoder_leaves_ - 2,  // its bias is behind it
                       .dtype = bf16_ ? torch::kBFloat16 : torch::kFloat32};
  if (!IsLinearByKernel(flat_.leaf[last.leaf], last.dtype)) return std::nullopt;
  return last;
}

bool QNetwork::LearnsFromSome() const {
  const std::optional<Widest> widest = WidestWeight();
  if (!widest.has_value() || plan_.leaf[0].encoder != v1::NATURE_CNN) {
    return false;
  }
  for (size_t i = 0; i < widest->leaf; ++i) {
    const torch::Tensor& leaf = flat_.leaf[i];
    if (leaf.dim() == 4 && !IsConvolutionByKernel(leaf, widest->dtype)) {
      return false;
    }
  }
  return true;
}

QNetwork QNetwork::Clone() const {
  QNetwork copy;
  copy.spaces_ = spaces_;
  copy.config_ = config_;
  copy.plan_ = plan_;
  copy.dueling_ = dueling_;
  copy.bf16_ = bf16_;
  copy.Build(device());
  torch::NoGradGuard no_grad;
  copy.flat_.parameters.copy_(flat_.parameters);
  return copy;
}

}  // namespace flotilla
