#include "learner/nn/actor_critic.h"
#include "learner/nn/network.h"
#include "learner/nn/network_plugin.h"
#include "learner/nn/torchscript_network.h"

namespace flotilla {

absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(
    const Spaces& spaces, const v1::ModelConfig& config, torch::Device device) {
  if (!config.torchscript().empty()) {
    return TorchScriptNetwork::Make(spaces, config, device);
  }
  if (!config.plugin().empty()) {
    return MakePluginNetwork(spaces, config, device);
  }
  return ActorCritic::Make(spaces, config, device);
}

}  // namespace flotilla
