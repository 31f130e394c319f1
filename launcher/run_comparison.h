#ifndef FLOTILLA_LAUNCHER_RUN_COMPARISON_H_
#define FLOTILLA_LAUNCHER_RUN_COMPARISON_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/chart.h"
#include "launcher/run_record.h"
#include "launcher/statistics.h"

namespace flotilla {

struct ComparisonOptions {
  std::string metric = "charts/episodic_return";
  bool over_time = false;  // x is wall time, else environment steps
  // "": runs of one configuration, the seed apart. "run": each by itself. "none":
  // all together. Else those that agree in these fields, with commas between
  // them.
  std::string group_by = {};
  // "mean", "iqm", or "auto": iqm where every group has 10 runs.
  std::string aggregate = "auto";
};

// Runs of one environment in groups: a line for each of them.
struct Comparison {
  Chart chart;
  std::string table;  // of final values, Markdown
  // What was left out or is not what it seems, a line each.
  std::vector<std::string> notes;
};

// Errors: kInvalidArgument, naming both, where runs that can be read are of
// different environments.
absl::Status CheckOneEnvironment(const std::vector<RunRecord>& runs);

// Compares `runs`. A run that ended before the others of its group counts on
// with its last value.
//
// Errors: CheckOneEnvironment's; kInvalidArgument for a metric that none of them
// has (with the nearest), for a field that does not exist, and where nothing is
// left to compare.
absl::StatusOr<Comparison> CompareRuns(const std::vector<RunRecord>& runs,
                                       const ComparisonOptions& options);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_RUN_COMPARISON_H_
