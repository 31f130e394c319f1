#include "learner/nn/sampling.h"

#include <algorithm>
#include <cmath>

namespace flotilla {

void SampleCategorical(const float* logits, int64_t rows, int64_t actions,
                       bool greedy, Random* rng, int64_t* action,
                       float* log_prob) {
  for (int64_t r = 0; r < rows; ++r, logits += actions) {
    const float largest = *std::max_element(logits, logits + actions);
    double sum = 0;
    for (int64_t a = 0; a < actions; ++a) sum += std::exp(logits[a] - largest);
    int64_t chosen = 0;
    if (greedy) {
      chosen = std::max_element(logits, logits + actions) - logits;
    } else {
      double left = rng->Uniform() * sum;
      // The last action takes what rounding leaves over.
      while (chosen + 1 < actions) {
        left -= std::exp(logits[chosen] - largest);
        if (left < 0) break;
        ++chosen;
      }
    }
    action[r] = chosen;
    log_prob[r] = logits[chosen] - largest - static_cast<float>(std::log(sum));
  }
}

void SampleGaussian(const float* mean, const float* log_std, int64_t rows,
                    int64_t actions, bool greedy, Random* rng, float* action,
                    float* log_prob) {
  constexpr double kHalfLog2Pi = 0.91893853320467274178;
  for (int64_t r = 0; r < rows; ++r) {
    double total = 0;
    for (int64_t a = 0; a < actions; ++a) {
      const double z = greedy ? 0.0 : rng->Normal();
      action[r * actions + a] =
          mean[r * actions + a] + static_cast<float>(z * std::exp(log_std[a]));
      total -= 0.5 * z * z + log_std[a] + kHalfLog2Pi;
    }
    log_prob[r] = static_cast<float>(total);
  }
}

}  // namespace flotilla
