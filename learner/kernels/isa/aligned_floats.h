#ifndef FLOTILLA_LEARNER_KERNELS_ISA_ALIGNED_FLOATS_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_ALIGNED_FLOATS_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace flotilla {

struct FreeFloats {
  void operator()(float* memory) const { std::free(memory); }
};
using AlignedFloats = std::unique_ptr<float, FreeFloats>;

// `size` floats that begin where the widest vector may, whatever is in them.
// Errors: throws std::bad_alloc.
inline AlignedFloats MakeAlignedFloats(int64_t size) {
  constexpr size_t kAlignment = 64;
  const size_t bytes = static_cast<size_t>(size) * sizeof(float);
  void* const memory = std::aligned_alloc(
      kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr) throw std::bad_alloc();
  return AlignedFloats(static_cast<float*>(memory));
}

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_ALIGNED_FLOATS_H_
