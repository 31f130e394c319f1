#ifndef FLOTILLA_LEARNER_TRAINING_VERDICTS_H_
#define FLOTILLA_LEARNER_TRAINING_VERDICTS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <stop_token>

#include "absl/status/status.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/collective/collective.h"
#include "learner/training/loop_parts.h"
#include "learner/training/run_metrics.h"
#include "learner/training/run_state.h"

namespace flotilla {

// Whether what `progress` has committed is to be evaluated: by what all ranks
// share. evaluation.min_training_return wants a mean over 20 episodes, or over
// all of a metrics.episode_window that is smaller.
bool EvaluationIsDue(const v1::RunConfig& config, const Progress& progress,
                     const RunMetrics::Window& window);

// What evaluations say about the end of a run, on one rank. In a deterministic
// run that an evaluation may end, the verdict on update u acts at update u + k
// (evaluation.deterministic_delay_updates), however long it takes: every rank
// waits for it there, outside any collective.
//
//   rank 0      [ evaluates u .............. ]
//   all ranks   u  u + 1  ...  u + k  waits  ^  agrees, and commits u + k
//
// Every rank keeps what is to be evaluated until its verdict has acted: whoever
// is rank 0 when an evaluation is lost plays it again.
//
// Otherwise (also where rollouts are collected freely, so that no two runs are
// alike) verdicts act as soon as they come, and nobody waits.
//
// Not thread-safe: the training loop owns it.
class Verdicts {
 public:
  explicit Verdicts(const LoopParts& parts);

  bool awaited() const { return delay_ > 0; }

  // What is to be evaluated, oldest first, each with its round.
  const std::deque<Snapshot>& due() const { return due_; }

  // The highest round that is decided: its verdict is known, or an earlier one
  // ends the run.
  int64_t decided() const;

  // Whether the newest verdict ends the run, now or later.
  bool told_to_end() const;

  // In a new generation, on all ranks: takes over what rank `source` has, all of it
  // or nothing. Blocks for all. Errors: those of the collective.
  absl::Status Share(Collective* collective, int source, Progress* progress);

  // After each commit, on all ranks: forgets what has acted, and keeps what is
  // to be evaluated now, if `is_due`. Once the run is `solved` it keeps all: see
  // Solved.
  void Committed(bool is_due, bool solved, Progress* progress);

  // Blocks until the verdicts that act at `update` are there. `waits` is called
  // if there is a wait, with the update that is evaluated; `play` now and then
  // meanwhile, for rank 0 to evaluate. Ends early when the run is told to stop;
  // a signal to this process tells it to.
  // Errors: kAborted once `fence` is requested; those of `play`.
  absl::Status Await(int64_t update, std::stop_token fence,
                     const std::function<void(int64_t evaluated)>& waits,
                     const std::function<absl::Status()>& play) const;

  // Whether a verdict that acts at `update`, or has acted, ends the run.
  bool EndTheRun(int64_t update) const;

  // Whether one has ended it, at the committed `update`: the same on every rank
  // once they have shared, whichever of them was there when it did.
  bool Solved(int64_t update) const;

 private:
  // The newest verdict of this run; round 0 if there is none.
  v1::Evaluation Newest() const;

  const LoopParts parts_;
  const int64_t delay_;  // k; 0: verdicts act at once
  std::deque<Snapshot> due_;
  // Rounds up to this are of no account: they have acted, or are of a future
  // that a resumed run has not come to.
  int64_t ignored_ = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_VERDICTS_H_
