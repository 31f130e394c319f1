#include "launcher/core_plan.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/base/env_origin.h"

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

}  // namespace

absl::StatusOr<CorePlan> PlanCores(const v1::RunConfig& config,
                                   const Topology& topology,
                                   const std::vector<std::string>& devices,
                                   const std::vector<int>& usable) {
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
