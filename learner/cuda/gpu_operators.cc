// The operators on a GPU; compiled with FLOTILLA_CUDA=ON alone.

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "learner/cuda/implement.h"

namespace flotilla {
namespace {

struct OnCuda {
  template <typename Args>
  static void Run(const Args& args) {
    C10_CUDA_CHECK(static_cast<cudaError_t>(
        LaunchOnCuda(args, c10::cuda::getCurrentCUDAStream().stream())));
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(flotilla, CUDA, library) { Implement<OnCuda>(&library); }

}  // namespace flotilla
