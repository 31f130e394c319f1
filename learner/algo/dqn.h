#ifndef FLOTILLA_LEARNER_ALGO_DQN_H_
#define FLOTILLA_LEARNER_ALGO_DQN_H_

#include <cstdint>
#include <memory>

#include "learner/algo/algorithm.h"

namespace flotilla {

// Deep Q-learning (Mnih et al. 2015) with double Q-learning, dueling heads,
// n-step returns and prioritised replay, on the plan of DI-engine's pong_dqn:
//
//   1. epsilon-greedy, each row for itself; epsilon follows the global step
//   2. each rank keeps a replay of its own; a time limit bootstraps from the
//      final observation
//   3. updates_per_rollout gradient steps a rollout on every rank alike, once
//      learning_starts global steps are done
//   4. each step the mean over the samples of the ranks that contribute; a rank
//      whose replay is short of its share of learning_starts, or of one batch,
//      contributes none
//   5. the target network is a copy, made anew every target_update_every steps
//      that had a sample
//
// Metrics: losses/td_loss (of all ranks), losses/q_values (this rank's part: the
// mean over ranks is that of all samples), losses/grad_norm, charts/epsilon,
// charts/learning_rate, replay/size; of one all-reduce sync/all_reduce_ms, of the
// whole update sync/bytes. Losses are 0 until there is one.
absl::StatusOr<std::unique_ptr<Algorithm>> MakeDqn(const v1::RunConfig& config,
                                                   const Spaces& spaces,
                                                   torch::Device device);

// The share of random actions after `global_step` environment steps of all
// ranks: end + (start - end) exp(-global_step / decay).
double EpsilonAt(const v1::DqnConfig& config, int64_t global_step);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_DQN_H_
