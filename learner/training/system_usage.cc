#include "learner/training/system_usage.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

// The first line of /proc/stat: user nice system idle iowait irq softirq steal.
SystemUsage::CpuTicks ReadCpu() {
  std::ifstream stat("/proc/stat");
  std::string label;
  stat >> label;
  SystemUsage::CpuTicks ticks;
  for (int i = 0; i < 8; ++i) {
    int64_t value = 0;
    stat >> value;
    ticks.all += value;
    if (i != 3 && i != 4) ticks.busy += value;
  }
  return ticks;
}

std::optional<double> ReadMemory() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0, resident = 0;
  if (!(statm >> pages >> resident)) return std::nullopt;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

SystemUsage::Sources SourcesOf(torch::Device device) {
  SystemUsage::Sources sources;
  sources.seconds = [] {
    return std::chrono::duration<double>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  sources.cpu = ReadCpu;
  sources.memory_bytes = ReadMemory;
  sources.gpu = [device] {
    return device.is_cuda() ? MeasureGpu(std::max<int>(0, device.index()))
                            : GpuUse();
  };
  return sources;
}

// Of what a rank does not tell: no use is below 0.
constexpr double kUnknown = -1;

}  // namespace

const char* SystemUsage::NameOf(Kind kind) {
  switch (kind) {
    case kCpuPercent:
      return "system/cpu_percent";
    case kMemoryBytes:
      return "system/memory_bytes";
    case kGpuPercent:
      return "system/gpu_percent";
    case kGpuMemoryBytes:
      return "system/gpu_memory_bytes";
    case kKinds:
      break;
  }
  return "";
}

SystemUsage::SystemUsage(torch::Device device)
    : SystemUsage(SourcesOf(device)) {}

SystemUsage::SystemUsage(Sources sources) : sources_(std::move(sources)) {
  Sample();  // what the next is compared with
}

SystemUsage::Means SystemUsage::Sample() {
  const double now = sources_.seconds();
  // Updates of a few milliseconds can be over before the clock has ticked.
  if (sample_.size() == 2 &&
      sample_.back().cpu.all == sample_.front().cpu.all) {
    sample_.back().cpu = sources_.cpu();
  }
  if (sample_.size() < 2 || now - sample_.back().seconds >= 1) {
    const GpuUse gpu = sources_.gpu();
    At at{.seconds = now, .cpu = sources_.cpu(), .value = {}};
    at.value[kMemoryBytes] = sources_.memory_bytes();
    at.value[kGpuPercent] = gpu.percent;
    if (gpu.memory_bytes) {
      at.value[kGpuMemoryBytes] = static_cast<double>(*gpu.memory_bytes);
    }
    sample_.push_back(at);
    // One older than the window stays: the CPU's ticks are counted from it on.
    while (sample_.size() > 2 && now - sample_[1].seconds >= kWindowSeconds) {
      sample_.pop_front();
    }
  }
  Means means;
  const CpuTicks first = sample_.front().cpu, last = sample_.back().cpu;
  if (last.all > first.all) {
    means[kCpuPercent] = 100.0 * static_cast<double>(last.busy - first.busy) /
                         static_cast<double>(last.all - first.all);
  }
  for (const Kind kind : {kMemoryBytes, kGpuPercent, kGpuMemoryBytes}) {
    double sum = 0, count = 0;
    for (const At& at : sample_) {
      const bool old = sample_.back().seconds - at.seconds >= kWindowSeconds;
      if (old || !at.value[kind]) continue;
      sum += *at.value[kind];
      ++count;
    }
    if (count > 0) means[kind] = sum / count;
  }
  return means;
}

UsageOfRanks::UsageOfRanks(const SystemUsage::Means& mine,
                           Agreement* agreement) {
  for (int kind = 0; kind < SystemUsage::kKinds; ++kind) {
    of_rank_[kind] = agreement->AddPerRank(
        SystemUsage::NameOf(static_cast<SystemUsage::Kind>(kind)),
        mine[kind].value_or(kUnknown));
  }
}

void UsageOfRanks::AppendTo(const Agreement& agreement,
                            std::vector<Metric>* line) const {
  for (int kind = 0; kind < SystemUsage::kKinds; ++kind) {
    const std::string name =
        SystemUsage::NameOf(static_cast<SystemUsage::Kind>(kind));
    const Agreement::Ranks ranks = agreement[of_rank_[kind]];
    std::vector<Metric> each;
    double sum = 0;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (ranks[rank] == kUnknown) continue;
      sum += ranks[rank];
      each.push_back({absl::StrCat(name, "/rank_", rank), ranks[rank]});
    }
    if (each.empty()) continue;
    line->push_back({name, sum / static_cast<double>(each.size())});
    line->insert(line->end(), each.begin(), each.end());
  }
}

}  // namespace flotilla
