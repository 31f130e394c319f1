#include "learner/nn/policies.h"

#include <utility>
#include <vector>

#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/kernels/mlp_actor_critic.h"
#include "learner/nn/action_head.h"

namespace flotilla {
namespace {

class KernelPolicy : public NetworkPolicy {
 public:
  KernelPolicy(const Network* net, const MlpShape& shape)
      : net_(net), mlp_(shape) {
    Refresh();
  }

  void Refresh() override {
    mlp_.SetParameters(Host<float>(net_->parameters()));
  }

  void Decide(const Observations& seen, bool greedy, Random* rng,
              const DecisionOutput& out) override {
    if (mlp_.shape().continuous) {
      Draw(greedy, seen.rows * mlp_.shape().actions,
           [rng] { return static_cast<float>(rng->Normal()); });
      mlp_.DecideContinuous(Vector(seen), seen.rows, Noise(greedy),
                            out.continuous, out.log_prob, out.value);
    } else {
      // [0, 1) in float32: 24 bits, so that rounding cannot give 1.
      Draw(greedy, seen.rows,
           [rng] { return static_cast<float>(rng->Next() >> 40) * 0x1p-24f; });
      mlp_.DecideDiscrete(Vector(seen), seen.rows, Noise(greedy), out.discrete,
                          out.log_prob, out.value);
    }
  }

  void Value(const Observations& seen, float* value) override {
    mlp_.Forward(Vector(seen), seen.rows, nullptr, value);
  }

 private:
  static const float* Vector(const Observations& seen) {
    return static_cast<const float*>(seen.leaf[0]);
  }
  template <typename Generator>
  void Draw(bool greedy, int64_t count, Generator next) {
    if (greedy) return;
    noise_.resize(count);
    for (float& x : noise_) x = next();
  }
  const float* Noise(bool greedy) const {
    return greedy ? nullptr : noise_.data();
  }

  const Network* const net_;
  MlpActorCritic mlp_;
  std::vector<float> noise_;
};

class TorchPolicy : public NetworkPolicy {
 public:
  TorchPolicy(const Network* net, const Spaces& spaces)
      : net_(net), spaces_(spaces), head_(spaces.action) {}

  void Refresh() override {}

  void Decide(const Observations& seen, bool greedy, Random* rng,
              const DecisionOutput& out) override {
    torch::NoGradGuard no_grad;
    NetworkOutput result = Run(seen);
    torch::Tensor& log_std = result.log_std;
    ToHost({&result.policy, &result.value, &result.state, &log_std});
    Copy(result.value, out.value);
    if (net_->recurrent()) Copy(result.state, out.state);
    const void* mask = spaces_.mask >= 0 ? seen.leaf[spaces_.mask] : nullptr;
    head_.Sample(Host<float>(result.policy),
                 log_std.defined() ? Host<float>(log_std) : nullptr,
                 /*per_row=*/log_std.defined() && log_std.dim() > 1,
                 static_cast<const uint8_t*>(mask), seen.rows, greedy, rng,
                 out);
  }

  void Value(const Observations& seen, float* value) override {
    torch::NoGradGuard no_grad;
    Copy(ToHost(Run(seen).value), value);
  }

  int64_t state_size() const override { return net_->state_size(); }

 private:
  NetworkOutput Run(const Observations& seen) const {
    Sequences step;
    if (net_->recurrent()) {
      step.state = ToDevice(torch::from_blob(const_cast<float*>(seen.state),
                                             {seen.rows, net_->state_size()}),
                            net_->device());
      step.keep = torch::ones({1, seen.rows, 1}, net_->device());
    }
    return net_->Forward(Borrow(seen, spaces_).To(net_->device()), step);
  }

  static void Copy(const torch::Tensor& host, float* to) {
    std::copy_n(Host<float>(host), host.numel(), to);
  }

  const Network* const net_;
  const Spaces spaces_;
  const ActionHead head_;
};

class FrozenPolicy : public Policy {
 public:
  FrozenPolicy(std::unique_ptr<Network> net, const Spaces& spaces)
      : net_(std::move(net)), policy_(MakeNetworkPolicy(net_.get(), spaces)) {}

  void Decide(const Observations& seen, bool greedy, Random* rng,
              const DecisionOutput& out) override {
    policy_->Decide(seen, greedy, rng, out);
  }
  void Value(const Observations& seen, float* value) override {
    policy_->Value(seen, value);
  }
  int64_t state_size() const override { return policy_->state_size(); }

 private:
  const std::unique_ptr<Network> net_;
  const std::unique_ptr<NetworkPolicy> policy_;
};

}  // namespace

std::unique_ptr<NetworkPolicy> MakeNetworkPolicy(const Network* net,
                                                 const Spaces& spaces) {
  if (const auto shape = net->KernelShape()) {
    return std::make_unique<KernelPolicy>(net, *shape);
  }
  return std::make_unique<TorchPolicy>(net, spaces);
}

std::unique_ptr<Policy> MakeFrozenPolicy(const Network& net,
                                         const Spaces& spaces) {
  return std::make_unique<FrozenPolicy>(net.Clone(), spaces);
}

}  // namespace flotilla
