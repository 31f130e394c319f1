#include "services/base/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
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

// The least limit of the cgroup at `path` and those around it. In a container,
// where its own cgroup is mounted as the root, that one counts.
int64_t LeastOf(const std::string& mount, std::string path,
                const std::string& file) {
  int64_t least = ReadBytes(absl::StrCat(mount, "/", file));
  while (path.size() > 1) {
    least = std::min(least, ReadBytes(absl::StrCat(mount, path, "/", file)));
    path.resize(path.rfind('/'));
  }
  return least;
}

int64_t CgroupLimit(const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  int64_t least = kNone;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // hierarchy:controllers:path; v2 has hierarchy 0 and no controllers.
    const std::vector<std::string> fields =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3 || fields[2].empty() || fields[2][0] != '/') {
      continue;
    }
    if (fields[0] == "0") {
      least = std::min(least, LeastOf(mount, fields[2], "memory.max"));
    } else if (fields[1] == "memory") {
      least = std::min(least, LeastOf(mount + "/memory", fields[2],
                                      "memory.limit_in_bytes"));
    }
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
