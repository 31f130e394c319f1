#include "learner/kernels/adam.h"

#include <cmath>

namespace flotilla {

AdamResult AdamStep(const AdamOptions& options, const float* gradient,
                    AdamState* state, const KernelTable& kernels) {
  AdamResult result;
  result.norm = std::sqrt(kernels.sum_of_squares(gradient, state->size)) *
                options.gradient_scale;
  if (!(result.norm <= kLargestNorm)) return result;
  const AdamFactors factors =
      AdamFactorsOf(options, result.norm, static_cast<double>(++state->step));
  kernels.adam(factors, gradient, state->size, state->parameters,
               state->first_moment, state->second_moment);
  result.applied = true;
  return result;
}

}  // namespace flotilla
