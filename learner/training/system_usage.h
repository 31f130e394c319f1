#ifndef FLOTILLA_LEARNER_TRAINING_SYSTEM_USAGE_H_
#define FLOTILLA_LEARNER_TRAINING_SYSTEM_USAGE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "learner/torch.h"
#include "learner/training/agreement.h"
#include "services/base/gpus.h"
#include "services/base/metrics.h"

namespace flotilla {

// How busy one rank keeps its host, as means over the last kWindowSeconds: a few
// system calls a second at most, and no thread. Never fails: what the system does
// not tell is left out.
//
// Not thread-safe.
class SystemUsage {
 public:
  static constexpr double kWindowSeconds = 20;

  enum Kind { kCpuPercent, kMemoryBytes, kGpuPercent, kGpuMemoryBytes, kKinds };
  // "system/cpu_percent": of all of the host's cores (100: all busy).
  // "system/memory_bytes": resident, of this process.
  // "system/gpu_percent", "system/gpu_memory_bytes": of this rank's GPU, by all
  // processes.
  static const char* NameOf(Kind kind);
  using Means = std::array<std::optional<double>, kKinds>;

  // Where the numbers come from; a test makes them up.
  struct CpuTicks {
    int64_t busy = 0, all = 0;
  };
  struct Sources {
    std::function<double()> seconds;  // of a steady clock
    std::function<CpuTicks()> cpu;    // since the host started
    std::function<std::optional<double>()> memory_bytes;
    std::function<GpuUse()> gpu;
  };

  // Those of this process, whose tensors are on `device`.
  explicit SystemUsage(torch::Device device);
  explicit SystemUsage(Sources sources);

  // Samples if the last one is a second old, and tells the means.
  Means Sample();

 private:
  struct At {
    double seconds;
    CpuTicks cpu;
    Means value;  // all but the CPU's
  };

  const Sources sources_;
  std::deque<At> sample_;  // the first may be older than the window
};

// What all ranks use, by way of their agreement: made before it is reduced, read
// afterwards.
class UsageOfRanks {
 public:
  UsageOfRanks(const SystemUsage::Means& mine, Agreement* agreement);

  // Of each kind the mean over those ranks that tell it, by its name, and each
  // rank's: "system/cpu_percent", "system/cpu_percent/rank_0".
  void AppendTo(const Agreement& agreement, std::vector<Metric>* line) const;

 private:
  std::array<Agreement::PerRank, SystemUsage::kKinds> of_rank_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_SYSTEM_USAGE_H_
