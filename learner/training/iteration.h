#ifndef FLOTILLA_LEARNER_TRAINING_ITERATION_H_
#define FLOTILLA_LEARNER_TRAINING_ITERATION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/collective/collective.h"
#include "learner/training/agreement.h"
#include "learner/training/changes.h"
#include "learner/training/failure_budget.h"
#include "learner/training/loop_parts.h"
#include "learner/training/phase_reporter.h"
#include "learner/training/run_clock.h"
#include "learner/training/run_metrics.h"
#include "learner/training/run_outcome.h"
#include "learner/training/run_state.h"
#include "learner/training/stragglers.h"
#include "learner/training/verdicts.h"
#include "services/base/metrics.h"

namespace flotilla {

// One update, on one rank:
//
//   take a rollout -> algorithm.Update -> wait for a verdict, if one acts now
//     -> agree with the others -> commit
//
// Not thread-safe: the training loop owns it.
class Iteration {
 public:
  // What came of an update; the same on every rank.
  struct Result {
    std::vector<Metric> line;           // its metrics, if they are due
    std::optional<RunOutcome> outcome;  // why all ranks stop, if they do
    bool save = false;                  // a checkpoint is due
  };

  // All but `parts` is borrowed. `play`: what rank 0 does while verdicts are
  // awaited; see Verdicts::Await.
  Iteration(const LoopParts& parts, RunClock* clock, RunMetrics* metrics,
            PhaseReporter* phases, Changes* changes, const Verdicts* verdicts,
            std::function<absl::Status()> play);

  // Makes one update in the generation of `assignment`. All of it commits, into
  // `progress`, or none; weights are then undefined, and to be restored.
  // `asks_to_save`: this rank's clock wants a checkpoint.
  // Errors: those of the rollouts, the collective, the agreement and the
  // verdicts; kInternal, naming update, rank and where it comes from, if the
  // loss is not finite, or if ranks have different parameters
  // (distributed.digest_every_updates); kResourceExhausted, on every rank, if
  // too many rows fail.
  absl::StatusOr<Result> Run(const v1::Assignment& assignment,
                             Collective* collective, bool asks_to_save,
                             Progress* progress);

  // What this rank has seen that ends the run at update `update`.
  StopSigns LookForSigns(const v1::Assignment& assignment,
                         int64_t update) const;

 private:
  absl::StatusOr<std::vector<Metric>> Learn(const Experience& experience,
                                            const v1::Assignment& assignment,
                                            Collective* collective,
                                            const Progress& progress);

  const LoopParts parts_;
  RunClock* const clock_;
  RunMetrics* const metrics_;
  PhaseReporter* const phases_;
  Changes* const changes_;
  const Verdicts* const verdicts_;
  const std::function<absl::Status()> play_;
  Stragglers stragglers_;
  FailureBudget failures_;
  EnvCounts counted_;  // in what is committed
  EnvCounts told_;     // to the others, of update `told_of_`
  int64_t told_of_ = 0;
};

// Whether there are updates left to make.
bool NothingIsLeft(const v1::RunConfig& config, const Progress& progress);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_ITERATION_H_
