#include "learner/training/system_usage.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

#include "services/base/gpus.h"

namespace flotilla {

SystemUsage::SystemUsage(torch::Device device)
    : device_(device), before_(ReadCpu()), sample_{{"system/cpu_percent", 0}} {}

// The first line of /proc/stat: user nice system idle iowait irq softirq steal.
SystemUsage::CpuTicks SystemUsage::ReadCpu() {
  std::ifstream stat("/proc/stat");
  std::string label;
  stat >> label;
  CpuTicks ticks;
  for (int i = 0; i < 8; ++i) {
    int64_t value = 0;
    stat >> value;
    ticks.all += value;
    if (i != 3 && i != 4) ticks.busy += value;
  }
  return ticks;
}

const std::vector<Metric>& SystemUsage::Sample() {
  const double now = std::chrono::duration<double>(
                         std::chrono::steady_clock::now().time_since_epoch())
                         .count();
  if (now - sampled_at_ < 1) return sample_;
  const CpuTicks ticks = ReadCpu();
  if (ticks.all == before_.all) return sample_;
  sample_.front().value =
      100.0 * (ticks.busy - before_.busy) / (ticks.all - before_.all);
  sample_.resize(1);
  if (device_.is_cuda()) {
    if (const auto use = MeasureGpu(std::max<int>(0, device_.index()))) {
      sample_.push_back({"system/gpu_percent", use->percent});
      sample_.push_back(
          {"system/gpu_memory_bytes", static_cast<double>(use->memory_bytes)});
    }
  }
  before_ = ticks;
  sampled_at_ = now;
  return sample_;
}

}  // namespace flotilla
