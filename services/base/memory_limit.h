#ifndef FLOTILLA_SERVICES_BASE_MEMORY_LIMIT_H_
#define FLOTILLA_SERVICES_BASE_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>

#include "flotilla/v1/config.pb.h"

namespace flotilla {

// How much memory the processes of this host may have together: the least of
// what the host has and what the cgroups around this process allow (v2 and v1).
// `root` is put before every path, for tests. 0 if nothing says.
int64_t MemoryLimitBytes(const std::string& root = "");

// What one of `learners` on this host may take, and in words where that comes
// from.
struct MemoryBudget {
  double bytes = 0;
  std::string origin;
};
MemoryBudget MemoryBudgetOf(const v1::RuntimeConfig& config, int learners,
                            int64_t limit_bytes = MemoryLimitBytes());

// "1.5 GB"
std::string FormatBytes(double bytes);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_MEMORY_LIMIT_H_
