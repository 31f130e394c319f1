#ifndef FLOTILLA_LEARNER_TRAINING_TRAINING_LOOP_H_
#define FLOTILLA_LEARNER_TRAINING_TRAINING_LOOP_H_

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/collective/collective.h"
#include "learner/training/changes.h"
#include "learner/training/iteration.h"
#include "learner/training/leader.h"
#include "learner/training/loop_parts.h"
#include "learner/training/phase_reporter.h"
#include "learner/training/run_clock.h"
#include "learner/training/run_metrics.h"
#include "learner/training/run_outcome.h"
#include "learner/training/run_state.h"
#include "learner/training/verdicts.h"
#include "services/base/metrics.h"

namespace flotilla {

// The training loop of one rank, once everything is there to train with:
//
//   join a generation -> meet its ranks -> take the state that is furthest
//     -> an Iteration after another -> all ranks are at the end -> conclude
//
// A lost peer fences the generation: whoever is still there goes back to its
// last committed update and joins the next one.
//
// Not thread-safe.
class TrainingLoop {
 public:
  // `hangs` is called, on another thread, when training hangs.
  TrainingLoop(const LoopParts& parts, const LeaderOptions& leader,
               std::function<void(const absl::Status&)> hangs);

  // Goes on from `progress`; its state has been loaded if it `has_state`. Before
  // Run.
  void BeginAt(const Progress& progress, bool has_state);

  // Blocks until the run is over. Errors: see Train; kResourceExhausted if it
  // failed elsewhere, with who gave up.
  absl::StatusOr<RunOutcome> Run();

  const Progress& progress() const { return progress_; }

 private:
  absl::Status JoinNextGeneration();
  bool WasPreempted() const;
  absl::StatusOr<RunOutcome> RunGeneration();
  std::string Layout() const;
  absl::Status CheckThatAllTrainTheSame() const;
  absl::Status TakeStateThatIsFurthest();
  void CountRestarts();
  absl::Status Evaluate(bool is_due, bool solved = false);
  absl::Status GiveUpIfBarren(const absl::Status& ended);
  void KeepCommitted();
  absl::StatusOr<RunOutcome> AgreeWhyToStop();
  void LeaveGeneration(const absl::Status& why);
  absl::Status AwaitAllRanks(RunOutcome outcome);
  void SaveReplay();
  v1::RunSummary Summarize() const;
  absl::Status Conclude(RunOutcome outcome);
  void Enter(v1::Phase phase, const std::string& waits_for);
  void Describe(v1::Heartbeat* beat) const;
  void Refresh(v1::Heartbeat* beat) const;  // from any thread
  bool leads() const { return assignment_.rank() == 0; }

  const LoopParts parts_;
  const LeaderOptions leader_options_;
  RunClock clock_;
  RunMetrics metrics_;
  Changes changes_;
  Verdicts verdicts_;

  // Of one generation.
  v1::Assignment assignment_;
  std::unique_ptr<Collective> collective_;
  std::stop_token fence_;

  Progress progress_;  // committed
  bool has_state_ = false;
  std::vector<Metric> newest_line_;  // of that update, if it was due
  Snapshot committed_;  // to go back to; empty where nothing is undone
  std::vector<std::string> parameters_sha256_;  // of all ranks, at the end

  // Generations in a row of the same learners, none of which made an update.
  int barren_ = 0;
  absl::Time barren_since_;
  int64_t barren_update_ = -1;
  std::vector<std::string> barren_learners_;

  std::unique_ptr<Leader> leader_;  // rank 0 only

  PhaseReporter phases_;  // its watchdog goes before what it describes
  Iteration iteration_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_TRAINING_LOOP_H_
