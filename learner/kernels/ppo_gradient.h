#ifndef FLOTILLA_LEARNER_KERNELS_PPO_GRADIENT_H_
#define FLOTILLA_LEARNER_KERNELS_PPO_GRADIENT_H_

#include <cstdint>
#include <span>

#include "learner/kernels/isa/kernel_table.h"
#include "learner/kernels/isa/workspace.h"
#include "learner/kernels/mlp_shape.h"
#include "learner/kernels/ppo_loss.h"

namespace flotilla {

// CleanRL's advantage normalisation over the valid ones of `rows`: the scale is
// 1 / (std + 1e-8), the deviation unbiased, and 0 of a single sample. Compute
// it over the whole minibatch and give the same to every shard.
AdvantageScale NormalizeAdvantages(const PpoSamples& samples,
                                   std::span<const int32_t> rows);

// The gradient of PPO's loss for an MLP actor-critic: gather, forward, loss and
// backward in one pass over tiles of rows, nothing allocated after
// construction.
//
// A minibatch may be cut into shards, each to its own PpoGradient and gradient
// buffer on its own thread; add the buffers and the sums in a fixed order and
// the result depends on the shards and not on the threads. Decide and Compute
// agree to the bit: with unchanged parameters every ratio is exactly 1.
//
// Not thread-safe: each thread has its own.
class PpoGradient {
 public:
  explicit PpoGradient(const MlpShape& shape,
                       const KernelTable& kernels = BestKernels());

  // Computes d(sum of losses over `rows` / loss.divisor) / d(parameters).
  //
  //   parameters  [P]  as ParameterLayout says
  //   rows        rows of `samples`, in any order; invalid ones are skipped
  //   gradient    [P]  overwritten, or added to if `accumulate`
  PpoSums Compute(const float* parameters, const PpoSamples& samples,
                  std::span<const int32_t> rows, const PpoLoss& loss,
                  bool accumulate, float* gradient);

 private:
  const KernelTable& kernels_;
  Workspace workspace_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_PPO_GRADIENT_H_
