#ifndef FLOTILLA_LEARNER_TRAINING_EVALUATION_ROUNDS_H_
#define FLOTILLA_LEARNER_TRAINING_EVALUATION_ROUNDS_H_

#include <memory>
#include <optional>
#include <stop_token>

#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/algo/algorithm.h"
#include "learner/eval/evaluator.h"
#include "learner/training/recorder.h"
#include "learner/training/run_state.h"
#include "services/coordinator/coordinator_client.h"

namespace flotilla {

// Rank 0's evaluations during a run: one at a time, beside training. What comes
// of them goes to the coordinator, which tells every rank when to stop, and to
// the recorder; the best is kept as a checkpoint.
//
// Not thread-safe. All that is borrowed has to outlive it.
class EvaluationRounds {
 public:
  // `workers` are the training workers'; see EvaluationWorkers.
  EvaluationRounds(const v1::RunConfig& config, const EnvWorkerOptions& workers,
                   const Spaces& spaces, CoordinatorClient* coordinator,
                   Recorder* recorder);

  bool busy() const { return evaluator_.busy(); }

  // Begins a round with what has been learnt so far, and counts it. Never
  // blocks for it. Not while busy.
  void Begin(Algorithm* algorithm, Normalizer* normalizer, Progress* progress);

  // Takes in the round that has finished, if one has. Never blocks. A round
  // that failed is logged and skipped.
  void Take(Progress* progress);

  // Blocks until the one that runs has been taken in, or `stop`.
  void Await(Progress* progress, std::stop_token stop);

  // The newest that was taken in.
  const std::optional<v1::Evaluation>& last() const { return last_; }

 private:
  CoordinatorClient* const coordinator_;
  Recorder* const recorder_;
  Evaluator evaluator_;
  std::optional<v1::Evaluation> last_;
  Snapshot evaluated_;  // what the round that runs is an evaluation of
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_EVALUATION_ROUNDS_H_
