#include "learner/training/runtime.h"

#include <malloc.h>

#include <algorithm>
#include <thread>

#include "learner/torch.h"

namespace flotilla {
namespace {

int Cores() { return std::max(1u, std::thread::hardware_concurrency()); }

}  // namespace

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
