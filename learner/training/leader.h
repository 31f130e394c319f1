#ifndef FLOTILLA_LEARNER_TRAINING_LEADER_H_
#define FLOTILLA_LEARNER_TRAINING_LEADER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/coordinator.pb.h"
#include "flotilla/v1/summary.pb.h"
#include "learner/checkpoint/save_schedule.h"
#include "learner/eval/evaluator.h"
#include "learner/training/changes.h"
#include "learner/training/evaluation_rounds.h"
#include "learner/training/game_keeper.h"
#include "learner/training/loop_parts.h"
#include "learner/training/recorder.h"
#include "learner/training/run_outcome.h"
#include "learner/training/run_state.h"
#include "learner/training/verdicts.h"
#include "services/base/metrics.h"

namespace flotilla {

struct LeaderOptions {
  std::string run_folder;
  // Of checkpoints: the run's, whose sizes may be of all learners together.
  v1::RunConfig run_config;
  std::function<std::unique_ptr<Evaluator>()> make_evaluator;
  // Begins to keep games of this rank's environments, until the result goes; may
  // be empty. It is told how far the run is; null: none are kept.
  std::function<std::shared_ptr<GameKeeper>()> keep_games = {};
};

// What rank 0 does beside training: it writes the run's folder, evaluates, and
// ends the run for everyone.
//
// Not thread-safe: the training loop of rank 0 owns it.
class Leader {
 public:
  // Of a run that stands at `progress`. `changes` and what `parts` names must
  // outlive it.
  // Errors: those of Recorder::Open.
  static absl::StatusOr<std::unique_ptr<Leader>> Open(
      const LeaderOptions& options, const LoopParts& parts,
      const Changes* changes, const Progress& progress);

  // Writes what was changed in flight, and the metrics of the update that was
  // committed last, unless they are written: by the rank 0 before, or because they were not due (empty).
  void Record(const std::vector<Metric>& line, const Progress& progress);

  // Takes in evaluations that have finished, and begins one of what has been
  // learnt by now if that `is_due`. Blocks as EvaluationRounds::Take does.
  // Errors: those of PlayDue.
  absl::Status Evaluate(bool is_due, const Verdicts& verdicts,
                        Progress* progress);

  // Whether the clock wants a checkpoint after the update that comes.
  bool AsksToSave() const;

  // Evaluates on, where ranks wait for verdicts. Blocks likewise.
  // Errors: those of EvaluationRounds::Play.
  absl::Status PlayDue(const Verdicts& verdicts, Progress* progress);

  // Begins a checkpoint. Blocks only for one that is still being written.
  void Save(const Progress& progress);

  // Saves, evaluates what is left and what was learnt last, and writes the
  // summary: `summary` with what rank 0 alone knows. Blocks for all of it, but
  // not for an evaluation once this process or the run is told to stop. `enter`
  // is told what it does. Errors: those of PlayDue, of the last checkpoint and of
  // the summary.
  absl::Status Conclude(RunOutcome outcome, v1::RunSummary summary,
                        const Verdicts& verdicts,
                        const std::function<void(v1::Phase)>& enter,
                        Progress* progress);

  // Writes a summary that says so, of a run that cannot go on for `error`.
  void Fail(const absl::Status& error, const Progress& progress,
            v1::RunSummary summary);

  // That the run began anew; see Recorder.
  const std::string& started_over() const { return recorder_->started_over(); }

  // What goes wrong while training goes on, in words; "" if nothing.
  std::string trouble() const { return recorder_->trouble(); }

 private:
  Leader(const LeaderOptions& options, const LoopParts& parts,
         const Changes* changes, std::unique_ptr<Recorder> recorder);

  absl::Status EvaluateTheRest(const Verdicts& verdicts, Progress* progress);
  // Begins a checkpoint, which is there no sooner than this rank's replay.
  void BeginSaving(const Progress& progress);
  Snapshot SnapshotNow(const Progress& progress) const;

  const LoopParts parts_;
  const Changes* const changes_;
  const std::unique_ptr<Recorder> recorder_;
  EvaluationRounds evaluations_;
  const std::shared_ptr<GameKeeper> games_;  // may be null
  SaveClock save_clock_;
  double copy_seconds_ = 0;  // of the last checkpoint, while training waited
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_LEADER_H_
