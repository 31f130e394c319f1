#ifndef FLOTILLA_LEARNER_CUDA_SAMPLING_H_
#define FLOTILLA_LEARNER_CUDA_SAMPLING_H_

#include <cstdint>

#include "learner/cuda/block.h"
#include "learner/kernels/draws.h"

namespace flotilla {

// The normal numbers at N places of a stream (kernels/draws.h), in their order.
// Pointers are the device's.
struct NormalsArgs {
  int64_t count = 0;  // N
  uint64_t seed = 0;
  uint64_t place = 0;  // the first
  float* to = nullptr;
};

namespace {

struct NormalsKernel {
  NormalsArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    block.Each(a.count, [&](int64_t i) {
      a.to[i] = static_cast<float>(
          NormalAt(a.seed, a.place + static_cast<uint64_t>(i)));
    });
  }
};

template <typename Run>
void RunKernels(const NormalsArgs& args, Run run) {
  run(NormalsKernel{args}, BlocksFor(args.count));
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CUDA_SAMPLING_H_
