#include "launcher/core_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "services/base/cgroups.h"
#include "services/base/env_origin.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

// Env workers of one learner that run on this host because of it.
int LocalWorkers(const v1::EnvConfig& env) {
  const auto origin = ParseEnvOrigin(env.server());
  if (origin.ok() && origin->kind == EnvOrigin::Kind::kRunning) return 0;
  return env.num_workers() - env.remote_workers();
}

std::string Cores(int64_t count) {
  return absl::StrCat(count, count == 1 ? " core" : " cores");
}

// Part `index` of `parts` of them, as equal as can be.
std::vector<int> Part(const std::vector<int>& cores, int index, int parts) {
  const auto at = [&](int i) {
    return cores.begin() + std::ssize(cores) * i / parts;
  };
  return {at(index), at(index + 1)};
}

// How many "0-3,8" are, as the kernel writes them; 0 if it is no such list.
int CountListed(const std::string& list) {
  int count = 0;
  for (const std::string& range :
       std::vector<std::string>(absl::StrSplit(list, ','))) {
    const std::pair<std::string, std::string> ends =
        absl::StrSplit(range, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.first, &first)) return 0;
    if (ends.second.empty()) {
      last = first;
    } else if (!absl::SimpleAtoi(ends.second, &last)) {
      return 0;
    }
    if (first < 0 || last < first) return 0;
    count += last - first + 1;
  }
  return count;
}

// Whether this process is a rank that was bound to `cores` of its own, rather than one
// of several that share them: there are as many for each, or too few to share.
bool IsBoundRank(const Topology& topology, int64_t cores, int around) {
  const int ranks = topology.local_world_size;
  return topology.one_rank && (ranks > cores || ranks * cores <= around);
}

}  // namespace

int CoresAround(const std::string& root) {
  int least = CountListed(FirstLine(root + "/sys/devices/system/cpu/online"));
  const auto take = [&](const std::string& file) {
    const int count = CountListed(FirstLine(file));
    if (count > 0 && (least == 0 || count < least)) least = count;
  };
  const CgroupFolders cgroups = CgroupsAround("cpuset", root);
  for (const std::string& folder : cgroups.v2) {
    take(folder + "/cpuset.cpus.effective");
  }
  for (const std::string& folder : cgroups.v1) take(folder + "/cpuset.cpus");
  return least;
}

absl::StatusOr<CorePlan> PlanCores(const v1::RunConfig& config,
                                   const Topology& topology,
                                   const std::vector<std::string>& devices,
                                   const std::vector<int>& usable, int around) {
  const v1::Placement placement = config.runtime().placement();
  const int learners = topology.local_world_size;
  const int processes = learners * (1 + LocalWorkers(config.env()));
  const int64_t cores = std::ssize(usable);
  CorePlan plan;
  if (placement == v1::FREE) {
    plan.why = "runtime.placement is FREE";
    return plan;
  }
  if (placement == v1::PINNED) {
    if (IsBoundRank(topology, cores, around)) {
      plan.cores.push_back(usable);
      plan.why = "runtime.placement is PINNED, and these are its own";
      return plan;
    }
    if (learners > cores) {
      return absl::InvalidArgumentError(absl::StrCat(
          "runtime.placement is PINNED, and ", learners,
          " learners are more than the ", Cores(cores),
          " that this process may use; have fewer, or let it be FREE"));
    }
    plan.why = "runtime.placement is PINNED";
  } else if (topology.one_rank || topology.has_peers()) {
    plan.why = "who else is on this host is not known";
    return plan;
  } else if (std::ranges::any_of(devices, [](const std::string& device) {
               return device != "cpu";
             })) {
    plan.why = "learners compute on GPUs";
    return plan;
  } else if (processes <= cores) {
    plan.why = absl::StrCat("enough for all ", processes, " processes");
    return plan;
  } else if (learners > cores) {
    plan.why = absl::StrCat(learners, " learners outnumber ", Cores(cores));
    return plan;
  } else {
    plan.why = absl::StrCat(processes, " processes outnumber ", Cores(cores));
  }
  for (int i = 0; i < topology.num_learners; ++i) {
    plan.cores.push_back(Part(usable, topology.first_local_rank + i, learners));
  }
  return plan;
}

std::string CoreList(const std::vector<int>& cores) {
  std::vector<std::string> ranges;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) {
      ++last;
    }
    ranges.push_back(last == i ? absl::StrCat(cores[i])
                               : absl::StrCat(cores[i], "-", cores[last]));
    i = last + 1;
  }
  return absl::StrJoin(ranges, ",");
}

std::string DescribeCores(const CorePlan& plan, const Topology& topology) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < plan.cores.size(); ++i) {
    parts.push_back(absl::StrCat("rank ", topology.first_rank + i, " on ",
                                 CoreList(plan.cores[i])));
  }
  return absl::StrFormat("  %-18s %-25s (%s)\n", "cores",
                         plan.pinned() ? absl::StrJoin(parts, ", ") : "free",
                         plan.why);
}

}  // namespace flotilla
