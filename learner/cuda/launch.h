#ifndef FLOTILLA_LEARNER_CUDA_LAUNCH_H_
#define FLOTILLA_LEARNER_CUDA_LAUNCH_H_

#include <cstdint>

#include "learner/cuda/adam.h"
#include "learner/cuda/advantages.h"
#include "learner/cuda/block.h"
#include "learner/cuda/frames.h"
#include "learner/cuda/mlp_gradient.h"
#include "learner/cuda/mlp_policy.h"
#include "learner/cuda/ppo_loss.h"
#include "learner/cuda/ring.h"
#include "learner/cuda/sampling.h"
#include "learner/cuda/sum_tree.h"

// Runs the kernels of this folder: on the host, where pointers are the host's, or on
// a GPU. A GPU's compiler sees these headers and launch.cu, and nothing of Torch.

namespace flotilla {

// Blocks after blocks.
struct RunOnHost {
  template <typename Kernel>
  void operator()(const Kernel& kernel, int64_t blocks) const {
    for (int64_t i = 0; i < blocks; ++i) kernel(Block(i, blocks));
  }
};

// Those of `args`, any struct of this folder that RunKernels takes, on the current
// device and on `stream`, a cudaStream_t. Does not wait. Returns a cudaError_t: that
// of a launch, which is not a kernel's that fails later.
template <typename Args>
int LaunchOnCuda(const Args& args, void* stream);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CUDA_LAUNCH_H_
