#ifndef FLOTILLA_LEARNER_KERNELS_ADAM_H_
#define FLOTILLA_LEARNER_KERNELS_ADAM_H_

#include <cstdint>

#include "learner/kernels/isa/kernel_table.h"

namespace flotilla {

struct AdamOptions {
  double learning_rate = 2.5e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-5;
  double max_grad_norm = 0.5;  // 0: no clipping
  // Multiplies the gradient before anything else: 1 / samples for a sum.
  double gradient_scale = 1;
  // False: the divisors 1 - beta^t below are 1. With beta1 0 that is
  // torch.optim.RMSprop, its alpha being beta2.
  bool correct_bias = true;
};

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

// torch.nn.utils.clip_grad_norm_ and one torch.optim.Adam step, in two passes:
//
//   g = gradient * gradient_scale * min(1, max_grad_norm / (norm + 1e-6))
//   m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   p = p - learning_rate / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
//
// The norm is summed in float64. `gradient` [size] is not written.
AdamResult AdamStep(const AdamOptions& options, const float* gradient,
                    AdamState* state,
                    const KernelTable& kernels = BestKernels());

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ADAM_H_
