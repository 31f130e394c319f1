#include "learner/training/run_outcome.h"

namespace flotilla {

std::string OutcomeName(RunOutcome outcome) {
  switch (outcome) {
    case RunOutcome::kSolved:
      return "solved";
    case RunOutcome::kCompleted:
      return "completed";
    case RunOutcome::kStopped:
    case RunOutcome::kInterrupted:
      return "stopped";
    case RunOutcome::kPreempted:
      return "preempted";
  }
  return "unknown";
}

std::optional<RunOutcome> ReasonToStop(const Agreement& a) {
  if (a.Sum(Agreement::kInterruptVotes) > 0) return RunOutcome::kInterrupted;
  if (a.Sum(Agreement::kPreemptVotes) > 0) return RunOutcome::kPreempted;
  if (a.Sum(Agreement::kSolvedVotes) > 0) return RunOutcome::kSolved;
  if (a.Sum(Agreement::kStopVotes) > 0) return RunOutcome::kStopped;
  return std::nullopt;
}

}  // namespace flotilla
