#ifndef FLOTILLA_LEARNER_KERNELS_PPO_TERMS_H_
#define FLOTILLA_LEARNER_KERNELS_PPO_TERMS_H_

#include "learner/kernels/lane.h"

// The terms of PPO's loss (ppo_loss.h) for one sample, or one a lane.

namespace flotilla {
namespace {

template <typename F>
struct PolicyTerm {
  F loss;
  F slope;    // d loss / d log_prob
  F clipped;  // 1 where |ratio - 1| > clip, else 0
};

// `ratio` is e^(log_prob - old_log_prob). Where both branches of the max are equal
// so are their slopes, except where the advantage is 0 and both are 0.
template <typename F>
FLOTILLA_INLINE PolicyTerm<F> PolicyTermOf(F ratio, F advantage, float clip) {
  const F one = 1.0f - F{};
  const F plain = -advantage * ratio;
  const F limited = -advantage * AtLeast(AtMost(ratio, 1 + clip), 1 - clip);
  const auto cut = plain < limited;
  const F change = ratio - 1.0f;
  const auto beyond = (change > clip) | (change < -clip);
  return {cut ? limited : plain, cut ? F{} : plain, beyond ? one : F{}};
}

template <typename F>
struct ValueTerm {
  F loss;
  F slope;  // d loss / d value
};

// `clip` 0 clips nothing.
template <typename F>
FLOTILLA_INLINE ValueTerm<F> ValueTermOf(F value, F old_value, F target,
                                         float clip) {
  const F error = value - target;
  if (clip <= 0) return {0.5f * error * error, error};
  const F change = value - old_value;
  const F limited = old_value + AtLeast(AtMost(change, clip), -clip);
  const F limited_error = limited - target;
  const auto cut = error * error < limited_error * limited_error;
  const F larger = cut ? limited_error : error;
  // The limited value moves with the value only inside its limits.
  const auto stuck = cut & ((change > clip) | (change < -clip));
  return {0.5f * larger * larger, stuck ? F{} : larger};
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_PPO_TERMS_H_
