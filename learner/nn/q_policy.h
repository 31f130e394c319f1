#ifndef FLOTILLA_LEARNER_NN_Q_POLICY_H_
#define FLOTILLA_LEARNER_NN_Q_POLICY_H_

#include <memory>
#include <optional>
#include <vector>

#include "learner/kernels/mlp_q.h"
#include "learner/nn/policy.h"
#include "learner/nn/q_network.h"
#include "learner/nn/resident_policy.h"

namespace flotilla {

// Epsilon-greedy: each row for itself takes uniformly random actions with
// probability epsilon, else those of the largest Q (the first, if several are), of
// those that the mask allows. A row takes one place for whether it does, and one for
// each of its choices, used or not.
//
// Nothing reads a Q-learner's log-probabilities and values: zeros.
class QPolicy : public Policy, public ResidentPolicy {
 public:
  // `net` is borrowed. Whoever changes its weights calls Unsettle before the next
  // decision: until then they may be those of an earlier one.
  explicit QPolicy(const QNetwork* net);
  void Unsettle() { settled_ = false; }

  void set_epsilon(double epsilon) { epsilon_ = epsilon; }
  double epsilon() const { return epsilon_; }

  void Decide(const Observations& seen, bool greedy, Draws* draws,
              const DecisionOutput& out) override;
  void Value(const Observations& seen, float* value) override;

  const ResidentPolicy* resident() const override {
    return net_->device().is_cpu() ? nullptr : this;
  }
  int64_t noise_size() const override {
    return 1 + net_->spaces().action.choices();
  }
  double exploration() const override { return epsilon_; }
  // In bfloat16 what Settle made comes and goes.
  std::vector<torch::Tensor> memory() const override {
    if (net_->bf16()) return {};
    return {net_->Flat().parameters, first_there_};
  }
  Decision Decide(const Batch& seen, const torch::Tensor& state,
                  const Chance& chance) const override;

 private:
  // Q [N, L], valid until the next call.
  const float* Values(const Observations& seen);

  const QNetwork* const net_;
  const std::vector<int32_t> first_logit_;  // [K + 1]
  const torch::Tensor first_there_;         // the same on the network's device
  std::optional<MlpQ> kernels_;
  bool settled_ = false;          // kernels_ has the weights
  std::vector<float> values_;     // by kernels
  torch::Tensor values_on_host_;  // by Torch
  double epsilon_ = 0;
};

// The same with a copy of `net` of its own: frozen.
std::unique_ptr<Policy> MakeFrozenQPolicy(const QNetwork& net, double epsilon);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_Q_POLICY_H_
