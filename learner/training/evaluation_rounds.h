#ifndef FLOTILLA_LEARNER_TRAINING_EVALUATION_ROUNDS_H_
#define FLOTILLA_LEARNER_TRAINING_EVALUATION_ROUNDS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/eval/evaluator.h"
#include "learner/training/loop_parts.h"
#include "learner/training/recorder.h"
#include "learner/training/run_state.h"
#include "services/base/metrics.h"

namespace flotilla {

// What metrics.jsonl gets of an evaluation: the means, the update that it is of, and
// those of the environment's own metrics that are not called as one of these.
std::vector<Metric> MetricsOf(const v1::Evaluation& evaluation);

// Rank 0's evaluations during a run: one at a time, beside training. What comes
// of them goes to the coordinator, which tells every rank when to stop, and to
// the recorder; the best is kept as a checkpoint.
//
// A coordinator that was away is told again, by Take and Play: all ranks may wait
// for what it has not heard.
//
// Not thread-safe. All that is borrowed has to outlive it.
class EvaluationRounds {
 public:
  EvaluationRounds(const LoopParts& parts, std::unique_ptr<Evaluator> evaluator,
                   Recorder* recorder);

  bool busy() const { return evaluator_->busy(); }

  // Begins a round with what has been learnt so far, and counts it. Never
  // blocks for it. Not while busy.
  void Begin(Progress* progress);

  // Takes in the round that has finished, if one has. A round that failed is
  // logged and skipped. Blocks only for a checkpoint that is still being written,
  // where that decides what is best, or is followed by a better one.
  void Take(Progress* progress);

  // For runs that wait for their verdicts: takes in what has finished, and
  // begins the oldest of what is `due` and comes after round `decided`. Blocks as
  // Take does. One that failed is played again.
  // Errors: kResourceExhausted when one has failed too often in a row.
  absl::Status Play(const std::deque<Snapshot>& due, int64_t decided,
                    Progress* progress);

  // Blocks until the one that runs has been taken in, or `stopped` says so, which
  // is asked every few milliseconds.
  void Await(Progress* progress, const std::function<bool()>& stopped);

  // Tells the coordinator of the newest, if it is not known to have heard of it.
  // Blocks for that, for seconds where it is away.
  void FinishTelling();

  // The newest that was taken in.
  const std::optional<v1::Evaluation>& last() const { return last_; }
  // Whether that ends the run, whoever has heard of it.
  bool ended() const { return last_.has_value() && last_->stop(); }

 private:
  absl::Status TakeFinished(Progress* progress);
  void Tell();
  void BeginWith(Snapshot evaluated);
  void PlayEvaluated();
  // Whom it is to play against; null: nobody.
  std::shared_ptr<const Opponents> EarlierSelves() const;

  const LoopParts parts_;
  Recorder* const recorder_;
  const std::unique_ptr<Evaluator> evaluator_;
  std::optional<v1::Evaluation> last_;
  Snapshot evaluated_;  // what the round that runs is an evaluation of
  int failures_ = 0;    // in a row
  absl::Time tell_at_ = absl::InfinitePast();  // the coordinator, no sooner
  std::future<void> telling_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_EVALUATION_ROUNDS_H_
