#include "services/base/device_choice.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace flotilla {
namespace {

constexpr char kCuda[] = "cuda";

absl::Status Refused(const std::string& message) {
  return absl::InvalidArgumentError(message);
}

std::string Count(int number, const std::string& thing) {
  return absl::StrCat(number, " ", thing, number == 1 ? "" : "s");
}

std::string NotThere(const std::string& what, int index, int gpus) {
  return absl::StrCat(what, " names GPU ", index, ", but ",
                      gpus == 0
                          ? kNoGpu
                          : absl::StrCat("this host has ", Count(gpus, "GPU"),
                                         ", numbered from 0"),
                      " (CUDA_VISIBLE_DEVICES counts; see `flotilla doctor`)");
}

absl::StatusOr<std::optional<int>> FromIds(const DeviceRequest& request,
                                           int local_rank, int gpus) {
  const std::vector<int>& ids = request.ids;
  const std::string flag =
      absl::StrCat("--device-ids ", absl::StrJoin(ids, ","));
  const int learners = request.local_world_size;
  if (ids.size() != static_cast<size_t>(learners)) {
    return Refused(absl::StrCat(flag, " names ",
                                Count(static_cast<int>(ids.size()), "GPU"),
                                " for ", Count(learners, "learner"),
                                " on this host; name one for each, or give ",
                                "--nproc-per-node ", ids.size()));
  }
  if (request.device != "auto" && request.device != kCuda) {
    return Refused(absl::StrCat(flag, " contradicts runtime.device \"",
                                request.device, "\"; leave one of them out"));
  }
  for (const int id : ids) {
    if (id >= gpus) return Refused(NotThere(flag, id, gpus));
  }
  return ids[local_rank];
}

// The N of "cuda:N"; nullopt for any other device.
std::optional<int> NamedGpu(const std::string& device) {
  int index = -1;
  if (!absl::StartsWith(device, "cuda:") ||
      !absl::SimpleAtoi(device.substr(5), &index) || index < 0) {
    return std::nullopt;
  }
  return index;
}

// One number for each learner, as a remedy: "0,1,0".
std::string SharedIds(int learners, int gpus) {
  std::vector<int> ids;
  for (int i = 0; i < learners; ++i) ids.push_back(i % gpus);
  return absl::StrJoin(ids, ",");
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseDeviceIds(const std::string& text) {
  std::vector<int> ids;
  for (const auto part : absl::StrSplit(text, ',')) {
    int id = -1;
    if (!absl::SimpleAtoi(part, &id) || id < 0) {
      return Refused(absl::StrCat("--device-ids is \"", text,
                                  "\"; expected a GPU's number for each "
                                  "learner of this host, as in 0,1"));
    }
    ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<std::optional<int>> ChooseGpu(const DeviceRequest& request,
                                             int local_rank,
                                             const std::vector<Gpu>& all) {
  const int gpus = static_cast<int>(all.size());
  const int learners = request.local_world_size;
  const std::string& device = request.device;
  if (!request.ids.empty()) return FromIds(request, local_rank, gpus);
  if (device == "cpu" || (device == "auto" && gpus == 0)) return std::nullopt;
  if (device == kRehearsalDevice) return std::nullopt;
  const std::optional<int> named = NamedGpu(device);
  if (!named && device != "auto" && device != kCuda) {
    return Refused(absl::StrCat("runtime.device is \"", device,
                                "\"; use auto, cpu, cuda or cuda:N"));
  }
  const std::string what = absl::StrCat("runtime.device \"", device, "\"");
  if (gpus == 0) {
    return Refused(absl::StrCat(what, " needs a GPU, and ", kNoGpu,
                                "; use "
                                "--set runtime.device=cpu (see `flotilla "
                                "doctor`)"));
  }
  if (named.value_or(0) >= gpus) return Refused(NotThere(what, *named, gpus));
  if (request.given_rank && gpus == 1) return 0;
  if (named && learners > 1) {
    return Refused(absl::StrCat(
        what, " puts ", learners, " learners of this host on one GPU; use ",
        "runtime.device cuda, or share it on purpose: --backend gloo "
        "--device-ids ",
        absl::StrJoin(std::vector<int>(learners, *named), ",")));
  }
  if (learners > gpus) {
    return Refused(absl::StrCat(
        what, ": ", learners, " learners on this host, but ",
        Count(gpus, "GPU"), "; use --nproc-per-node ", gpus,
        ", or --set runtime.device=cpu, or share on purpose: --backend gloo "
        "--device-ids ",
        SharedIds(learners, gpus)));
  }
  return named.value_or(local_rank);
}

std::string DeviceName(std::optional<int> gpu, const std::vector<Gpu>& gpus) {
  if (!gpu) return "cpu";
  const std::string& uuid = gpus[*gpu].uuid;
  return absl::StrCat(kCuda, ":", *gpu, uuid.empty() ? "" : " ", uuid);
}

std::string GpuIdentity(const std::string& device_name,
                        const std::string& host) {
  if (!absl::StartsWith(device_name, kCuda)) return "";
  const size_t space = device_name.find(' ');
  return space == std::string::npos ? absl::StrCat(host, " ", device_name)
                                    : device_name.substr(space + 1);
}

}  // namespace flotilla
