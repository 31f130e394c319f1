#include "learner/outcome.h"

namespace flotilla {

std::string OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kSolved:
      return "solved";
    case Outcome::kCompleted:
      return "completed";
    case Outcome::kStopped:
    case Outcome::kInterrupted:
      return "stopped";
    case Outcome::kPreempted:
      return "preempted";
  }
  return "unknown";
}

std::optional<Outcome> ReasonToStop(const Agreement& a) {
  if (a.Sum(Agreement::kInterruptVotes) > 0) return Outcome::kInterrupted;
  if (a.Sum(Agreement::kPreemptVotes) > 0) return Outcome::kPreempted;
  if (a.Sum(Agreement::kSolvedVotes) > 0) return Outcome::kSolved;
  if (a.Sum(Agreement::kStopVotes) > 0) return Outcome::kStopped;
  return std::nullopt;
}

}  // namespace flotilla
