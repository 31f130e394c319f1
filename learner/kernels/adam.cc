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
  const AdamPass pass = BeginAdamStep(
      options, SumOfSquares(gradient, state->size, kernels), state);
  if (pass.result.applied) {
    AdamStepPart(pass.factors, gradient, 0, state->size, *state, kernels);
  }
  return pass.result;
}

AdamPass BeginAdamStep(const AdamOptions& options, double squares,
                       AdamState* state) {
  AdamPass pass = {};
  pass.result.norm = std::sqrt(squares) * options.gradient_scale;
  if (!(pass.result.norm <= kLargestNorm)) return pass;
  pass.factors = AdamFactorsOf(options, pass.result.norm,
                               static_cast<double>(++state->step));
  pass.result.applied = true;
  return pass;
}

void AdamStepPart(const AdamFactors& factors, const float* gradient,
                  int64_t first, int64_t count, const AdamState& state,
                  const KernelTable& kernels) {
  kernels.adam(factors, gradient, count, state.parameters + first,
               state.first_moment + first, state.second_moment + first);
}

}  // namespace flotilla
