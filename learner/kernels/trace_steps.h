#ifndef FLOTILLA_LEARNER_KERNELS_TRACE_STEPS_H_
#define FLOTILLA_LEARNER_KERNELS_TRACE_STEPS_H_

#include "learner/kernels/lane.h"
#include "learner/kernels/vtrace.h"

// One step backwards in time of what gae.h and vtrace.h define.

namespace flotilla {
namespace {

// Generalised advantages of one row, or of one a lane: F is float or Vec, and M the
// outcome of comparing two.
template <typename F, typename M>
struct GaeLanes {
  F reward, value, next_value, bootstrap_value, next_advantage;
  M terminated, truncated, valid;

  FLOTILLA_INLINE void Step(float discount, float decay, F* advantage,
                            F* returns) const {
    const F going_on = truncated ? bootstrap_value : next_value;
    const F next = terminated ? F{} : going_on;
    const F alive = truncated ? F{} : next_advantage;
    const F carry = terminated ? F{} : alive;
    const F a = (reward + discount * next - value) + decay * carry;
    *advantage = valid ? a : F{};
    *returns = valid ? a + value : F{};
  }
};

// V-trace, the same.
template <typename F, typename M>
struct VtraceLanes {
  F reward, value, next_value, bootstrap_value, ratio;
  M terminated, truncated, valid;

  // `error` is target - value, of the step after on entry and of this one on
  // return; 0 of an invalid step.
  FLOTILLA_INLINE void Step(const VtraceInput& in, F* error, F* target,
                            F* advantage) const {
    const F going_on = truncated ? bootstrap_value : next_value;
    const F next = terminated ? F{} : going_on;
    const F alive = truncated ? F{} : *error;
    const F carry = terminated ? F{} : alive;
    const F later = in.discount * in.lambda * carry;
    const F delta = reward + in.discount * next - value;
    const F e =
        AtMost(ratio, in.rho_clip) * delta + AtMost(ratio, in.c_clip) * later;
    const F a = AtMost(ratio, in.pg_rho_clip) * (delta + later);
    *error = valid ? e : F{};
    *target = valid ? value + e : F{};
    *advantage = valid ? a : F{};
  }
};

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_TRACE_STEPS_H_
