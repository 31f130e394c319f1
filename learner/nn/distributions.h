#ifndef FLOTILLA_LEARNER_NN_DISTRIBUTIONS_H_
#define FLOTILLA_LEARNER_NN_DISTRIBUTIONS_H_

#include "learner/nn/actor_critic.h"
#include "learner/torch.h"

namespace flotilla {

struct LogProbAndEntropy {
  torch::Tensor log_prob;  // [M]
  torch::Tensor entropy;   // [M]
};

// Of `action` ([M] int64, or [M, A] float32) under what `net` makes of M
// observations: `policy` [M, A], logits or means.
LogProbAndEntropy ScoreActions(const ActorCritic& net,
                               const torch::Tensor& policy,
                               const torch::Tensor& action);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_DISTRIBUTIONS_H_
