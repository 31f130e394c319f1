#ifndef FLOTILLA_SERVICES_BASE_DEVICE_CHOICE_H_
#define FLOTILLA_SERVICES_BASE_DEVICE_CHOICE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/base/gpus.h"

namespace flotilla {

// Which device each learner of a host uses. Launcher and learner ask the same
// questions of the same answers, so that what the one accepts the other does.
// All of it is pure: GPUs are those that SurveyGpus() found.

// A runtime.device that is in no manual: flotilla-learner-rehearsal, a test
// program, has it. flotilla-learner refuses it.
inline constexpr char kRehearsalDevice[] = "rehearsal";

// In a refusal that would not be one if there were GPUs.
inline constexpr char kNoGpu[] = "there is none to use here";

struct DeviceRequest {
  std::string device = "auto";  // runtime.device: auto, cpu, cuda, cuda:N
  // --device-ids: the GPU of each learner on this host; empty: not given.
  std::vector<int> ids = {};
  int local_world_size = 1;
  // srun, mpirun or torchrun started this process as one of several, and may
  // have bound it to a GPU: if it sees one alone, that is its own.
  bool given_rank = false;
};

// Reads "0,0,1". Errors: kInvalidArgument unless it is a list of numbers of at
// least 0.
absl::StatusOr<std::vector<int>> ParseDeviceIds(const std::string& text);

// The index in `gpus` of learner `local_rank`'s; nullopt: no GPU, but the CPU
// (or kRehearsalDevice).
//
//   ids         ids[local_rank]
//   auto, cuda  the GPU of its own number; auto without any that this build can use:
//               the CPU
//   cuda:N      N, for one learner alone
//
// Learners share a GPU only where `ids` says so. Errors: kInvalidArgument,
// naming what there is and the remedy.
absl::StatusOr<std::optional<int>> ChooseGpu(const DeviceRequest& request,
                                             int local_rank,
                                             const std::vector<Gpu>& gpus);

// What a learner calls its device: "cpu", "cuda:1 GPU-<uuid>", or "cuda:1"
// where the driver tells no UUID.
std::string DeviceName(std::optional<int> gpu, const std::vector<Gpu>& gpus);

// What two learners share if it is equal, of a name that DeviceName made: the
// GPU's UUID, which means the same in every container of a host, else the name
// on `host`. "" for a CPU.
std::string GpuIdentity(const std::string& device_name,
                        const std::string& host);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_DEVICE_CHOICE_H_
