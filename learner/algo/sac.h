#ifndef FLOTILLA_LEARNER_ALGO_SAC_H_
#define FLOTILLA_LEARNER_ALGO_SAC_H_

#include <memory>

#include "learner/algo/algorithm.h"

namespace flotilla {

// Soft actor-critic (Haarnoja et al. 2018, with a learned temperature) for
// continuous actions with finite bounds, on the plan of CleanRL's
// sac_continuous_action.py:
//
//   1. actions are uniform within their bounds until learning_starts global
//      steps are done, then drawn from a squashed Gaussian
//   2. each rank keeps a replay of its own; a time limit bootstraps from the
//      final observation
//   3. updates_per_rollout gradient steps a rollout on every rank alike: unset,
//      one for each environment step that one learner takes
//   4. a gradient step is, on one batch: both critics towards the soft target
//      of the target critics, the policy up the smaller of the new Qs, the
//      temperature towards target_entropy (by the entropy of the policy's same
//      sample, while CleanRL draws another), target critics by tau towards the
//      critics. Each of the three has an all-reduce, a clip and an optimizer of
//      its own; the temperature learns at the critics' rate, as CleanRL's
//   5. the means are over the samples of the ranks that contribute; a rank
//      whose replay is short of its share of learning_starts, or of one batch,
//      contributes none
//
// On a CPU, networks of one vector learn by hand-written kernels (SacKernels).
//
// Other than in CleanRL the policy takes one step each time instead of two every
// second time, and the correction for tanh has no 1e-6 in it.
//
// Weights are the policy's; critics, their targets, the temperature and all
// moments are State.
//
// Metrics: losses/critic_loss (the sum of both critics') and losses/policy_loss
// (of all ranks), losses/temperature, losses/entropy and losses/q_values (this
// rank's part: the mean over ranks is that of all samples), losses/grad_norm (the
// critics'), charts/learning_rate (the policy's), replay/size; of one all-reduce
// sync/all_reduce_ms, of the whole update sync/bytes. Losses are 0 until there
// is one.
//
// Measured on two cores, environment steps until an evaluation of 100
// episodes reached -200, seeds 1 to 3 (`flotilla train pendulum_sac
// --nproc-per-node N --set seed=S --set evaluation.stop_return=-200`). Evaluations
// are 1,600 steps apart, and 3,200 of two learners:
//
//   1 learner    4,848  4,848  3,248
//   2 learners   6,496  9,696  6,496
absl::StatusOr<std::unique_ptr<Algorithm>> MakeSac(const v1::RunConfig& config,
                                                   const Spaces& spaces,
                                                   torch::Device device);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_SAC_H_
