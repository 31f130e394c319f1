#include "learner/nn/squashed_policy.h"

#include <algorithm>

#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/nn/frozen_policy.h"
#include "learner/rollout/batch.h"

namespace flotilla {
void SquashedPolicy::Decide(const Observations& seen, bool greedy, Random* rng,
                            const DecisionOutput& out) {
  std::fill_n(out.log_prob, seen.rows, 0.0f);
  std::fill_n(out.value, seen.rows, 0.0f);
  if (uniform_ && !greedy) {
    gaussian_.SampleUniformly(seen.rows, rng, out.continuous);
    return;
  }
  torch::NoGradGuard no_grad;
  const SacActor::Output output =
      actor_->Forward(Borrow(seen, actor_->spaces()).To(actor_->device()));
  // One transfer for both.
  const torch::Tensor both =
      ToHost(torch::stack({output.mean, output.log_std}));
  const float* mean = Host<float>(both);
  gaussian_.Sample(mean, mean + seen.rows * gaussian_.values(), seen.rows,
                   greedy ? nullptr : rng, out.continuous);
}

void SquashedPolicy::Value(const Observations& seen, float* value) {
  std::fill_n(value, seen.rows, 0.0f);
}

std::unique_ptr<Policy> MakeFrozenSquashedPolicy(
    const SacActor& actor, const SquashedGaussian& gaussian, bool uniform) {
  return std::make_unique<FrozenPolicy<SacActor, SquashedPolicy>>(
      actor.Clone(), [&](const SacActor* copy) {
        SquashedPolicy policy(copy, gaussian);
        policy.set_uniform(uniform);
        return policy;
      });
}

}  // namespace flotilla
