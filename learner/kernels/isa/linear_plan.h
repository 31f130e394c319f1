#ifndef FLOTILLA_LEARNER_KERNELS_ISA_LINEAR_PLAN_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_LINEAR_PLAN_H_

#include <cstdint>

#include "learner/kernels/lane.h"

namespace flotilla {

// Elements of x (isa/element.h) that are summed at a time: with kLinearBlock numbers
// out, weights for them are 128 KiB, which a core's second cache keeps. Where they need
// not be turned, or rounded, as many as the first cache holds.
inline constexpr int64_t kLinearDepth = 512;
inline constexpr int64_t kShortLinearDepth = 128;

// Of the pairs of n rows, with those that fill a tile (isa/amx_product.h).
FLOTILLA_INLINE constexpr int64_t PanelRows(int64_t n) {
  constexpr int64_t kTile = 16;
  return ((n + 1) / 2 + kTile - 1) / kTile * kTile;
}

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_LINEAR_PLAN_H_
