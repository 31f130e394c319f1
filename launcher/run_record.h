#ifndef FLOTILLA_LAUNCHER_RUN_RECORD_H_
#define FLOTILLA_LAUNCHER_RUN_RECORD_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/config.pb.h"
#include "services/base/run_folder.h"

// What a run's folder tells of it; nobody is asked.

namespace flotilla {

struct RunRecord {
  std::string path;
  // What the run's summary says ("solved", ...), "running", "unfinished" (it was
  // killed: no result, and nobody goes on with it), "unknown" (of another host,
  // and silent) or "unreadable" (its configuration is), and by what it is known.
  std::string status;
  std::string status_from;

  v1::RunConfig config;  // resolved
  // The configuration that comes with Flotilla and differs in the fewest fields,
  // of the same environment and algorithm; "" if there is none.
  std::string config_name;
  std::optional<int> learners;

  std::optional<double> eval_return;  // of the last evaluation
  std::optional<double> mean_return;  // of the newest training episodes
  std::optional<int64_t> steps;
  std::optional<double> wall_seconds;
  absl::Time started;  // when its configuration was written

  // What is wrong with its files, a line each.
  std::vector<std::string> notes;

  bool readable() const { return status != "unreadable"; }
  // The evaluation's, or the training's where there was none.
  std::optional<double> score() const {
    return eval_return ? eval_return : mean_return;
  }
};

// Whether a launcher of this host is at work in the folder.
bool IsHeldHere(const RunFolder& folder);

// Whether the run has come to a result (summary.json) and nobody has gone on with it
// since. True, too, while the launcher that has come to it is about to leave; of a run
// on another host, whose lock cannot be seen, the times of its files tell.
bool HasResult(const RunFolder& folder);

// Reads what there is at `path`, which HoldsRun(); what is broken is noted.
RunRecord ReadRunRecord(const std::string& path, absl::Time now);

// The runs in `folder`, or itself, by name, each once; folders in it are looked
// through, runs' own are not. Errors: kNotFound, kInvalidArgument if it is no folder.
absl::StatusOr<std::vector<std::string>> FindRunFolders(
    const std::string& folder);

// Leaves each run once, under the first of its paths: links, too, lead to one.
void KeepEachRunOnce(std::vector<std::string>* paths);

// In what runs differ: for each, the fields and their values, of all fields in
// which any two of them do; "learners" is one, seed is none. Runs of another
// environment or algorithm than the first of theirs are compared among
// themselves.
using RunDifferences = std::map<std::string, std::string>;
std::vector<RunDifferences> FindDifferences(const std::vector<RunRecord>& runs);

// "ppo.epochs=8 learners=2"
std::string DescribeDifferences(const RunDifferences& differences);

// Those of all runs in `folders`, in their order, each once. Errors: kInvalidArgument,
// naming it, if there is none in one of them; those of FindRunFolders.
absl::StatusOr<std::vector<RunRecord>> ReadRunRecords(
    const std::vector<std::string>& folders, absl::Time now);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_RUN_RECORD_H_
