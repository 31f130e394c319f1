#ifndef FLOTILLA_SERVICES_BASE_GLOBAL_SIZES_H_
#define FLOTILLA_SERVICES_BASE_GLOBAL_SIZES_H_

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"

namespace flotilla {

// `config` with sizes of each of `world_size` learners, whatever it was given
// with: distributed.sizes GLOBAL divides env.num_envs (and with it the batches of
// ppo and impala), and what the algorithm's row names (dqn.batch_size,
// dqn.replay_capacity); PER_LEARNER changes nothing. What is counted for all learners either way stays as it is: steps,
// updates, dqn.learning_starts, schedules.
//
// Errors: kInvalidArgument, a line for each size that does not divide, naming
// what would, or for what is wrong with a learner's share.
absl::StatusOr<v1::RunConfig> SizesOfLearner(const v1::RunConfig& config,
                                             int world_size);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_GLOBAL_SIZES_H_
