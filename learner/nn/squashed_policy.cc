#include "learner/nn/squashed_policy.h"

#include <algorithm>
#include <array>

#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/nn/frozen_policy.h"
#include "learner/rollout/batch.h"

namespace flotilla {

void SquashedPolicy::Decide(const Observations& seen, bool greedy, Draws* draws,
                            const DecisionOutput& out) {
  torch::NoGradGuard no_grad;
  std::fill_n(out.log_prob, seen.rows, 0.0f);
  std::fill_n(out.value, seen.rows, 0.0f);
  torch::Tensor stream, action;
  if (!greedy) {
    const std::array<int64_t, 2> taken = draws->Take(seen.rows * noise_size());
    stream = torch::tensor(at::IntArrayRef(taken));
  }
  if (uniform_ && !greedy) {
    action = on_host_.Anything(seen.rows, stream);
  } else {
    const SacActor::Output output =
        actor_->Forward(Borrow(seen, actor_->spaces()).To(actor_->device()));
    // One transfer for both.
    const torch::Tensor both =
        ToHost(torch::stack({output.mean, output.log_std}));
    action = on_host_.Sample(both[0], both[1], stream);
  }
  std::copy_n(Host<float>(action), action.numel(), out.continuous);
}

ResidentPolicy::Decision SquashedPolicy::Decide(const Batch& seen,
                                                const torch::Tensor&,
                                                const Chance& chance) const {
  torch::NoGradGuard no_grad;
  Decision decision;
  decision.value = torch::zeros({seen.size()}, actor_->device());
  if (!chance.stream.defined()) return decision;
  decision.log_prob = decision.value;
  if (uniform_) {
    decision.action.continuous = gaussian_.Anything(seen.size(), chance.stream);
    return decision;
  }
  const SacActor::Output output = actor_->Forward(seen);
  decision.action.continuous =
      gaussian_.Sample(output.mean, output.log_std, chance.stream);
  return decision;
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
