#ifndef FLOTILLA_LEARNER_ALGO_PPO_H_
#define FLOTILLA_LEARNER_ALGO_PPO_H_

#include <memory>
#include <vector>

#include "learner/algo/algorithm.h"
#include "learner/algo/policy_loss.h"

namespace flotilla {

// Proximal policy optimisation (Schulman et al. 2017), with the implementation
// details of CleanRL's ppo.py, ppo_atari.py and ppo_continuous_action.py:
//
//   1. GAE; a time limit bootstraps from the final observation
//      (ppo.bootstrap_truncation: false restores CleanRL's "done")
//   2. epochs passes over the rollout in shuffled minibatches
//   3. advantages normalised per minibatch (and rank):
//      (A - mean) / (std + 1e-8); or once for all ranks
//      (ppo.normalize_advantages_over_ranks)
//   4. clipped policy loss, clipped value loss (half the larger square error)
//   5. entropy bonus; one loss: policy - entropy_cost * H + value_cost * value
//   6. gradient averaged over the samples of all ranks, clipped by global norm
//   7. Adam with epsilon 1e-5, learning rate annealed by global_step
//   8. orthogonal initialisation (nn/actor_critic.h)
//
// Minibatches and metrics: see policy_gradient.h; PufferLib's way through a
// rollout (ppo.minibatch: SEGMENTS): segment_ppo.h.
//
// On a CPU, MLP agents run through learner/kernels (one pass, no autograd);
// everything else through Torch: see ppo_backend.h.
absl::StatusOr<std::unique_ptr<Algorithm>> MakePpo(const v1::RunConfig& config,
                                                   const Spaces& spaces,
                                                   torch::Device device);

PolicyLoss PpoLossOf(const v1::PpoConfig& config);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_PPO_H_
