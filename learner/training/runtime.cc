#include "learner/training/runtime.h"

#include <malloc.h>

#include <algorithm>
#include <thread>

namespace flotilla {
namespace {

constexpr int kWideLayer = 512;

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

int Cores() { return std::max(1u, std::thread::hardware_concurrency()); }

}  // namespace

void KeepMemory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

int TorchThreads(const v1::RunConfig& config, const Spaces& spaces,
                 int local_world_size) {
  if (const int wanted = config.runtime().torch_threads(); wanted > 0) {
    return wanted;
  }
  return IsWorthSharing(config.model(), spaces)
             ? std::max(1, Cores() / local_world_size)
             : 1;
}

int EnvThreads(const v1::EnvConfig& config, int local_world_size) {
  if (config.threads() > 0) return config.threads();
  return std::max(1, Cores() / (local_world_size * config.num_workers()));
}

}  // namespace flotilla
