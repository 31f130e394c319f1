#ifndef FLOTILLA_LAUNCHER_CORE_PLAN_H_
#define FLOTILLA_LAUNCHER_CORE_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "launcher/topology.h"

namespace flotilla {

// Which cores the learners of this launcher and their env workers run on:
// runtime.placement.
struct CorePlan {
  // For each learner here; none: wherever the kernel puts it.
  std::vector<std::vector<int>> cores;
  std::string why;

  bool pinned() const { return !cores.empty(); }
};

// How many cores there are for this process and what runs beside it in the same job or
// container, whatever cores it is bound to itself (taskset, srun --cpu-bind): those of
// the cgroups around it, or of the host. 0: that is not known. `root` is put before
// every path, for tests.
int CoresAround(const std::string& root = "");

// Works it out for `usable` cores, those that this launcher may itself use; `around` is
// CoresAround().
//
// A learner and its workers take turns, so that one core does for all of them,
// and waking each other there costs a tenth of what it does across cores: where
// they outnumber the cores, and learners do not, each learner gets an equal part
// of them. Only one launcher that has the host to itself can know that: nodes may
// share one, and so may ranks that srun and its like started.
//
// PINNED has learners share the cores out all the same. But a rank that was bound to
// cores of its own keeps all of them: its cores are taken for that where all ranks of
// the host may have as many, or where they are too few for all.
//
// Errors: kInvalidArgument for runtime.placement PINNED where learners outnumber the
// cores, of no such rank.
absl::StatusOr<CorePlan> PlanCores(const v1::RunConfig& config,
                                   const Topology& topology,
                                   const std::vector<std::string>& devices,
                                   const std::vector<int>& usable, int around);

// The row of a dry run: "  cores    rank 0: 0-1; rank 1: 2-3   (...)\n".
std::string DescribeCores(const CorePlan& plan, const Topology& topology);

// "0-3,8", as taskset has them.
std::string CoreList(const std::vector<int>& cores);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_CORE_PLAN_H_
