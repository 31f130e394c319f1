#include "learner/collective/rank_device.h"

#include <torch/cuda.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace flotilla {

std::vector<Gpu> GpusOfTorch(std::vector<Gpu> of_driver, int seen) {
  // Another number: nobody knows which is which.
  if (of_driver.size() != static_cast<size_t>(seen)) of_driver.clear();
  of_driver.resize(seen);
  return of_driver;
}

absl::StatusOr<RankDevice> RankDeviceOf(const DeviceRequest& request,
                                        int local_rank, const GpuSurvey& survey,
                                        int seen) {
  const auto refused = [](auto... words) {
    return absl::FailedPreconditionError(absl::StrCat(words...));
  };
  if (request.device == kRehearsalDevice) {
    return refused("runtime.device is \"", request.device,
                   "\", which only the tests' learner has; use auto, cpu, "
                   "cuda or cuda:N");
  }
  if (seen == 0 && !survey.gpus.empty() && request.device != "cpu") {
    return refused("runtime.device is \"", request.device,
                   "\": NVIDIA's driver (", survey.driver, ") knows ",
                   survey.gpus.size(),
                   survey.gpus.size() == 1 ? " GPU" : " GPUs",
                   ", and CUDA can use none, as with a driver that is older "
                   "than CUDA wants; update it, or use --set "
                   "runtime.device=cpu");
  }
  const std::vector<Gpu> gpus = GpusOfTorch(survey.gpus, seen);
  const absl::StatusOr<std::optional<int>> gpu =
      ChooseGpu(request, local_rank, gpus);
  if (!gpu.ok()) {
    const absl::string_view why = gpu.status().message();
    const bool none = absl::StrContains(why, kNoGpu) && !survey.problem.empty();
    return refused(why, none ? "; " : "", none ? survey.problem : "");
  }
  RankDevice chosen;
  chosen.name = DeviceName(*gpu, gpus);
  if (gpu->has_value()) {
    chosen.device =
        torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(**gpu));
  }
  return chosen;
}

absl::StatusOr<RankDevice> ChooseRankDevice(const DeviceRequest& request,
                                            int local_rank) {
  // Its own default puts the fastest first.
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/0);
  return RankDeviceOf(request, local_rank, SurveyGpus(),
                      static_cast<int>(torch::cuda::device_count()));
}

}  // namespace flotilla
