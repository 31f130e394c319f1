#ifndef FLOTILLA_LEARNER_COLLECTIVE_RANK_DEVICE_H_
#define FLOTILLA_LEARNER_COLLECTIVE_RANK_DEVICE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "learner/torch.h"
#include "services/base/device_choice.h"
#include "services/base/gpus.h"

namespace flotilla {

// What a rank computes on, and what it registers it as: ChooseBackend reads
// that of all ranks, and GetStatus shows it.
struct RankDevice {
  torch::Device device = torch::kCPU;
  std::string name = "cpu";  // "cuda:0 GPU-<uuid>"
};

// The device of learner `local_rank` of this host. Call it before anything else
// uses CUDA: it makes CUDA number GPUs as the driver does.
// Errors: kFailedPrecondition, naming what there is and the remedy.
absl::StatusOr<RankDevice> ChooseRankDevice(const DeviceRequest& request,
                                            int local_rank);

// The same of a host that was surveyed, where CUDA finds `seen` GPUs. Where the driver
// knows GPUs that this build is for, and CUDA finds none, no learner falls back to the
// CPU in silence.
absl::StatusOr<RankDevice> RankDeviceOf(const DeviceRequest& request,
                                        int local_rank, const GpuSurvey& survey,
                                        int seen);

// What a program chooses by: ChooseRankDevice, or a test's own.
using DeviceChooser = std::function<absl::StatusOr<RankDevice>(
    const DeviceRequest& request, int local_rank)>;

// The `seen` GPUs that LibTorch sees, described where the driver told of as
// many.
std::vector<Gpu> GpusOfTorch(std::vector<Gpu> of_driver, int seen);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_RANK_DEVICE_H_
