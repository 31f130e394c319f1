#ifndef FLOTILLA_LEARNER_KERNELS_VTRACE_H_
#define FLOTILLA_LEARNER_KERNELS_VTRACE_H_

#include <cstdint>

#include "learner/kernels/isa/kernel_table.h"

namespace flotilla {

// A rollout as V-trace sees it: what an older policy, the actor's, did, and
// what the policy being learned makes of it. Borrowed.
struct VtraceInput {
  int64_t length = 0;                      // T
  int64_t rows = 0;                        // B
  const float* reward = nullptr;           // [T, B]
  const float* value = nullptr;            // [T + 1, B]  the learner's estimate
  const float* log_prob = nullptr;         // [T, B]  the learner's
  const float* actor_log_prob = nullptr;   // [T, B]  when the action was taken
  const uint8_t* terminated = nullptr;     // [T, B]
  const uint8_t* truncated = nullptr;      // [T, B]
  const float* bootstrap_value = nullptr;  // [T, B]  read where truncated only
  const uint8_t* valid = nullptr;          // [T, B]  null: all valid
  float discount = 0.99f;
  float lambda = 1.0f;
  float rho_clip = 1.0f;
  float c_clip = 1.0f;
  float pg_rho_clip = 1.0f;
};

// Espeholt et al. 2018, eq. 1 as the recursion of its remark 1, with the lambda
// of its remark 2, backwards in time:
//
//   ratio(t)     = exp(log_prob - actor_log_prob)
//   next(t)      = 0 where terminated, else bootstrap_value where truncated,
//                  else value(t + 1)
//   delta(t)     = reward(t) + discount next(t) - value(t)
//   later(t)     = discount lambda (target(t + 1) - value(t + 1)), only if the
//                  episode goes on and t + 1 is a valid step, else 0
//   target(t)    = value(t) + min(rho_clip, ratio) delta(t)
//                           + min(c_clip, ratio) later(t)
//   advantage(t) = min(pg_rho_clip, ratio) (delta(t) + later(t))
//
// With lambda 1 the advantage is the paper's (section 4.2). On policy, with
// clips of 1 or more, both are those of generalised advantage estimation.
//
// Where a step is not valid both results are 0 and nothing of it is read,
// except that value(t + 1) must be an estimate wherever step t is valid.
void Vtrace(const VtraceInput& input, float* target,  // [T, B]
            float* advantage,                         // [T, B]
            const KernelTable& kernels = BestKernels());

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_VTRACE_H_
