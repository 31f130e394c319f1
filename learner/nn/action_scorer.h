#ifndef FLOTILLA_LEARNER_NN_ACTION_SCORER_H_
#define FLOTILLA_LEARNER_NN_ACTION_SCORER_H_

#include <optional>

#include "learner/kernels/mlp_actor_critic.h"
#include "learner/nn/action_head.h"
#include "learner/nn/network.h"
#include "learner/rollout/rollout.h"
#include "learner/torch.h"
#include "services/env/spaces.h"

namespace flotilla {

// What a network, as it is now, makes of a rollout that an older one played:
// through learner/kernels for MLPs on the CPU, through Torch otherwise. Without
// gradients.
//
// Not thread-safe.
class ActionScorer {
 public:
  // `net` is borrowed and must outlive this.
  ActionScorer(const Network* net, const Spaces& spaces);

  // Writes the log-probability of the actions that were taken and the values of
  // all observations, where the rollout is: on the host or on the network's
  // device.
  void Score(const Rollout& rollout,
             torch::Tensor* log_prob,  // [T, B] float32
             torch::Tensor* value);    // [T + 1, B] float32

  // The same of the steps `index` [M] int32 into T * B alone. Recurrent networks:
  // the valid steps of the environments `columns` [b] int32, by t and then in
  // their order.
  void ScoreSteps(const Rollout& rollout, const torch::Tensor& index,
                  const torch::Tensor& columns,
                  torch::Tensor* log_prob,  // [M] float32
                  torch::Tensor* value);    // [M] float32

 private:
  // Of observations [M, ...] and, as far as they go, actions [m <= M, ...].
  void ScoreChunk(const Batch& observation, const Actions& action,
                  torch::Tensor log_prob, torch::Tensor value);
  torch::Tensor LogProb(const NetworkOutput& output, const Batch& observation,
                        const Actions& action) const;

  const Network* const net_;
  const Spaces spaces_;
  const ActionHead head_;
  std::optional<MlpActorCritic> mlp_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_ACTION_SCORER_H_
