#ifndef FLOTILLA_LEARNER_ALGO_SAC_LOSS_H_
#define FLOTILLA_LEARNER_ALGO_SAC_LOSS_H_

#include "learner/nn/flat_parameters.h"
#include "learner/nn/sac_networks.h"
#include "learner/nn/squashed_gaussian.h"
#include "learner/replay/replay_buffer.h"
#include "learner/torch.h"

// The three losses of soft actor-critic (Haarnoja et al. 2018, "Algorithms and
// Applications", equations 5, 9 and 18), each over a batch of N. All leave the sum,
// not the mean, of the gradients in their own network's buffer and touch no other.
// Batches and noise are on the networks' device; `log_alpha` is [1].

namespace flotilla {

// What samples are drawn with: the networks that act, or act no more.
struct SacNetworks {
  const SacActor& actor;
  const TwinCritics& critics;
  const TwinCritics& targets;
  const SquashedGaussian& gaussian;
  const torch::Tensor& log_alpha;
};

struct CriticSums {
  double loss = 0;  // of both critics
  double q = 0;     // their mean of Q(s, a)
};

// In `critics`, of
//
//   (Q1(s, a) - y)^2 + (Q2(s, a) - y)^2
//   y = n_step_return + discount * (min_i Q_target_i(s', a') - alpha log pi(a'|s'))
//
// where a' is drawn from the policy with `noise` [N, A].
CriticSums ComputeCriticGradient(const SacNetworks& nets,
                                 const ReplayBatch& batch,
                                 const torch::Tensor& noise);

struct PolicySums {
  double loss = 0;
  double log_prob = 0;  // of the actions drawn
};

// In `actor`, of alpha log pi(a|s) - min_i Q_i(s, a), where a is drawn from the
// policy with `noise` [N, A] and the gradient goes through it.
PolicySums ComputePolicyGradient(const SacNetworks& nets,
                                 const ReplayBatch& batch,
                                 const torch::Tensor& noise);

// In `log_alpha`, of -alpha (log pi(a|s) + target_entropy) over `samples` actions,
// whose log-probabilities sum to `log_prob`. Returns the loss.
double ComputeTemperatureGradient(const FlatParameters& log_alpha,
                                  double log_prob, double samples,
                                  double target_entropy);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_SAC_LOSS_H_
