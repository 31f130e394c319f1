#ifndef FLOTILLA_LEARNER_ALGO_SAC_LOSS_H_
#define FLOTILLA_LEARNER_ALGO_SAC_LOSS_H_

#include <memory>
#include <vector>

#include "learner/algo/gradient_shards.h"
#include "learner/kernels/sac_gradient.h"
#include "learner/nn/flat_parameters.h"
#include "learner/nn/sac_networks.h"
#include "learner/nn/squashed_gaussian.h"
#include "learner/replay/replay_buffer.h"
#include "learner/torch.h"

// The three losses of soft actor-critic (Haarnoja et al. 2018, "Algorithms and
// Applications", equations 5, 9 and 18), each over a batch of N. All leave the sum,
// not the mean, of the gradients in their own network's buffer and touch no other.
// Batches and noise are on the networks' device, and so are the sums that they
// return, of which the host knows nothing yet; `log_alpha` is [1].

namespace flotilla {

// What samples are drawn with: the networks that act, or act no more.
struct SacNetworks {
  const SacActor& actor;
  const TwinCritics& critics;
  const TwinCritics& targets;
  const SquashedGaussian& gaussian;
  const torch::Tensor& log_alpha;
};

// In `critics`, of
//
//   (Q1(s, a) - y)^2 + (Q2(s, a) - y)^2
//   y = n_step_return + discount * (min_i Q_target_i(s', a') - alpha log pi(a'|s'))
//
// where a' is drawn from the policy with `noise` [N, A]. Returns [2] float32: the
// loss of both critics, and their mean of Q(s, a).
torch::Tensor ComputeCriticGradient(const SacNetworks& nets,
                                    const ReplayBatch& batch,
                                    const torch::Tensor& noise);

// In `actor`, of alpha log pi(a|s) - min_i Q_i(s, a), where a is drawn from the
// policy with `noise` [N, A] and the gradient goes through it. Returns [2] float32:
// the loss, and the log-probabilities of the actions drawn.
torch::Tensor ComputePolicyGradient(const SacNetworks& nets,
                                    const ReplayBatch& batch,
                                    const torch::Tensor& noise);

// The two above by hand-written kernels, for networks with a KernelShape: Torch's
// operations take several times what the arithmetic does. Sums are on the host.
// Torch's threads share the samples (gradient_shards.h). Not thread-safe.
class SacKernels {
 public:
  // Null for networks that kernels do not take.
  static std::unique_ptr<SacKernels> For(const SacActor& actor,
                                         const TwinCritics& critics);

  torch::Tensor CriticGradient(const SacNetworks& nets,
                               const ReplayBatch& batch,
                               const torch::Tensor& noise);
  torch::Tensor PolicyGradient(const SacNetworks& nets,
                               const ReplayBatch& batch,
                               const torch::Tensor& noise);

 private:
  using Gradient = SacSums (SacGradient::*)(const SacGradient::Parameters&,
                                            const SacSamples&,
                                            const ActionRange&, float, float*);

  SacKernels(const MlpShape& actor, const MlpShape& critics)
      : actor_(actor), critics_(critics) {}
  SacSums Compute(Gradient of, const SacNetworks& nets,
                  const SacSamples& samples, const FlatParameters& into);

  const MlpShape actor_, critics_;
  std::vector<SacGradient> kernels_;  // each shard's
  GradientShards shards_;
};

// In `log_alpha`, of -alpha (log pi(a|s) + target_entropy) over `samples` actions,
// whose log-probabilities sum to `log_prob` [1]. Returns the loss, [1] float32.
torch::Tensor ComputeTemperatureGradient(const FlatParameters& log_alpha,
                                         const torch::Tensor& log_prob,
                                         double samples, double target_entropy);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_SAC_LOSS_H_
