#ifndef FLOTILLA_LAUNCHER_TRAIN_PLAN_H_
#define FLOTILLA_LAUNCHER_TRAIN_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "launcher/topology.h"
#include "services/base/gpus.h"

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

// `config` as one learner has it: see SizesOfLearner.
// Errors: kInvalidArgument, also for distributed.sizes GLOBAL in an elastic job:
// environments that run cannot be shared out anew.
absl::StatusOr<v1::RunConfig> PlanSizes(const v1::RunConfig& config,
                                        const Topology& topology);

// Takes sizes of either kind, and so does DescribePlan.
TrainPlan MakePlan(const v1::RunConfig& config, const Topology& topology);

// The devices of the learners that this launcher starts, as they will register
// them: "cpu", "cuda:0 GPU-<uuid>". `ids` is --device-ids; `gpus` those of this
// host. Errors: kInvalidArgument with the remedy, where the configuration wants
// more of them than they can give.
absl::StatusOr<std::vector<std::string>> PlanDevices(
    const v1::RunConfig& config, const Topology& topology,
    const std::vector<int>& ids, const std::vector<Gpu>& gpus);

// What they compute in: PRECISION_AUTO decided, for the slowest of them, or FP32
// for a TorchScript module and where model.encoder is MLP and no leaf is said to go
// through convolutions; the others as they are. Errors: ChoosePrecision's.
absl::StatusOr<v1::Precision> PlanPrecision(
    const v1::RunConfig& config, const std::vector<std::string>& devices,
    const std::vector<Gpu>& gpus);

// What is allowed and hardly meant of a run's length; "" if nothing is: a replay from
// which nothing is learned before the run is over.
std::string LengthWarning(const v1::RunConfig& config,
                          const Topology& topology);

// What `--dry-run` prints below the configuration.
std::string DescribePlan(const v1::RunConfig& config, const Topology& topology,
                         const std::vector<std::string>& devices);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_TRAIN_PLAN_H_
