#ifndef FLOTILLA_TESTS_LEARNER_CUDA_ON_GPU_H_
#define FLOTILLA_TESTS_LEARNER_CUDA_ON_GPU_H_

#include <cstdlib>
#include <string_view>

namespace flotilla {

// Whether a GPU runs the kernels: see on_gpu.cc.
inline bool KernelsOnGpu() {
  const char* where = std::getenv("FLOTILLA_KERNELS_ON");
  return where != nullptr && std::string_view(where) == "gpu";
}

// Where a kernel's tensors lie, as its errors say it.
inline const char* KernelsDevice() { return KernelsOnGpu() ? "cuda:0" : "cpu"; }

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_CUDA_ON_GPU_H_
