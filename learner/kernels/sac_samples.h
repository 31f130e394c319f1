#ifndef FLOTILLA_LEARNER_KERNELS_SAC_SAMPLES_H_
#define FLOTILLA_LEARNER_KERNELS_SAC_SAMPLES_H_

#include <cstdint>

namespace flotilla {

// Log standard deviations of a squashed Gaussian are within these, by tanh of what
// its layer says.
inline constexpr float kLeastLogStd = -5, kMostLogStd = 2;

// What actions of A values are: center + scale * tanh(u). Borrowed.
struct ActionRange {
  const float* center = nullptr;  // [A]
  const float* scale = nullptr;   // [A]
  float log_scale = 0;            // of all values together
};

// Transitions to learn from, and what actions are drawn by. Borrowed. The policy's
// gradient reads observations and noise alone.
struct SacSamples {
  int64_t rows = 0;                          // N
  const float* observations = nullptr;       // [N, D]
  const float* actions = nullptr;            // [N, A]
  const float* n_step_return = nullptr;      // [N]
  const float* discount = nullptr;           // [N]  0 after a termination
  const float* next_observations = nullptr;  // [N, D]
  const float* noise = nullptr;              // [N, A]  ~ N(0, 1)
};

// Over the samples.
struct SacSums {
  double loss = 0;      // of both critics, or of the policy
  double q = 0;         // of critics: the mean of Q1(s, a) and Q2(s, a)
  double log_prob = 0;  // of the policy: of the actions drawn

  SacSums& operator+=(const SacSums& other) {
    loss += other.loss;
    q += other.q;
    log_prob += other.log_prob;
    return *this;
  }
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_SAC_SAMPLES_H_
