#ifndef FLOTILLA_LEARNER_KERNELS_ADAM_H_
#define FLOTILLA_LEARNER_KERNELS_ADAM_H_

#include <cstdint>

#include "learner/kernels/adam_update.h"
#include "learner/kernels/isa/kernel_table.h"

namespace flotilla {

// Flat float32 buffers [size], borrowed. The moments start at 0.
struct AdamState {
  int64_t size = 0;
  float* parameters = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  int64_t step = 0;  // steps taken
};

struct AdamResult {
  double norm = 0;  // of the scaled gradient, before clipping
  // False: the norm is not finite, or beyond 1e37, and nothing has changed.
  bool applied = false;
};

// In float64, each kSquaresPart of them apart: who meets them part by part may add up
// the parts' sums, and has the same bits.
inline constexpr int64_t kSquaresPart = 1 << 15;
double SumOfSquares(const float* gradient, int64_t size,
                    const KernelTable& kernels = BestKernels());

// torch.nn.utils.clip_grad_norm_ and one torch.optim.Adam step, in two passes, of
// which the first is for the norm:
//
//   g = gradient * gradient_scale * min(1, max_grad_norm / (norm + 1e-6))
//   m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   p = p - learning_rate / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
//
// `gradient` [size] is not written.
AdamResult AdamStep(const AdamOptions& options, const float* gradient,
                    AdamState* state,
                    const KernelTable& kernels = BestKernels());

// The same for who has the SumOfSquares of the gradient already, or not all of it in one
// place: BeginAdamStep, which counts the step, and if that is applied AdamStepPart of each
// part, in any order, of different parts from several threads.
struct AdamPass {
  AdamResult result;
  AdamFactors factors;
};
AdamPass BeginAdamStep(const AdamOptions& options, double squares,
                       AdamState* state);
// `gradient` [count], of the parameters from `first` on.
void AdamStepPart(const AdamFactors& factors, const float* gradient,
                  int64_t first, int64_t count, const AdamState& state,
                  const KernelTable& kernels = BestKernels());

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ADAM_H_
