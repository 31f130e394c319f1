// A network whose parameters are made on whatever device there is: what
// torch::nn::Module::to, which cannot leave the CPU for every device, is not needed
// for.

#include <memory>

#include "learner/nn/network.h"
#include "learner/nn/network_plugin.h"

namespace {

using namespace flotilla;

constexpr int64_t kWidth = 32;

class Taken : public Network {
 public:
  Taken(int64_t inputs, int64_t outputs, torch::Device device)
      : inputs_(inputs),
        outputs_(outputs),
        flat_(kWidth * (inputs + outputs + 1), device) {
    hidden_ = flat_.Take("hidden", {kWidth, inputs});
    policy_ = flat_.Take("policy", {outputs, kWidth});
    value_ = flat_.Take("value", {1, kWidth});
  }

  // Drawn on the host: the same on every device.
  void Initialize(uint64_t seed) override {
    torch::NoGradGuard no_grad;
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(seed);
    const torch::Tensor drawn =
        torch::randn({flat_.size()}, generator, torch::kFloat32) * 0.2;
    flat_.parameters.copy_(drawn);
  }

  NetworkOutput Forward(const Batch& observation,
                        const Sequences&) const override {
    const torch::Tensor x =
        torch::tanh(torch::linear(observation.leaf[0], hidden_));
    NetworkOutput out;
    out.policy = torch::linear(x, policy_);
    out.value = torch::linear(x, value_).squeeze(1);
    return out;
  }

  const FlatParameters& Flat() const override { return flat_; }

  std::unique_ptr<Network> Clone() const override {
    auto copy = std::make_unique<Taken>(inputs_, outputs_, device());
    torch::NoGradGuard no_grad;
    copy->parameters().copy_(parameters());
    return copy;
  }

 private:
  const int64_t inputs_, outputs_;
  FlatParameters flat_;
  torch::Tensor hidden_, policy_, value_;
};

absl::StatusOr<std::unique_ptr<Network>> Make(const Spaces& spaces,
                                              const v1::ModelConfig&,
                                              torch::Device device) {
  return std::unique_ptr<Network>(new Taken(spaces.observation[0].elements(),
                                            spaces.action.outputs(), device));
}

}  // namespace

FLOTILLA_NETWORK(Make);
