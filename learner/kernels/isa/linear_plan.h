#ifndef FLOTILLA_LEARNER_KERNELS_ISA_LINEAR_PLAN_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_LINEAR_PLAN_H_

#include <cstdint>

namespace flotilla {

// Elements of x (isa/element.h) that are summed at a time: with kLinearBlock numbers
// out, weights for them are 128 KiB, which a core's second cache keeps.
inline constexpr int64_t kLinearDepth = 512;

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_LINEAR_PLAN_H_
