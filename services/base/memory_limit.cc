#include "services/base/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/cgroups.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// A file of one number; kNone if it is absent, or "max".
int64_t ReadBytes(const std::string& path) {
  uint64_t bytes = 0;
  if (!absl::SimpleAtoi(FirstLine(path), &bytes)) return kNone;
  return static_cast<int64_t>(
      std::min<uint64_t>(bytes, static_cast<uint64_t>(kNone)));
}

int64_t CgroupLimit(const std::string& root) {
  const CgroupFolders around = CgroupsAround("memory", root);
  int64_t least = kNone;
  for (const std::string& folder : around.v2) {
    least = std::min(least, ReadBytes(folder + "/memory.max"));
  }
  for (const std::string& folder : around.v1) {
    least = std::min(least, ReadBytes(folder + "/memory.limit_in_bytes"));
  }
  return least;
}

int64_t HostMemory(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string name, unit; file >> name;) {
    int64_t kib = 0;
    file >> kib;
    if (name == "MemTotal:") return kib * 1024;
    std::getline(file, unit);
  }
  return kNone;
}

}  // namespace

int64_t MemoryLimitBytes(const std::string& root) {
  const int64_t least = std::min(CgroupLimit(root), HostMemory(root));
  return least == kNone ? 0 : least;
}

MemoryBudget MemoryBudgetOf(const v1::RuntimeConfig& config, int learners,
                            int64_t limit_bytes) {
  if (config.memory_budget_bytes() > 0) {
    return {static_cast<double>(config.memory_budget_bytes()),
            "runtime.memory_budget_bytes"};
  }
  if (limit_bytes == 0) {
    return {std::numeric_limits<double>::infinity(), "no limit is known"};
  }
  learners = std::max(1, learners);
  return {static_cast<double>(limit_bytes) / 2 / learners,
          absl::StrCat("half of the ",
                       FormatBytes(static_cast<double>(limit_bytes)),
                       " that this host or cgroup has, by ", learners,
                       learners == 1 ? " learner" : " learners",
                       "; runtime.memory_budget_bytes is another")};
}

std::string FormatBytes(double bytes) {
  const char* const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", unit == 0 ? 0 : 1, bytes, units[unit]);
}

}  // namespace flotilla
