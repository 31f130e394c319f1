#include "learner/kernels/adam.h"

#include <algorithm>
#include <cmath>

namespace flotilla {
namespace {

// Clipping a larger gradient would multiply by less than float32 can hold.
constexpr double kLargestNorm = 1e37;

}  // namespace

AdamResult AdamStep(const AdamOptions& options, const float* gradient,
                    AdamState* state, const KernelTable& kernels) {
  AdamResult result;
  result.norm = std::sqrt(kernels.sum_of_squares(gradient, state->size)) *
                options.gradient_scale;
  if (!(result.norm <= kLargestNorm)) return result;
  const double clip =
      options.max_grad_norm > 0
          ? std::min(1.0, options.max_grad_norm / (result.norm + 1e-6))
          : 1.0;
  const double t = static_cast<double>(++state->step);
  const auto correction = [&](double beta) {
    return options.correct_bias ? 1 - std::pow(beta, t) : 1.0;
  };
  const AdamFactors factors = {
      .gradient = static_cast<float>(options.gradient_scale * clip),
      .beta1 = static_cast<float>(options.beta1),
      .beta2 = static_cast<float>(options.beta2),
      .step =
          static_cast<float>(options.learning_rate / correction(options.beta1)),
      .deviation = static_cast<float>(1 / std::sqrt(correction(options.beta2))),
      .epsilon = static_cast<float>(options.epsilon),
  };
  kernels.adam(factors, gradient, state->size, state->parameters,
               state->first_moment, state->second_moment);
  result.applied = true;
  return result;
}

}  // namespace flotilla
