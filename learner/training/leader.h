#ifndef FLOTILLA_LEARNER_TRAINING_LEADER_H_
#define FLOTILLA_LEARNER_TRAINING_LEADER_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "flotilla/v1/summary.pb.h"
#include "learner/actor/env_worker.h"
#include "learner/rollout/spaces.h"
#include "learner/training/evaluation_rounds.h"
#include "learner/training/iteration.h"
#include "learner/training/loop_parts.h"
#include "learner/training/recorder.h"
#include "learner/training/run_metrics.h"
#include "learner/training/run_outcome.h"
#include "learner/training/system_usage.h"

namespace flotilla {

struct LeaderOptions {
  std::string run_folder;
  EnvWorkerOptions workers = {};  // those of training; see EvaluationWorkers
  Spaces spaces = {};
};

// What rank 0 does beside training: it writes the run's folder, evaluates, and
// ends the run for everyone.
//
// Not thread-safe: the training loop of rank 0 owns it.
class Leader {
 public:
  // Of a run that stands at `progress`. What `parts` names must outlive it.
  // Errors: those of Recorder::Open.
  static absl::StatusOr<std::unique_ptr<Leader>> Open(
      const LeaderOptions& options, const LoopParts& parts,
      const Progress& progress);

  // Before a generation's first update.
  void BeforeUpdates(Progress* progress);

  // After each update that committed: metrics, evaluations, checkpoints. Blocks
  // only for a checkpoint that is still being written.
  void AfterUpdate(const Iteration::Result& result,
                   const RunMetrics::Window& window, Progress* progress);

  // Saves, evaluates what was learnt last, and writes the summary: `summary`
  // with what rank 0 alone knows. Blocks for all of it, but not for an
  // evaluation once this process is told to stop.
  // Errors: those of the last checkpoint and of the summary.
  absl::Status Conclude(RunOutcome outcome, v1::RunSummary summary,
                        Progress* progress);

  // What goes wrong while training goes on, in words; "" if nothing.
  std::string trouble() const { return recorder_->trouble(); }

 private:
  Leader(const LeaderOptions& options, const LoopParts& parts,
         std::unique_ptr<Recorder> recorder);

  void MaybeEvaluate(const RunMetrics::Window& window, Progress* progress);
  void MaybeSave(const Progress& progress);
  Snapshot SnapshotNow(const Progress& progress) const;

  const LoopParts parts_;
  const std::unique_ptr<Recorder> recorder_;
  EvaluationRounds evaluations_;
  SystemUsage usage_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_LEADER_H_
