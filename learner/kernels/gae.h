#ifndef FLOTILLA_LEARNER_KERNELS_GAE_H_
#define FLOTILLA_LEARNER_KERNELS_GAE_H_

#include <cstdint>

#include "learner/kernels/isa/kernel_table.h"

namespace flotilla {

// A rollout as generalised advantage estimation sees it. Borrowed.
struct GaeInput {
  int64_t length = 0;                      // T
  int64_t rows = 0;                        // B
  const float* reward = nullptr;           // [T, B]
  const float* value = nullptr;            // [T + 1, B]
  const uint8_t* terminated = nullptr;     // [T, B]
  const uint8_t* truncated = nullptr;      // [T, B]
  const float* bootstrap_value = nullptr;  // [T, B]  read where truncated only
  const uint8_t* valid = nullptr;          // [T, B]  null: all valid
  float discount = 0.99f;
  float lambda = 0.95f;
};

// Schulman et al. 2016, eq. 16, backwards in time:
//
//   next(t)      = 0 where terminated, else bootstrap_value where truncated,
//                  else value(t + 1)
//   delta(t)     = reward(t) + discount next(t) - value(t)
//   advantage(t) = delta(t) + discount lambda advantage(t + 1), the last term
//                  only if the episode goes on and t + 1 is a valid step
//   returns(t)   = advantage(t) + value(t)
//
// Where a step is not valid both results are 0 and nothing of it is read,
// except that value(t + 1) must be an estimate wherever step t is valid.
void GeneralizedAdvantages(const GaeInput& input, float* advantage,  // [T, B]
                           float* returns,                           // [T, B]
                           const KernelTable& kernels = BestKernels());

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_GAE_H_
