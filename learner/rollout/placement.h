#ifndef FLOTILLA_LEARNER_ROLLOUT_PLACEMENT_H_
#define FLOTILLA_LEARNER_ROLLOUT_PLACEMENT_H_

#include "flotilla/v1/config.pb.h"
#include "learner/torch.h"
#include "services/env/spaces.h"

namespace flotilla {

// DEVICE or HOST: where the rollouts of a learner on `device` lie while they are
// learned from, and what its replay has seen, as runtime.rollouts_on says.
// ROLLOUTS_AUTO is HOST for a CPU, and for a GPU on which they would take more than
// half of what is free now.
v1::RolloutsOn PlaceRollouts(const v1::RunConfig& config, const Spaces& spaces,
                             torch::Device device);

// The device of that, once `config` says which; ROLLOUTS_AUTO is DEVICE.
torch::Device MemoryOf(const v1::RunConfig& config, torch::Device device);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ROLLOUT_PLACEMENT_H_
