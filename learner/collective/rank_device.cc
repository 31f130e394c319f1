#include "learner/collective/rank_device.h"

#include <torch/cuda.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace flotilla {

std::vector<Gpu> GpusOfTorch(std::vector<Gpu> of_driver, int seen) {
  // Another number: nobody knows which is which.
  if (of_driver.size() != static_cast<size_t>(seen)) of_driver.clear();
  of_driver.resize(seen);
  return of_driver;
}

absl::StatusOr<RankDevice> ChooseRankDevice(const DeviceRequest& request,
                                            int local_rank) {
  if (request.device == kRehearsalDevice) {
    return absl::FailedPreconditionError(
        absl::StrCat("runtime.device is \"", request.device,
                     "\", which only the tests' learner has; use auto, cpu, "
                     "cuda or cuda:N"));
  }
  // Its own default puts the fastest first.
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/0);
  const std::vector<Gpu> of_driver = SurveyGpus().gpus;
  const int seen = static_cast<int>(torch::cuda::device_count());
  const std::vector<Gpu> gpus = GpusOfTorch(of_driver, seen);
  const absl::StatusOr<std::optional<int>> gpu =
      ChooseGpu(request, local_rank, gpus);
  if (!gpu.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        gpu.status().message(),
        seen == 0 && !of_driver.empty()
            ? "; the driver knows GPUs, but this LibTorch is built without CUDA"
            : ""));
  }
  RankDevice chosen;
  chosen.name = DeviceName(*gpu, gpus);
  if (gpu->has_value()) {
    chosen.device =
        torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(**gpu));
  }
  return chosen;
}

}  // namespace flotilla
