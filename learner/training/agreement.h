#ifndef FLOTILLA_LEARNER_TRAINING_AGREEMENT_H_
#define FLOTILLA_LEARNER_TRAINING_AGREEMENT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "learner/collective/collective.h"

namespace flotilla {

// What the ranks agree on, once an iteration: a few numbers, summed over ranks,
// read once and acted on by everyone alike. Votes count the ranks that want
// something; one is enough.
//
// Not thread-safe.
class Agreement {
 public:
  enum Slot {
    kEnvSteps,        // taken in this iteration
    kSolvedVotes,     // the evaluation's stop flag was seen
    kStopVotes,       // flotilla stop
    kPreemptVotes,    // SIGTERM, SIGUSR1
    kInterruptVotes,  // SIGINT
    kEpisodes,        // finished in this iteration
    kWindowCount,     // each rank's share of the last 100 episodes
    kWindowReturnSum,
    kWindowLengthSum,
    kEnvRestarts,  // env workers', since the run began
    kCollectSeconds,
    kEnvSeconds,
    kInferenceSeconds,
    kUpdateSeconds,
    kPreempted,  // ranks whose rollout ended short
    kDropped,    // rollouts that were too old, in this iteration
    kNumSlots,
  };

  explicit Agreement(int world_size);

  void Set(Slot slot, double value) { values_[slot] = value; }
  // Further numbers that ride along: as many on every rank. Once.
  void SetExtra(std::span<const double> extra) {
    values_.insert(values_.end(), extra.begin(), extra.end());
  }

  // Sums over ranks. Blocks for the slowest. Errors: those of AllReduceSum.
  absl::Status Reduce(Collective* collective);

  double Sum(Slot slot) const { return values_[slot]; }
  double Mean(Slot slot) const { return values_[slot] / world_size_; }
  double MeanExtra(size_t i) const {
    return values_[kNumSlots + i] / world_size_;
  }
  // The extras' sums, from the i-th on.
  std::span<const double> SumsFrom(size_t i) const {
    return std::span(values_).subspan(kNumSlots + i);
  }

 private:
  int world_size_;
  std::vector<double> values_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_AGREEMENT_H_
