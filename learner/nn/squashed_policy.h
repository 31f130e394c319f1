#ifndef FLOTILLA_LEARNER_NN_SQUASHED_POLICY_H_
#define FLOTILLA_LEARNER_NN_SQUASHED_POLICY_H_

#include <memory>

#include "learner/nn/policy.h"
#include "learner/nn/resident_policy.h"
#include "learner/nn/sac_networks.h"
#include "learner/nn/squashed_gaussian.h"

namespace flotilla {

// Draws from an actor's squashed Gaussian, or, while `uniform`, anything within the
// bounds alike; greedy actions are those of the means either way.
//
// Nothing reads an off-policy learner's log-probabilities and values: zeros.
class SquashedPolicy : public Policy, public ResidentPolicy {
 public:
  // Reads `actor`'s weights as they are at each call. Borrowed.
  SquashedPolicy(const SacActor* actor, const SquashedGaussian& gaussian)
      : actor_(actor),
        gaussian_(gaussian),
        on_host_(gaussian.On(torch::kCPU)) {}

  void set_uniform(bool uniform) { uniform_ = uniform; }
  bool uniform() const { return uniform_; }

  void Decide(const Observations& seen, bool greedy, Draws* draws,
              const DecisionOutput& out) override;
  void Value(const Observations& seen, float* value) override;

  const ResidentPolicy* resident() const override {
    return actor_->device().is_cpu() ? nullptr : this;
  }
  int64_t noise_size() const override { return gaussian_.values(); }
  std::vector<torch::Tensor> memory() const override {
    if (uniform_) return {};
    return {actor_->Flat().parameters, gaussian_.low(), gaussian_.high()};
  }
  Decision Decide(const Batch& seen, const torch::Tensor& state,
                  const Chance& chance) const override;

 private:
  const SacActor* const actor_;
  const SquashedGaussian gaussian_;
  const SquashedGaussian on_host_;
  bool uniform_ = false;
};

// The same with a copy of `actor` of its own: frozen.
std::unique_ptr<Policy> MakeFrozenSquashedPolicy(
    const SacActor& actor, const SquashedGaussian& gaussian, bool uniform);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_SQUASHED_POLICY_H_
