#include "services/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "services/base/cgroups.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

// What the process had before PinTo.
cpu_set_t all;
std::atomic<bool> pinned = false;

}  // namespace

std::vector<int> UsableCores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return {0};
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  }
  return cores;
}

std::optional<double> CpuQuota(const std::string& root) {
  const CgroupFolders around = CgroupsAround("cpu", root);
  std::optional<double> least;
  const auto take = [&](const std::string& quota, const std::string& period) {
    // "max", or -1: there is none.
    int64_t time = 0, of = 0;
    if (!absl::SimpleAtoi(quota, &time) || !absl::SimpleAtoi(period, &of) ||
        time <= 0 || of <= 0) {
      return;
    }
    const double cores = static_cast<double>(time) / static_cast<double>(of);
    least = std::min(cores, least.value_or(cores));
  };
  for (const std::string& folder : around.v2) {
    const std::pair<std::string, std::string> words =
        absl::StrSplit(FirstLine(folder + "/cpu.max"), absl::MaxSplits(' ', 1));
    take(words.first, words.second);
  }
  for (const std::string& folder : around.v1) {
    take(FirstLine(folder + "/cpu.cfs_quota_us"),
         FirstLine(folder + "/cpu.cfs_period_us"));
  }
  return least;
}

int CoresToFill(int cores, int sharers, std::optional<double> quota) {
  int filled = cores / std::max(1, sharers);
  if (quota.has_value() && *quota < cores) {
    filled = std::min(
        filled, static_cast<int>(std::ceil(*quota / std::max(1, sharers))));
  }
  return std::max(1, filled);
}

int CoresToFill(int sharers) {
  return CoresToFill(static_cast<int>(UsableCores().size()), sharers,
                     CpuQuota());
}

bool PinTo(const std::vector<int>& cores) {
  cpu_set_t mask, before;
  CPU_ZERO(&mask);
  for (const int core : cores) {
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &mask);
  }
  if (sched_getaffinity(0, sizeof(before), &before) != 0 ||
      sched_setaffinity(0, sizeof(mask), &mask) != 0) {
    return false;
  }
  if (!pinned) all = before;
  pinned = true;
  return true;
}

void Unpin() {
  if (pinned) sched_setaffinity(0, sizeof(all), &all);
}

bool IsPinned() { return pinned; }

}  // namespace flotilla
