#ifndef FLOTILLA_LEARNER_ALGO_IMPALA_H_
#define FLOTILLA_LEARNER_ALGO_IMPALA_H_

#include <memory>

#include "learner/algo/algorithm.h"

namespace flotilla {

// IMPALA (Espeholt et al. 2018), and with impala.clip_ratio above 0 its
// asynchronous PPO ("APPO", as in RLlib). Actors run ahead with policies that
// are some updates old (actor/rollout_source.h); V-trace corrects for it.
//
//   1. Before an update the network scores the rollout anew: log-probability
//      of the actions taken, values of all observations
//   2. V-trace with the actor's log-probabilities: value targets, advantages.
//      A time limit bootstraps from the value that the actor saw; all other
//      values are the learner's
//   3. policy loss  - ratio * advantage, where ratio is that of the policy as
//      it becomes to the policy as it was in 1. Before the first gradient step
//      it is 1 and the gradient is the paper's, - advantage * grad log_prob.
//      impala.clip_ratio above 0 limits it as in PPO
//   4. value loss  1/2 (value - target)^2, entropy bonus; advantages as they
//      are
//   5. epochs and minibatches as in PPO; 1 and 1 are the paper's single step
//
// With one minibatch, losses/policy_loss is minus the mean advantage.
// Minibatches and metrics: see policy_gradient.h.
//
// Measured on two shared cores, environment steps until an evaluation of 100
// episodes reached 475, seeds 1 to 3 (`flotilla train cartpole_impala
// --nproc-per-node N --set seed=S`, and cartpole_appo):
//
//             1 learner                    2 learners
//   IMPALA    152,960  272,640  251,520    487,680  947,200  650,240
//   APPO      147,456  151,552  188,416    245,760  233,472  294,912
absl::StatusOr<std::unique_ptr<Algorithm>> MakeImpala(
    const v1::RunConfig& config, const Spaces& spaces, torch::Device device);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_IMPALA_H_
