#ifndef FLOTILLA_LEARNER_KERNELS_LANE_H_
#define FLOTILLA_LEARNER_KERNELS_LANE_H_

// What kernels do with one number, written once for all that do it: a vector's lanes
// (isa/), a loop of the host and a thread of a GPU (learner/cuda). F is float or a
// vector of them.
//
// Unnamed, as isa/vec.h says why. A GPU's compiler makes both forms of it.

#ifdef __CUDACC__
#define FLOTILLA_INLINE __host__ __device__ __forceinline__
#else
#define FLOTILLA_INLINE [[gnu::always_inline]] inline
#endif

namespace flotilla {
namespace {

// These hand on a NaN in `x`.
template <typename F>
FLOTILLA_INLINE F AtMost(F x, float bound) {
  const F b = bound - F{};
  return x > b ? b : x;
}
template <typename F>
FLOTILLA_INLINE F AtLeast(F x, float bound) {
  const F b = bound - F{};
  return x < b ? b : x;
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_LANE_H_
