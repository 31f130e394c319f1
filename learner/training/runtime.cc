#include "learner/training/runtime.h"

#include <malloc.h>

#include <algorithm>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

int Cores() { return std::max(1u, std::thread::hardware_concurrency()); }

}  // namespace

absl::StatusOr<torch::Device> ChooseDevice(const v1::RuntimeConfig& config,
                                           int local_rank) {
  const std::string& name = config.device();
  if (name == "cpu") return torch::Device(torch::kCPU);
  const int gpus = static_cast<int>(torch::cuda::device_count());
  int index = local_rank;
  if (name == "auto") {
    if (gpus == 0) return torch::Device(torch::kCPU);
    // More ranks than GPUs share them, round robin.
    return torch::Device(torch::kCUDA, local_rank % gpus);
  }
  if (name.rfind("cuda:", 0) == 0) {
    index = atoi(name.c_str() + 5);
  } else if (name != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat(
        "runtime.device is \"", name, "\"; use auto, cpu, cuda or cuda:N"));
  }
  if (index >= gpus) {
    return absl::FailedPreconditionError(absl::StrCat(
        "runtime.device is \"", name, "\" and this is local rank ", local_rank,
        ", but LibTorch sees ", gpus,
        " GPUs; use --set runtime.device=cpu, or fewer learners on this node"));
  }
  return torch::Device(torch::kCUDA, index);
}

void KeepMemory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

void SetThreads(const v1::RunConfig& config, int local_world_size) {
  const int wanted = config.runtime().torch_threads();
  at::set_num_threads(wanted > 0 ? wanted
                                 : std::max(1, Cores() / local_world_size));
}

int EnvThreads(const v1::EnvConfig& config, int local_world_size) {
  if (config.threads() > 0) return config.threads();
  return std::max(1, Cores() / (local_world_size * config.num_workers()));
}

}  // namespace flotilla
