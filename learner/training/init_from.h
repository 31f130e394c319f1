#ifndef FLOTILLA_LEARNER_TRAINING_INIT_FROM_H_
#define FLOTILLA_LEARNER_TRAINING_INIT_FROM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "learner/algo/algorithm.h"

namespace flotilla {

// What did not match: this network's, in its order, then the other's by name.
struct InitReport {
  int taken = 0;
  std::vector<std::string>
      not_taken;  // "policy.weight: [6, 512] here, [4, 512]"
};

// Gives `algorithm` the weights of a checkpoint or of a run folder's newest, those
// whose name and shape match; its copies of them (a target network) too. All else
// stays as it is: optimizer, counters, scaling. For a new run that begins with
// what another one learned (model.init_from).
// Errors: those of LoadCheckpoint; kInvalidArgument if nothing matches.
absl::StatusOr<InitReport> InitializeFrom(const std::string& path,
                                          Algorithm* algorithm);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_INIT_FROM_H_
