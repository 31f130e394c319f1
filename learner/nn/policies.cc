#include "learner/nn/policies.h"

#include <utility>
#include <vector>

#include "learner/kernels/mlp_actor_critic.h"
#include "learner/nn/input_tensor.h"
#include "learner/nn/mlp_shape_of.h"
#include "learner/nn/sampling.h"

namespace flotilla {
namespace {

class KernelPolicy : public NetworkPolicy {
 public:
  KernelPolicy(const ActorCritic* net, const MlpShape& shape)
      : net_(net), mlp_(shape) {
    Refresh();
  }

  void Refresh() override {
    mlp_.SetParameters(net_->parameters().data_ptr<float>());
  }

  void Decide(const Observations& seen, bool greedy, Random* rng,
              const DecisionOutput& out) override {
    if (mlp_.shape().continuous) {
      Draw(greedy, seen.rows * mlp_.shape().actions,
           [rng] { return static_cast<float>(rng->Normal()); });
      mlp_.DecideContinuous(seen.vector, seen.rows, Noise(greedy),
                            out.continuous, out.log_prob, out.value);
    } else {
      // [0, 1) in float32: 24 bits, so that rounding cannot give 1.
      Draw(greedy, seen.rows,
           [rng] { return static_cast<float>(rng->Next() >> 40) * 0x1p-24f; });
      mlp_.DecideDiscrete(seen.vector, seen.rows, Noise(greedy), out.discrete,
                          out.log_prob, out.value);
    }
  }

  void Value(const Observations& seen, float* value) override {
    mlp_.Forward(seen.vector, seen.rows, nullptr, value);
  }

 private:
  template <typename Generator>
  void Draw(bool greedy, int64_t count, Generator next) {
    if (greedy) return;
    noise_.resize(count);
    for (float& x : noise_) x = next();
  }
  const float* Noise(bool greedy) const {
    return greedy ? nullptr : noise_.data();
  }

  const ActorCritic* const net_;
  MlpActorCritic mlp_;
  std::vector<float> noise_;
};

class TorchPolicy : public NetworkPolicy {
 public:
  explicit TorchPolicy(const ActorCritic* net) : net_(net) {}

  void Refresh() override {}

  void Decide(const Observations& seen, bool greedy, Random* rng,
              const DecisionOutput& out) override {
    torch::NoGradGuard no_grad;
    const ActorCriticOutput result = Run(seen);
    const torch::Tensor policy = result.policy.to(torch::kCPU).contiguous();
    Copy(result.value, out.value);
    if (net_->recurrent()) Copy(result.state, out.state);
    const int64_t A = net_->spaces().actions;
    if (net_->spaces().continuous) {
      const torch::Tensor log_std = net_->log_std().detach().to(torch::kCPU);
      SampleGaussian(policy.data_ptr<float>(), log_std.data_ptr<float>(),
                     seen.rows, A, greedy, rng, out.continuous, out.log_prob);
    } else {
      SampleCategorical(policy.data_ptr<float>(), seen.rows, A, greedy, rng,
                        out.discrete, out.log_prob);
    }
  }

  void Value(const Observations& seen, float* value) override {
    torch::NoGradGuard no_grad;
    Copy(Run(seen).value, value);
  }

  int64_t state_size() const override { return net_->state_size(); }

 private:
  ActorCriticOutput Run(const Observations& seen) const {
    Sequences step;
    if (net_->recurrent()) {
      step.state = torch::from_blob(const_cast<float*>(seen.state),
                                    {seen.rows, net_->state_size()})
                       .to(net_->device());
      step.keep = torch::ones({1, seen.rows, 1}, net_->device());
    }
    return net_->Forward(Input(seen), step);
  }

  torch::Tensor Input(const Observations& seen) const {
    return ToTensor(seen, net_->spaces(), net_->device());
  }

  static void Copy(const torch::Tensor& from, float* to) {
    const torch::Tensor host = from.to(torch::kCPU).contiguous();
    std::copy_n(host.data_ptr<float>(), host.numel(), to);
  }

  const ActorCritic* const net_;
};

class FrozenPolicy : public Policy {
 public:
  explicit FrozenPolicy(ActorCritic net)
      : net_(std::move(net)), policy_(MakeNetworkPolicy(&net_)) {}

  void Decide(const Observations& seen, bool greedy, Random* rng,
              const DecisionOutput& out) override {
    policy_->Decide(seen, greedy, rng, out);
  }
  void Value(const Observations& seen, float* value) override {
    policy_->Value(seen, value);
  }
  int64_t state_size() const override { return policy_->state_size(); }

 private:
  const ActorCritic net_;
  const std::unique_ptr<NetworkPolicy> policy_;
};

}  // namespace

std::unique_ptr<NetworkPolicy> MakeNetworkPolicy(const ActorCritic* net) {
  if (const auto shape = MlpShapeOf(*net)) {
    return std::make_unique<KernelPolicy>(net, *shape);
  }
  return std::make_unique<TorchPolicy>(net);
}

std::unique_ptr<Policy> MakeFrozenPolicy(const ActorCritic& net) {
  return std::make_unique<FrozenPolicy>(net.Clone());
}

}  // namespace flotilla
