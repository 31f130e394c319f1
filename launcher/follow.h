#ifndef FLOTILLA_LAUNCHER_FOLLOW_H_
#define FLOTILLA_LAUNCHER_FOLLOW_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/json.h"
#include "services/base/run_folder.h"

// Evaluation beside a run: each checkpoint as it appears, from any host that sees
// the folder.

namespace flotilla {

// RUN/evaluations.jsonl: a line for each checkpoint that was evaluated, names as
// in metrics.jsonl.
//
//   {"checkpoint": "step_000000000512", "global_step": 512, "update": 4,
//    "wall_seconds": 1.5, "episodes": 10, "eval/mean_return": 9.4,
//    "eval/min_return": 8, "eval/max_return": 11, "eval/mean_length": 9.4,
//    "eval/update": 4, (the means of episodes' own metrics,)
//    "seconds": 0.7, "weights_sha256": "..."}
//
// Whoever has it open is the run's only follower. Not thread-safe.
class FollowLog {
 public:
  // Makes the file if there is none, and removes a last line that is cut off.
  // Errors: kFailedPrecondition if somebody else has it; kDataLoss, naming the
  // line, if one is not of ours; what the system says.
  static absl::StatusOr<std::unique_ptr<FollowLog>> Open(const RunFolder& run);

  ~FollowLog();
  FollowLog(const FollowLog&) = delete;

  // Whether a checkpoint of this name with these weights has a line.
  bool Has(const std::string& checkpoint, const std::string& weights) const;

  // Adds a line; it is on the disk when this returns. Errors: what the system
  // says, kResourceExhausted of a full disk, after which it may be added again;
  // kFailedPrecondition if the file was removed or replaced.
  absl::Status Append(const Json& line);

 private:
  FollowLog(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status Read();

  const std::string path_;
  const int fd_;
  int64_t whole_ = -1;  // the size of its whole lines, if a part of one follows
  std::set<std::pair<std::string, std::string>> done_;
};

// Names of the checkpoints in `folder`, by their steps.
std::vector<std::string> ListCheckpoints(const std::string& folder);

// Hex sha256 of a checkpoint's weights, as its SHA256SUMS has it; nullopt if there
// is no such file (any more).
std::optional<std::string> WeightsSha256(const std::string& checkpoint);

// Links, or copies, the files of `checkpoint` into the new folder `held`, where
// the run cannot remove them.
// Errors: kNotFound if the run removes it meanwhile; kDataLoss if a file of it is
// missing; what the system says.
absl::Status HoldCheckpoint(const std::string& checkpoint,
                            const std::string& held);

// Plays with the checkpoint in a folder, and says what learner/evaluate_main.h
// does. Errors: kCancelled if it was told to stop.
using PlayCheckpoint =
    std::function<absl::StatusOr<Json>(const std::string& checkpoint)>;

struct FollowOptions {
  absl::Duration poll = absl::Milliseconds(500);
  // Of each line that was written.
  std::function<void(const Json& line)> on_evaluated = [](const Json&) {};
  // Of what was left out, or waits for room on the disk, and why, in words.
  std::function<void(const std::string& text)> on_skipped =
      [](const std::string&) {};
  // Called once, when for the first time nothing is left to do but wait.
  std::function<void()> on_waiting = [] {};
};

// Evaluates every checkpoint of `run` that `log` does not have, in the order of
// steps, until the run is over and none is left, or `stop`. One that is removed
// before its turn is left out; so is one that cannot be played, until the next
// call: at once if it never will, else after three attempts. Checkpoints and lines wait
// for room on a full disk. A run that was preempted or killed is not over: it may
// go on. Returns how many could not be played. Blocks.
// Errors: kCancelled; those of `log`, of a full disk only at `stop`; kNotFound
// if the run's folder is gone.
absl::StatusOr<int> FollowRun(const RunFolder& run, const PlayCheckpoint& play,
                              const FollowOptions& options, FollowLog* log,
                              std::stop_token stop);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_FOLLOW_H_
