#ifndef FLOTILLA_LEARNER_ALGO_PPO_H_
#define FLOTILLA_LEARNER_ALGO_PPO_H_

#include <memory>
#include <vector>

#include "learner/algo/algorithm.h"

namespace flotilla {

// Proximal policy optimisation (Schulman et al. 2017), with the implementation
// details of CleanRL's ppo.py, ppo_atari.py and ppo_continuous_action.py:
//
//   1. GAE; a time limit bootstraps from the final observation
//      (ppo.bootstrap_truncation: false restores CleanRL's "done")
//   2. epochs passes over the rollout in shuffled minibatches
//   3. advantages normalised per minibatch (and rank): (A - mean) / (std +
//   1e-8); or once for all ranks (ppo.normalize_advantages_over_ranks)
//   4. clipped policy loss, clipped value loss (half the larger square error)
//   5. entropy bonus; one loss: policy - entropy_cost * H + value_cost * value
//   6. gradient averaged over the samples of all ranks, clipped by global norm
//   7. Adam with epsilon 1e-5, learning rate annealed by global_step
//   8. orthogonal initialisation (nn/actor_critic.h)
//
// A minibatch is drawn from the valid steps alone (minibatches.h), so ranks may
// differ in samples and never in the number of gradient steps. Recurrent
// networks replay whole environments from the rollout's initial state
// (ppo_atari_lstm.py; DD-PPO, Wijmans et al. 2020): no gradient passes the
// rollout's begin. target_kl uses the KL of
// all ranks' last minibatch.
//
// Metrics are means over the update's minibatches: losses/policy_loss,
// losses/value_loss, losses/entropy, losses/old_approx_kl, losses/approx_kl,
// losses/clipfrac, losses/explained_variance, losses/grad_norm; and of one
// all-reduce sync/all_reduce_ms, of the whole update sync/bytes.
//
// On a CPU, MLP agents run through learner/kernels (one pass, no autograd);
// everything else through Torch: see ppo_backend.h.
absl::StatusOr<std::unique_ptr<Algorithm>> MakePpo(const v1::RunConfig& config,
                                                   const Spaces& spaces,
                                                   torch::Device device);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_PPO_H_
