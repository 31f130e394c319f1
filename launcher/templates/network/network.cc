// A network for Flotilla: model.plugin. README.md says how to build and train it.
//
// It takes any observation that is one leaf of numbers, and any action. Change
// what it computes: everything else (acting, the gradient, averaging over
// learners, checkpoints, recovery) is done for you.

#include "learner/nn/network.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "learner/nn/network_plugin.h"

namespace {

using flotilla::Batch;
using flotilla::FlatParameters;
using flotilla::NetworkOutput;
using flotilla::Sequences;
using flotilla::Spaces;

// What computes, in Torch's own terms. Any torch::nn::Module will do.
struct Module : torch::nn::Module {
  Module(int64_t inputs, int64_t outputs, int64_t continuous) {
    trunk = register_module(
        "trunk",
        torch::nn::Sequential(torch::nn::Linear(inputs, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 64), torch::nn::Tanh()));
    policy = register_module("policy", torch::nn::Linear(64, outputs));
    value = register_module("value", torch::nn::Linear(64, 1));
    if (continuous > 0) {
      log_std = register_parameter("log_std", torch::zeros({continuous}));
    }
  }

  torch::nn::Sequential trunk{nullptr};
  torch::nn::Linear policy{nullptr}, value{nullptr};
  torch::Tensor log_std;  // [A]
};

class Network : public flotilla::Network {
 public:
  Network(const Spaces& spaces, torch::Device device)
      : spaces_(spaces),
        module_(spaces.observation[0].elements(), spaces.action.outputs(),
                spaces.action.continuous) {
    module_.to(device);
    std::vector<flotilla::NamedTensor> parameters;
    for (const auto& parameter : module_.named_parameters()) {
      parameters.push_back({parameter.key(), parameter.value()});
    }
    flat_ = FlatParameters::Adopt(parameters);
  }

  // The same weights on every rank: from the seed and nothing else.
  void Initialize(uint64_t seed) override {
    torch::NoGradGuard no_grad;
    torch::manual_seed(seed);
    for (const auto& module : module_.trunk->children()) {
      if (auto* linear = module->as<torch::nn::Linear>()) {
        torch::nn::init::orthogonal_(linear->weight, std::sqrt(2.0));
        linear->bias.zero_();
      }
    }
    torch::nn::init::orthogonal_(module_.policy->weight, 0.01);
    torch::nn::init::orthogonal_(module_.value->weight, 1.0);
    module_.policy->bias.zero_();
    module_.value->bias.zero_();
  }

  // observation.leaf[0] is [N, D] float32; a mask of actions, if there is one, is
  // applied behind the network.
  NetworkOutput Forward(const Batch& observation,
                        const Sequences&) const override {
    const torch::Tensor x = module_.trunk->forward(observation.leaf[0]);
    NetworkOutput out;
    out.policy = module_.policy->forward(x);           // [N, O]
    out.value = module_.value->forward(x).squeeze(1);  // [N]
    out.log_std = module_.log_std;                     // [A]
    return out;
  }

  const FlatParameters& Flat() const override { return flat_; }

  std::unique_ptr<flotilla::Network> Clone() const override {
    auto copy = std::make_unique<Network>(spaces_, device());
    torch::NoGradGuard no_grad;
    copy->parameters().copy_(parameters());
    return copy;
  }

 private:
  const Spaces spaces_;
  mutable Module module_;  // Torch's forward is not const
  FlatParameters flat_;    // of module_, in one buffer
};

absl::StatusOr<std::unique_ptr<flotilla::Network>> Make(
    const Spaces& spaces, const flotilla::v1::ModelConfig&,
    torch::Device device) {
  const std::vector<int> seen = spaces.encoded();
  if (seen.size() != 1 || seen[0] != 0 ||
      spaces.observation[0].kind != flotilla::LeafKind::kVector ||
      spaces.observation[0].stack != 1) {
    return absl::InvalidArgumentError(
        "it takes one vector, and this environment shows something else");
  }
  return std::unique_ptr<flotilla::Network>(new Network(spaces, device));
}

}  // namespace

FLOTILLA_NETWORK(Make);
