#ifndef FLOTILLA_LAUNCHER_TRAIN_PLAN_H_
#define FLOTILLA_LAUNCHER_TRAIN_PLAN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "flotilla/v1/config.pb.h"
#include "launcher/topology.h"

namespace flotilla {

// The sizes that follow from a configuration and a topology.
struct TrainPlan {
  int64_t world_size = 1;      // the smallest, for an elastic job
  int64_t num_envs = 0;        // per learner
  int64_t batch = 0;           // per learner and update: length * num_envs
  int64_t minibatch = 0;       // per learner and gradient step
  int64_t gradient_steps = 0;  // per update
  int64_t updates = 0;         // of the run
  int64_t steps = 0;           // of the run; with total_updates, as planned
  int64_t envs_per_worker = 0;
};

TrainPlan MakePlan(const v1::RunConfig& config, const Topology& topology);

// What `--dry-run` prints below the configuration.
std::string DescribePlan(const v1::RunConfig& config, const Topology& topology,
                         int gpus);

// Refuses what the configuration wants of this node's GPUs and they cannot
// give. Errors: kInvalidArgument with the remedy.
absl::Status CheckDevices(const v1::RunConfig& config, const Topology& topology,
                          int gpus);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_TRAIN_PLAN_H_
