#include "learner/library/world.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "learner/collective/local_address.h"
#include "learner/collective/rank_device.h"
#include "services/base/host_name.h"
#include "services/base/status_macros.h"
#include "services/base/version.h"

namespace flotilla {
namespace {

absl::StatusOr<v1::Backend> BackendNamed(const std::string& name) {
  if (name == "auto") return v1::BACKEND_AUTO;
  if (name == "nccl") return v1::NCCL;
  if (name == "gloo") return v1::GLOO;
  return absl::InvalidArgumentError(
      absl::StrCat("backend \"", name,
                   "\" is not provided; use nccl (a GPU for each rank), gloo "
                   "(CPUs) or auto"));
}

v1::Member Self(const WorldOptions& options, const std::string& device) {
  // Hosts may run unequally many: with this number the local rank tells each rank from
  // all others.
  const int node = options.rank - options.local_rank;
  v1::Member self;
  self.set_id(absl::StrCat("learner/", node, "/", options.local_rank));
  self.set_role(v1::LEARNER);
  self.set_host(HostName());
  self.set_pid(getpid());
  self.set_device(device);
  self.set_node_rank(node);
  self.set_local_rank(options.local_rank);
  self.set_local_world_size(options.local_world_size);
  self.set_requested_rank(options.rank + 1);
  self.set_version(Version());
  self.set_ip(IpTowards(options.coordinator));
  self.set_network(NetworkOfThisProcess());
  return self;
}

}  // namespace

absl::StatusOr<std::unique_ptr<World>> World::Join(
    const WorldOptions& options) {
  v1::DistributedConfig config;
  ASSIGN_OR_RETURN(const v1::Backend backend, BackendNamed(options.backend));
  config.set_backend(backend);
  config.set_timeout_seconds(absl::ToDoubleSeconds(options.timeout));
  ASSIGN_OR_RETURN(
      const RankDevice device,
      ChooseRankDevice({.device = options.cuda ? "cuda" : "cpu",
                        .local_world_size = options.local_world_size},
                       options.local_rank));
  ASSIGN_OR_RETURN(auto coordinator,
                   JoinRun(options.coordinator, Self(options, device.name),
                           options.credentials, options.join_timeout));
  ASSIGN_OR_RETURN(
      const v1::Assignment assignment,
      coordinator->JoinGeneration(/*last_committed_update=*/0,
                                  /*has_state=*/false, options.join_timeout));
  ASSIGN_OR_RETURN(
      auto collective,
      MakeCollective(assignment, config, coordinator.get(), device.device));
  return std::unique_ptr<World>(
      new World(std::move(coordinator), std::move(collective), device.device));
}

World::~World() {
  collective_.reset();
  coordinator_->Leave("done").IgnoreError();
}

absl::StatusOr<bool> World::AnyRank(bool here) {
  const torch::Tensor votes =
      torch::full({1}, here ? 1.0f : 0.0f, torch::TensorOptions(device_));
  RETURN_IF_ERROR(collective_->AllReduceSum(votes));
  return votes.item<float>() > 0;
}

}  // namespace flotilla
