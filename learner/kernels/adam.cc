#include "learner/kernels/adam.h"

#include <algorithm>
#include <cmath>

namespace flotilla {

double SumOfSquares(const float* gradient, int64_t size,
                    const KernelTable& kernels) {
  double sum = 0;
  for (int64_t at = 0; at < size; at += kSquaresPart) {
    sum += kernels.sum_of_squares(gradient + at,
                                  std::min(kSquaresPart, size - at));
  }
  return sum;
}

AdamResult AdamStep(const AdamOptions& options, const float* gradient,
                    AdamState* state, const KernelTable& kernels) {
  return AdamStep(options, gradient,
                  SumOfSquares(gradient, state->size, kernels), state, kernels);
}

AdamResult AdamStep(const AdamOptions& options, const float* gradient,
                    double squares, AdamState* state,
                    const KernelTable& kernels) {
  AdamResult result;
  result.norm = std::sqrt(squares) * options.gradient_scale;
  if (!(result.norm <= kLargestNorm)) return result;
  const AdamFactors factors =
      AdamFactorsOf(options, result.norm, static_cast<double>(++state->step));
  kernels.adam(factors, gradient, state->size, state->parameters,
               state->first_moment, state->second_moment);
  result.applied = true;
  return result;
}

}  // namespace flotilla
