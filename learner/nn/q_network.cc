#include "learner/nn/q_network.h"

#include <cmath>

#include "learner/nn/vector_math.h"
#include "services/base/status_macros.h"

namespace flotilla {

absl::StatusOr<QNetwork> QNetwork::Make(const Spaces& spaces,
                                        const v1::ModelConfig& config,
                                        bool dueling, torch::Device device) {
  if (spaces.continuous) {
    return absl::InvalidArgumentError(
        "dqn needs discrete actions, and this environment's are continuous; "
        "choose ppo");
  }
  SettleVectorMath();
  RETURN_IF_ERROR(CheckEncoder(spaces, config));
  QNetwork net;
  net.spaces_ = spaces;
  net.config_ = config;
  net.dueling_ = dueling;
  net.Build(device);
  return net;
}

void QNetwork::Build(torch::Device device) {
  const int64_t H = HiddenWidths(config_, spaces_.frames).back();
  const int64_t A = spaces_.actions;
  const std::vector<LayerSpec> encoder =
      PlanEncoder("encoder", spaces_, config_);
  const std::vector<LayerSpec> advantage =
      PlanMlp(dueling_ ? "advantage" : "q", H, {H, A});
  std::vector<LayerSpec> value;
  if (dueling_) value = PlanMlp("value", H, {H, 1});
  flat_ = FlatParameters(CountParameters(encoder) + CountParameters(advantage) +
                             CountParameters(value),
                         device);
  encoder_ = MakeLayers(encoder, &flat_);
  advantage_ = MakeLayers(advantage, &flat_);
  value_ = MakeLayers(value, &flat_);
}

void QNetwork::Initialize(uint64_t seed) {
  torch::NoGradGuard no_grad;
  // On the CPU whatever the device, so that all ranks draw the same numbers.
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  for (auto* layers : {&encoder_, &advantage_, &value_}) {
    for (Layer& layer : *layers) {
      const double bound =
          1 / std::sqrt(static_cast<double>(layer.weight[0].numel()));
      for (torch::Tensor* p : {&layer.weight, &layer.bias}) {
        p->copy_(torch::empty(p->sizes()).uniform_(-bound, bound, generator));
      }
    }
  }
}

torch::Tensor QNetwork::Forward(const torch::Tensor& observation) const {
  ForwardOptions options;
  options.relu = spaces_.frames || config_.activation() == v1::RELU;
  options.activate_last = !spaces_.frames;
  options.residual = config_.encoder() == v1::RESNET;
  options.bf16 = bf16_ && spaces_.frames;
  const torch::Tensor features =
      flotilla::Forward(encoder_, observation, options);
  options = {.relu = true, .activate_last = false};
  const torch::Tensor advantage =
      flotilla::Forward(advantage_, features, options);
  if (!dueling_) return advantage;
  const torch::Tensor value = flotilla::Forward(value_, features, options);
  return advantage - advantage.mean(1, /*keepdim=*/true) + value;
}

QNetwork QNetwork::Clone() const {
  QNetwork copy;
  copy.spaces_ = spaces_;
  copy.config_ = config_;
  copy.dueling_ = dueling_;
  copy.bf16_ = bf16_;
  copy.Build(device());
  copy.flat_.parameters.copy_(flat_.parameters);
  return copy;
}

}  // namespace flotilla
