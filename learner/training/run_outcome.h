#ifndef FLOTILLA_LEARNER_TRAINING_RUN_OUTCOME_H_
#define FLOTILLA_LEARNER_TRAINING_RUN_OUTCOME_H_

#include <optional>
#include <string>

#include "flotilla/v1/summary.pb.h"
#include "learner/training/agreement.h"

namespace flotilla {

// How a rank's training ended.
enum class RunOutcome {
  kSolved,       // an evaluation reached evaluation.stop_return
  kCompleted,    // total_env_steps
  kStopped,      // flotilla stop
  kPreempted,    // SIGTERM, SIGUSR1, SIGUSR2, SIGHUP; saved
  kInterrupted,  // SIGINT; saved
};
v1::RunSummary::Status StatusOf(RunOutcome outcome);
std::string OutcomeName(RunOutcome outcome);  // "solved"

// What one rank has seen that ends the run.
struct StopSigns {
  bool solved = false;
  bool told_to_stop = false;
  bool preempted = false;
  bool interrupted = false;
};

// Makes all ranks stop at the same update, for the same reason: one rank's sign
// is enough.
class StopVotes {
 public:
  StopVotes(const StopSigns& mine, Agreement* agreement);

  // Why all ranks stop now that it is reduced; nullopt: they go on.
  std::optional<RunOutcome> Result(const Agreement& agreement) const;

 private:
  const Agreement::Vote solved_, told_to_stop_, preempted_, interrupted_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_RUN_OUTCOME_H_
