#include "learner/cuda/launch.h"

namespace flotilla {
namespace {

// How many blocks a multiprocessor is to have room for, where a kernel says so.
template <typename Kernel>
constexpr int AtOnce() {
  if constexpr (requires { Kernel::kAtOnce; }) {
    return Kernel::kAtOnce;
  } else {
    return 0;  // nothing
  }
}

template <typename Kernel>
__global__ void __launch_bounds__(Block::kThreads, AtOnce<Kernel>())
    RunKernel(Kernel kernel) {
  kernel(Block(blockIdx.x, gridDim.x));
}

class RunOnCuda {
 public:
  explicit RunOnCuda(void* stream)
      : stream_(static_cast<cudaStream_t>(stream)) {}

  template <typename Kernel>
  void operator()(const Kernel& kernel, int64_t blocks) const {
    RunKernel<<<static_cast<unsigned>(blocks), Block::kThreads, 0, stream_>>>(
        kernel);
  }

 private:
  const cudaStream_t stream_;
};

}  // namespace

template <typename Args>
int LaunchOnCuda(const Args& args, void* stream) {
  RunKernels(args, RunOnCuda(stream));
  return cudaGetLastError();
}

template int LaunchOnCuda(const AdamArgs&, void*);
template int LaunchOnCuda(const AdvantageScaleArgs&, void*);
template int LaunchOnCuda(const ExploreArgs&, void*);
template int LaunchOnCuda(const FindLeavesArgs&, void*);
template int LaunchOnCuda(const GaeArgs&, void*);
template int LaunchOnCuda(const MarkLeavesArgs&, void*);
template int LaunchOnCuda(const MlpForwardArgs&, void*);
template int LaunchOnCuda(const MlpGradientArgs&, void*);
template int LaunchOnCuda(const NormalsArgs&, void*);
template int LaunchOnCuda(const PixelsArgs&, void*);
template int LaunchOnCuda(const PpoLossArgs&, void*);
template int LaunchOnCuda(const RingArgs&, void*);
template int LaunchOnCuda(const SampleArgs&, void*);
template int LaunchOnCuda(const SetErrorsArgs&, void*);
template int LaunchOnCuda(const SquashArgs&, void*);
template int LaunchOnCuda(const StacksArgs&, void*);
template int LaunchOnCuda(const VtraceArgs&, void*);

}  // namespace flotilla
