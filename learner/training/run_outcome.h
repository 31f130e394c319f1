#ifndef FLOTILLA_LEARNER_TRAINING_RUN_OUTCOME_H_
#define FLOTILLA_LEARNER_TRAINING_RUN_OUTCOME_H_

#include <optional>
#include <string>

#include "learner/training/agreement.h"

namespace flotilla {

// How a rank's training ended.
enum class RunOutcome {
  kSolved,       // an evaluation reached evaluation.stop_return
  kCompleted,    // total_env_steps
  kStopped,      // flotilla stop
  kPreempted,    // SIGTERM, SIGUSR1; saved
  kInterrupted,  // SIGINT; saved
};
std::string OutcomeName(RunOutcome outcome);

// Why all ranks stop after what they have just agreed on, from reduced values
// alone: all at the same update. nullopt: they have no reason.
std::optional<RunOutcome> ReasonToStop(const Agreement& agreement);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_RUN_OUTCOME_H_
