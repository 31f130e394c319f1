// Graphs of a GPU; compiled with FLOTILLA_CUDA=ON alone.

#include <ATen/cuda/CUDAGraph.h>

#include "learner/device/graph.h"

namespace flotilla {
namespace {

class CudaGraph : public DeviceGraph {
 public:
  explicit CudaGraph(torch::Device device) : device_(device) {}

  void Capture(const std::function<void()>& work) override {
    OnSideStream(device_, [&] {
      // Other threads allocate meanwhile, which a global capture would forbid them.
      graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      try {
        work();
      } catch (...) {
        // A stream that captures is of no use to anybody.
        try {
          graph_.capture_end();
        } catch (const c10::Error&) {  // what ended it is thrown on
        }
        throw;
      }
      graph_.capture_end();
    });
    Replay();
  }

  void Replay() override { graph_.replay(); }

 private:
  const torch::Device device_;
  at::cuda::CUDAGraph graph_;
};

[[maybe_unused]] const bool registered = [] {
  RegisterGraphs(torch::kCUDA,
                 [](torch::Device device) -> std::unique_ptr<DeviceGraph> {
                   return std::make_unique<CudaGraph>(device);
                 });
  return true;
}();

}  // namespace
}  // namespace flotilla
