#ifndef FLOTILLA_LEARNER_TRAINING_INIT_FROM_H_
#define FLOTILLA_LEARNER_TRAINING_INIT_FROM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "learner/training/run_state.h"

namespace flotilla {

struct InitReport {
  int taken = 0;
  // How many the running mean and variance that came along is of; 0: none did.
  int64_t observations = 0;
  // What did not match: this network's, in its order, then the other's by name;
  // and by what one of both alone scales observations.
  std::vector<std::string>
      not_taken;  // "policy.weight: [6, 512] here, [4, 512] there"
};

// Gives `live` the weights of a checkpoint or of a run folder's newest, those
// whose name and shape match, its algorithm's copies of them (a target network)
// too, and the running mean and variance of observations, which the policy
// learned with, where both scale as many numbers. All else stays as it is:
// optimizer, counters, scaling of rewards. For a new run that begins with what
// another one learned (model.init_from).
//
// What came along is the sums that all ranks share, as after an update; no rank
// has noted it, so that ranks which all do this add none of it twice.
// Errors: those of LoadCheckpoint; kInvalidArgument if no weight matches.
absl::StatusOr<InitReport> InitializeFrom(const std::string& path,
                                          const LiveState& live);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_INIT_FROM_H_
