#ifndef FLOTILLA_LEARNER_TRAINING_RECORDER_H_
#define FLOTILLA_LEARNER_TRAINING_RECORDER_H_

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/summary.pb.h"
#include "learner/checkpoint/checkpoint.h"
#include "learner/training/run_state.h"
#include "services/base/metrics.h"
#include "services/base/mutex.h"
#include "services/base/run_folder.h"

namespace flotilla {

// Rank 0's pen: metrics, checkpoints and the summary in the run's folder.
// Checkpoints are written on a thread of its own, one at a time, from a
// snapshot.
//
// Not thread-safe: the trainer of rank 0 owns it.
class Recorder {
 public:
  // What the folder holds of after `resumed_at` is set aside, if there is room; of
  // a run that begins (nullopt) that is all. Errors: those of the files it opens.
  static absl::StatusOr<std::unique_ptr<Recorder>> Open(
      const v1::RunConfig& config, const std::string& run_folder,
      const std::optional<Progress>& resumed_at);

  // Waits for a checkpoint that is being written.
  ~Recorder();

  void WriteMetrics(const Progress& progress,
                    const std::vector<Metric>& metrics);

  // Those of an update, unless they were written before, by this process or by
  // the rank 0 before it.
  void WriteUpdate(const Progress& progress,
                   const std::vector<Metric>& metrics);

  // What was changed in flight by `progress`, to the run's folder, unless it has
  // that. A failure is logged.
  void WriteChanges(const Progress& progress);

  // Whether a Save would have to wait for the one before.
  bool saving();

  // Begins writing a checkpoint of `snapshot`, once `after` is ready if it is
  // valid: one that is due, or the `best` so far. A failure is logged, with its
  // path and cause, and the run goes on.
  void Save(Snapshot snapshot, bool best, std::shared_future<void> after = {});

  // Of the checkpoint that is marked best, or is to be once it is written, if it is of
  // no later than what this run went on from; else that of none.
  double best_return() const;

  // Whether what was evaluated at `mean_return` is better than that. Waits for the one
  // that is being written if that decides it: had it failed, the one before would be
  // best.
  bool IsBest(double mean_return);

  // How long the last one took to write; 0: there was none yet.
  double save_seconds() const;

  // That the run began anew at step 0 though it had got further, in words; ""
  // if it did not. Constant.
  const std::string& started_over() const { return started_over_; }

  // Why the newest checkpoint was not written; "" if it was.
  std::string trouble() const;

  // Waits for the last Save. Errors: that save's.
  absl::Status FinishSaving();

  // Writes summary.json, whole or not at all: `summary` and what follows from
  // the configuration and from `progress`.
  absl::Status WriteSummary(const Progress& progress, v1::RunSummary summary);

 private:
  Recorder(const v1::RunConfig& config, const std::string& run_folder);
  void GoOnAt(const Progress& progress);

  const v1::RunConfig config_;
  const RunFolder folder_;
  CheckpointStore checkpoints_;
  std::string started_over_;
  std::vector<std::unique_ptr<MetricsSink>> sinks_;
  int64_t written_ = 0;  // the newest update that has its line
  std::string changes_;  // as the folder has them
  mutable Mutex mu_;
  double best_return_ ABSL_GUARDED_BY(mu_) = Progress().best_return;
  // Of the one that is marked best: less than that while a better one is being written.
  double best_written_ ABSL_GUARDED_BY(mu_) = Progress().best_return;
  std::string trouble_ ABSL_GUARDED_BY(mu_);
  double save_seconds_ ABSL_GUARDED_BY(mu_) = 0;
  std::future<absl::Status> saving_;  // last: it uses the others
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_RECORDER_H_
