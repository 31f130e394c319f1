#include <algorithm>

#include "learner/collective/backend.h"
#include "learner/collective/collective.h"
#include "learner/collective/gloo_collective.h"
#include "learner/collective/local_address.h"
#include "learner/collective/nccl_collective.h"
#include "learner/collective/rendezvous.h"
#include "learner/collective/shm_collective.h"
#include "learner/collective/solo_collective.h"
#include "services/base/status_macros.h"

namespace flotilla {

absl::StatusOr<std::unique_ptr<Collective>> MakeCollective(
    const v1::Assignment& assignment, const v1::DistributedConfig& config,
    CoordinatorClient* coordinator, torch::Device device) {
  if (assignment.world_size() == 1 && !config.force_group()) {
    return std::make_unique<SoloCollective>();
  }
  NameSocketInterface(assignment);
  // A year is forever, and overflows no clock.
  const absl::Duration timeout =
      std::min(absl::Seconds(config.timeout_seconds()), absl::Hours(24 * 365));
  ASSIGN_OR_RETURN(const v1::Backend backend,
                   ChooseBackend(assignment, config));
  if (backend == v1::NCCL) {
    return MakeNcclCollective(assignment, coordinator, timeout, device);
  }
  if (OnOneHost(assignment)) {
    ASSIGN_OR_RETURN(auto shm,
                     MakeShmCollective(assignment, coordinator, timeout));
    if (shm != nullptr) return shm;
  }
  return MakeGlooCollective(assignment, coordinator, timeout);
}

}  // namespace flotilla
