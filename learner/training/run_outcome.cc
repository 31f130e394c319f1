#include "learner/training/run_outcome.h"

#include "absl/strings/ascii.h"

namespace flotilla {

v1::RunSummary::Status StatusOf(RunOutcome outcome) {
  switch (outcome) {
    case RunOutcome::kSolved:
      return v1::RunSummary::SOLVED;
    case RunOutcome::kCompleted:
      return v1::RunSummary::COMPLETED;
    case RunOutcome::kStopped:
    case RunOutcome::kInterrupted:
      return v1::RunSummary::STOPPED;
    case RunOutcome::kPreempted:
      return v1::RunSummary::PREEMPTED;
  }
  return v1::RunSummary::STATUS_UNSPECIFIED;
}

std::string OutcomeName(RunOutcome outcome) {
  return absl::AsciiStrToLower(v1::RunSummary::Status_Name(StatusOf(outcome)));
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
