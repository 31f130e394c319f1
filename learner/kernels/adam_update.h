#ifndef FLOTILLA_LEARNER_KERNELS_ADAM_UPDATE_H_
#define FLOTILLA_LEARNER_KERNELS_ADAM_UPDATE_H_

#include <cmath>

#include "learner/kernels/lane.h"

// The parts of Adam's step (adam.h).

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

// What one step multiplies by.
struct AdamFactors {
  float gradient;  // scaling and clipping
  float beta1, beta2;
  float step;       // learning_rate / (1 - beta1^t)
  float deviation;  // 1 / sqrt(1 - beta2^t)
  float epsilon;
};

namespace {

// Clipping a larger gradient would multiply by less than float32 can hold.
constexpr double kLargestNorm = 1e37;

// `norm` is of the scaled gradient, before clipping; `t` counts this step too.
FLOTILLA_INLINE AdamFactors AdamFactorsOf(const AdamOptions& options,
                                          double norm, double t) {
  double clip = 1;
  if (options.max_grad_norm > 0) {
    const double limit = options.max_grad_norm / (norm + 1e-6);
    if (limit < clip) clip = limit;
  }
  const auto correction = [&](double beta) {
    return options.correct_bias ? 1 - std::pow(beta, t) : 1.0;
  };
  return {static_cast<float>(options.gradient_scale * clip),
          static_cast<float>(options.beta1),
          static_cast<float>(options.beta2),
          static_cast<float>(options.learning_rate / correction(options.beta1)),
          static_cast<float>(1 / std::sqrt(correction(options.beta2))),
          static_cast<float>(options.epsilon)};
}

template <typename F>
FLOTILLA_INLINE void AddToMoments(const AdamFactors& factors, F gradient, F* m,
                                  F* v) {
  const F g = gradient * factors.gradient;
  *m = *m * factors.beta1 + g * (1 - factors.beta1);
  *v = *v * factors.beta2 + g * g * (1 - factors.beta2);
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ADAM_UPDATE_H_
