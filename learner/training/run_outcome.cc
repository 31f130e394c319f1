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

StopVotes::StopVotes(const StopSigns& mine, Agreement* agreement)
    : solved_(agreement->AddVote("solved", mine.solved)),
      told_to_stop_(agreement->AddVote("told_to_stop", mine.told_to_stop)),
      preempted_(agreement->AddVote("preempted", mine.preempted)),
      interrupted_(agreement->AddVote("interrupted", mine.interrupted)) {}

std::optional<RunOutcome> StopVotes::Result(const Agreement& agreement) const {
  if (agreement[interrupted_]) return RunOutcome::kInterrupted;
  if (agreement[preempted_]) return RunOutcome::kPreempted;
  if (agreement[solved_]) return RunOutcome::kSolved;
  if (agreement[told_to_stop_]) return RunOutcome::kStopped;
  return std::nullopt;
}

}  // namespace flotilla
