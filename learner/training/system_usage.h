#ifndef FLOTILLA_LEARNER_TRAINING_SYSTEM_USAGE_H_
#define FLOTILLA_LEARNER_TRAINING_SYSTEM_USAGE_H_

#include <cstdint>
#include <vector>

#include "learner/torch.h"
#include "services/base/metrics.h"

namespace flotilla {

// How busy this host and this rank's GPU are. A few system calls, and no
// thread. Not thread-safe.
class SystemUsage {
 public:
  explicit SystemUsage(torch::Device device);

  // system/cpu_percent: of all of the host's cores, since the last call (100:
  // all busy). On a GPU also system/gpu_percent and system/gpu_memory_bytes. At
  // most one sample a second; the last one in between.
  const std::vector<Metric>& Sample();

 private:
  struct CpuTicks {
    int64_t busy = 0, all = 0;
  };
  static CpuTicks ReadCpu();

  const torch::Device device_;
  CpuTicks before_;
  double sampled_at_ = 0;  // seconds, of the steady clock
  std::vector<Metric> sample_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_SYSTEM_USAGE_H_
