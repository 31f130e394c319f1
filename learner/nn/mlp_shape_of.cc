#include "learner/nn/mlp_shape_of.h"

namespace flotilla {

std::optional<MlpShape> MlpShapeOf(const ActorCritic& net) {
  if (net.spaces().frames || net.recurrent() || !net.device().is_cpu()) {
    return std::nullopt;
  }
  const v1::ModelConfig& config = net.config();
  MlpShape shape;
  shape.observations = net.spaces().features;
  shape.hidden.assign(config.hidden().begin(), config.hidden().end());
  if (shape.hidden.empty()) shape.hidden = {64, 64};
  shape.activation =
      config.activation() == v1::RELU ? Activation::kRelu : Activation::kTanh;
  shape.share_trunk = config.share_trunk();
  shape.actions = net.spaces().actions;
  shape.continuous = net.spaces().continuous;
  CHECK_EQ(ParameterCount(shape), net.num_parameters());
  return shape;
}

}  // namespace flotilla
