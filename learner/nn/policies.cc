#include "learner/nn/policies.h"

#include <tuple>
#include <utility>
#include <vector>

#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/kernels/mlp_actor_critic.h"
#include "learner/nn/action_head.h"
#include "learner/nn/resident_policy.h"

namespace flotilla {
namespace {

class KernelPolicy : public NetworkPolicy {
 public:
  // `mask`: of the observation's leaves; below 0: none.
  KernelPolicy(const Network* net, const MlpShape& shape, int mask)
      : net_(net), mask_(mask), mlp_(shape) {
    Refresh();
  }

  void Refresh() override {
    mlp_.SetParameters(Host<float>(net_->parameters()));
  }

  void Decide(const Observations& seen, bool greedy, Draws* draws,
              const DecisionOutput& out) override {
    if (mlp_.shape().continuous) {
      Draw(greedy, seen.rows * mlp_.shape().actions,
           [draws] { return static_cast<float>(draws->Normal()); });
      mlp_.DecideContinuous(Vector(seen), seen.rows, Noise(greedy),
                            out.continuous, out.log_prob, out.value);
    } else {
      // [0, 1) in float32: 24 bits, so that rounding cannot give 1.
      Draw(greedy, seen.rows * mlp_.shape().choice_count(), [draws] {
        return static_cast<float>(draws->Bits() >> 40) * 0x1p-24f;
      });
      const void* mask = mask_ >= 0 ? seen.leaf[mask_] : nullptr;
      mlp_.DecideDiscrete(Vector(seen), static_cast<const uint8_t*>(mask),
                          seen.rows, Noise(greedy), out.discrete, out.log_prob,
                          out.value);
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
  const int mask_;
  MlpActorCritic mlp_;
  std::vector<float> noise_;
};

class TorchPolicy : public NetworkPolicy, public ResidentPolicy {
 public:
  // Of weights that are converted or packed it acts with a copy, unless `net` is
  // `settled`.
  TorchPolicy(const Network* net, const Spaces& spaces, bool settled)
      : net_(net),
        copy_(net->settles() && !settled ? net->Clone() : nullptr),
        stays_(!settled && net->recordable()),
        spaces_(spaces),
        head_(spaces.action, net->device()) {
    Refresh();
  }

  void Refresh() override {
    if (copy_ == nullptr) return;
    torch::NoGradGuard no_grad;
    copy_->parameters().copy_(net_->parameters());
    copy_->Settle();
  }

  void Decide(const Observations& seen, bool greedy, Draws* draws,
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
                 static_cast<const uint8_t*>(mask), seen.rows, greedy, draws,
                 out);
  }

  void Value(const Observations& seen, float* value) override {
    torch::NoGradGuard no_grad;
    Copy(ToHost(Run(seen).value), value);
  }

  int64_t state_size() const override { return net_->state_size(); }

  const ResidentPolicy* resident() const override {
    return net_->device().is_cpu() ? nullptr : this;
  }
  int64_t noise_size() const override {
    return spaces_.action.choices() + spaces_.action.continuous;
  }
  // One that is frozen lives for a rollout: what is recorded never comes again.
  std::vector<torch::Tensor> memory() const override {
    if (!stays_) return {};
    std::vector<torch::Tensor> all = Acting().settled();
    all.push_back(Acting().parameters());
    all.push_back(head_.memory());
    return all;
  }
  Decision Decide(const Batch& seen, const torch::Tensor& state,
                  const Chance& chance) const override {
    torch::NoGradGuard no_grad;
    Sequences step;
    if (net_->recurrent()) {
      step.state = state;
      step.keep = torch::ones({1, state.size(0), 1}, state.options());
    }
    const NetworkOutput result = Acting().Forward(seen, step);
    Decision decision;
    decision.value = result.value;
    if (!chance.stream.defined()) return decision;
    decision.state = result.state;
    const torch::Tensor mask =
        spaces_.mask >= 0 ? seen.leaf[spaces_.mask] : torch::Tensor();
    std::tie(decision.action, decision.log_prob) = head_.SampleOnDevice(
        result.policy, result.log_std, mask, chance.stream);
    return decision;
  }

 private:
  NetworkOutput Run(const Observations& seen) const {
    Sequences step;
    if (net_->recurrent()) {
      step.state = ToDevice(torch::from_blob(const_cast<float*>(seen.state),
                                             {seen.rows, net_->state_size()}),
                            net_->device());
      step.keep = torch::ones({1, seen.rows, 1}, net_->device());
    }
    return Acting().Forward(Borrow(seen, spaces_).To(net_->device()), step);
  }

  const Network& Acting() const { return copy_ == nullptr ? *net_ : *copy_; }

  static void Copy(const torch::Tensor& host, float* to) {
    std::copy_n(Host<float>(host), host.numel(), to);
  }

  const Network* const net_;
  const std::unique_ptr<Network> copy_;
  const bool stays_;
  const Spaces spaces_;
  const ActionHead head_;
};

std::unique_ptr<NetworkPolicy> Make(const Network* net, const Spaces& spaces,
                                    bool settled) {
  if (const auto shape = net->KernelShape()) {
    return std::make_unique<KernelPolicy>(net, *shape, spaces.mask);
  }
  return std::make_unique<TorchPolicy>(net, spaces, settled);
}

class FrozenActorCritic : public Policy {
 public:
  FrozenActorCritic(std::unique_ptr<Network> net, const Spaces& spaces)
      : net_(std::move(net)),
        policy_(Make(net_.get(), spaces, /*settled=*/true)) {
    net_->Settle();
  }

  void Decide(const Observations& seen, bool greedy, Draws* draws,
              const DecisionOutput& out) override {
    policy_->Decide(seen, greedy, draws, out);
  }
  void Value(const Observations& seen, float* value) override {
    policy_->Value(seen, value);
  }
  int64_t state_size() const override { return policy_->state_size(); }
  const ResidentPolicy* resident() const override {
    return policy_->resident();
  }

 private:
  const std::unique_ptr<Network> net_;
  const std::unique_ptr<NetworkPolicy> policy_;
};

}  // namespace

std::unique_ptr<NetworkPolicy> MakeNetworkPolicy(const Network* net,
                                                 const Spaces& spaces) {
  return Make(net, spaces, /*settled=*/false);
}

std::unique_ptr<Policy> MakeFrozenPolicy(const Network& net,
                                         const Spaces& spaces) {
  return std::make_unique<FrozenActorCritic>(net.Clone(), spaces);
}

}  // namespace flotilla
