#ifndef FLOTILLA_LEARNER_NN_NETWORK_CHECK_H_
#define FLOTILLA_LEARNER_NN_NETWORK_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "learner/nn/network.h"
#include "learner/rollout/batch.h"
#include "learner/torch.h"
#include "services/env/spaces.h"

// What is asked of a network that is not ours before it learns.

namespace flotilla {

// "[1, 4]"
std::string ShapeText(const std::vector<int64_t>& shape);

// What each column of a policy output is: "one logit for each of the action's 6
// values".
std::string PolicyColumns(const ActionSpace& action);

// Observations that are all zeros; numbers are `numbers`.
Batch BlankBatch(const Spaces& spaces, int64_t rows, torch::Device device,
                 float numbers = 0);

// Tries `net`, initialised, on observations that say nothing, with and without
// gradients, and a copy of it: shapes, dtypes and device of what it puts out,
// gradients where its parameters say, the same from the copy.
// Errors: kInvalidArgument, what it has and what is wanted: "its policy has shape
// [1, 3], want [1, 6]: ...".
absl::Status CheckNetwork(const Network& net, const Spaces& spaces,
                          torch::Device device);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_NETWORK_CHECK_H_
