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
// those that the mask allows. Decide always draws one number a row and one more
// for each choice of a random action.
//
// Nothing reads a Q-learner's log-probabilities and values: zeros.
class QPolicy : public Policy, public ResidentPolicy {
 public:
  // Reads `net`'s weights as they are at each call. Borrowed.
  explicit QPolicy(const QNetwork* net);

  void set_epsilon(double epsilon) { epsilon_ = epsilon; }
  double epsilon() const { return epsilon_; }

  void Decide(const Observations& seen, bool greedy, Random* rng,
              const DecisionOutput& out) override;
  void Value(const Observations& seen, float* value) override;

  const ResidentPolicy* resident() const override {
    return net_->device().is_cpu() ? nullptr : this;
  }
  int64_t noise_size() const override {
    return 1 + net_->spaces().action.choices();
  }
  void DrawNoise(int64_t rows, Random* rng, double* noise) const override;
  // In bfloat16 what Settle made comes and goes.
  std::vector<torch::Tensor> memory() const override {
    if (net_->bf16()) return {};
    return {net_->Flat().parameters};
  }
  Decision Decide(const Batch& seen, const torch::Tensor& state,
                  const torch::Tensor& noise) const override;

 private:
  // Q [N, L], valid until the next call.
  const float* Values(const Observations& seen);

  const QNetwork* const net_;
  std::optional<MlpQ> kernels_;
  std::vector<float> values_;     // by kernels
  torch::Tensor values_on_host_;  // by Torch
  double epsilon_ = 0;
};

// The same with a copy of `net` of its own: frozen.
std::unique_ptr<Policy> MakeFrozenQPolicy(const QNetwork& net, double epsilon);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_Q_POLICY_H_
