#include "learner/training/runtime.h"

#include <malloc.h>
#include <stdlib.h>

#include <algorithm>
#include <optional>

#include "learner/torch.h"
#include "services/base/cores.h"

namespace flotilla {
namespace {

constexpr int kWideLayer = 512;
// Waking a sleeper costs as much, where virtual machines are slow at it.
constexpr absl::Duration kRingSpin = absl::Microseconds(50);

bool IsWorthSharing(const v1::ModelConfig& model, const Spaces& spaces) {
  if (!model.plugin().empty() || !model.torchscript().empty()) return true;
  const auto wide = [](int width) { return width >= kWideLayer; };
  return std::ranges::any_of(model.hidden(), wide) ||
         (model.recurrent() != v1::NONE && wide(model.recurrent_size())) ||
         std::ranges::any_of(model.leaf(),
                             [&](const v1::LeafConfig& leaf) {
                               return std::ranges::any_of(leaf.hidden(), wide);
                             }) ||
         std::ranges::any_of(spaces.observation, [](const LeafSpec& leaf) {
           return leaf.kind == LeafKind::kImage;
         });
}

// Cores of one learner: those it is confined to, or its share of all; of a quota its
// share in either case.
int Cores(int local_world_size) {
  const int usable = static_cast<int>(UsableCores().size());
  std::optional<double> quota = CpuQuota();
  if (!IsPinned()) return CoresToFill(usable, local_world_size, quota);
  if (quota.has_value()) *quota /= local_world_size;
  return CoresToFill(usable, /*sharers=*/1, quota);
}

}  // namespace

void KeepMemory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  // c10's allocator reads it when it first allocates.
  setenv("THP_MEM_ALLOC_ENABLE", "1", /*overwrite=*/0);
}

void SetArithmetic(const v1::RuntimeConfig& config) {
  at::Context& torch = at::globalContext();
  torch.setAllowTF32CuBLAS(config.precision() == v1::TF32);
  torch.setAllowTF32CuDNN(config.precision() == v1::TF32);
  torch.setDeterministicCuDNN(config.deterministic());
  torch.setBenchmarkCuDNN(!config.deterministic());
}

int TorchThreads(const v1::RunConfig& config, const Spaces& spaces,
                 int local_world_size) {
  if (const int wanted = config.runtime().torch_threads(); wanted > 0) {
    return wanted;
  }
  return IsWorthSharing(config.model(), spaces) ? Cores(local_world_size) : 1;
}

int EnvThreads(const v1::EnvConfig& config, int local_world_size) {
  if (config.threads() > 0) return config.threads();
  return std::max(1, Cores(local_world_size) / config.num_workers());
}

absl::Duration RingSpin(const v1::EnvConfig& config, int local_world_size) {
  const int processes = 1 + config.num_workers() - config.remote_workers();
  return processes <= Cores(local_world_size) ? kRingSpin
                                              : absl::ZeroDuration();
}

}  // namespace flotilla
