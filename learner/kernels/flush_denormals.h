#ifndef FLOTILLA_LEARNER_KERNELS_FLUSH_DENORMALS_H_
#define FLOTILLA_LEARNER_KERNELS_FLUSH_DENORMALS_H_

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include "learner/kernels/lane.h"

namespace flotilla {
namespace {

// Denormals count as 0 on this thread while one of these lives: the moments of an idle
// parameter and the gradients of a saturated one would else slow a step a
// hundredfold.
class FlushDenormals {
 public:
#ifdef __x86_64__
  FLOTILLA_INLINE FlushDenormals() : saved_(_mm_getcsr()) {
    constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
    _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
  }
  FLOTILLA_INLINE ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  const unsigned saved_;
#else
  FlushDenormals() {}
  ~FlushDenormals() {}
#endif
};

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_FLUSH_DENORMALS_H_
