#include "learner/collective/backend.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/base/device_choice.h"

namespace flotilla {
namespace {

// Why NCCL cannot connect these ranks; OK if it can.
absl::Status CheckNccl(const v1::Assignment& assignment) {
  std::map<std::string, int> rank_of_gpu;
  for (int rank = 0; rank < assignment.learner_size(); ++rank) {
    const v1::Member& member = assignment.learner(rank);
    const std::string gpu = GpuIdentity(member.device(), member.host());
    if (gpu.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "NCCL needs a GPU for every rank, and rank ", rank, " (", member.id(),
          ") has device \"", member.device(),
          "\": use distributed.backend GLOO or BACKEND_AUTO (--backend gloo)"));
    }
    const auto [other, is_new] = rank_of_gpu.insert({gpu, rank});
    if (!is_new) {
      return absl::FailedPreconditionError(absl::StrCat(
          "NCCL needs a GPU of its own for every rank, and ranks ",
          other->second, " and ", rank, " share ", member.device(), " of host ",
          member.host(),
          ": use fewer ranks (--nproc-per-node gpu), other --device-ids, or "
          "--backend gloo"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::Backend> ChooseBackend(const v1::Assignment& assignment,
                                          const v1::DistributedConfig& config) {
  if (config.backend() == v1::GLOO) return v1::GLOO;
  const absl::Status nccl = CheckNccl(assignment);
  if (nccl.ok()) return v1::NCCL;
  if (config.backend() == v1::NCCL) return nccl;
  return v1::GLOO;
}

}  // namespace flotilla
