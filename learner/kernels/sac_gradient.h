#ifndef FLOTILLA_LEARNER_KERNELS_SAC_GRADIENT_H_
#define FLOTILLA_LEARNER_KERNELS_SAC_GRADIENT_H_

#include "learner/kernels/isa/kernel_table.h"
#include "learner/kernels/isa/workspace.h"
#include "learner/kernels/mlp_shape.h"
#include "learner/kernels/sac_samples.h"

namespace flotilla {

// The gradients of soft actor-critic (Haarnoja et al. 2018, "Algorithms and
// Applications", equations 5 and 9) for an actor (MlpOutput::kSquashedGaussian) and
// critics (kTwinCritics) that are MLPs, written by hand as PpoGradient is: forward,
// loss and backward in one pass over tiles of rows, no allocation, the same bits for
// the same inputs. Samples may be cut into shards as PpoGradient's.
//
// Not thread-safe: each thread has its own.
class SacGradient {
 public:
  // Borrowed, laid out as ParameterLayout says.
  struct Parameters {
    const float* actor = nullptr;
    const float* critics = nullptr;
    const float* targets = nullptr;  // of the critics' shape; not the policy's
  };

  SacGradient(const MlpShape& actor, const MlpShape& critics,
              const KernelTable& kernels = BestKernels());

  // Writes to `gradient` (the critics') that of the sum over the samples of
  //
  //   (Q1(s, a) - y)^2 + (Q2(s, a) - y)^2
  //   y = n_step_return + discount * (min_i Q_target_i(s', a') - alpha log pi(a'|s'))
  //
  // where a' is drawn with the samples' noise.
  SacSums Critics(const Parameters& parameters, const SacSamples& samples,
                  const ActionRange& range, float alpha, float* gradient);

  // Writes to `gradient` (the actor's) that of the sum over the samples of
  //
  //   alpha log pi(a|s) - min_i Q_i(s, a)
  //
  // where a is drawn with the samples' noise, and the gradient goes through it. Of
  // two Qs that are equal each has half of it.
  SacSums Policy(const Parameters& parameters, const SacSamples& samples,
                 const ActionRange& range, float alpha, float* gradient);

 private:
  const KernelTable& kernels_;
  Workspace actor_, critics_, targets_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_SAC_GRADIENT_H_
