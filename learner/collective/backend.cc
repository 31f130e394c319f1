#include "learner/collective/backend.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

// Why NCCL cannot connect these ranks; OK if it can.
absl::Status CheckNccl(const v1::Assignment& assignment) {
  std::map<std::pair<std::string, std::string>, int> rank_of_device;
  for (int rank = 0; rank < assignment.learner_size(); ++rank) {
    const v1::Member& member = assignment.learner(rank);
    if (!absl::StartsWith(member.device(), "cuda")) {
      return absl::FailedPreconditionError(absl::StrCat(
          "NCCL needs a GPU for every rank, and rank ", rank, " (", member.id(),
          ") has device \"", member.device(),
          "\": use distributed.backend GLOO or BACKEND_AUTO (--backend gloo)"));
    }
    const auto [other, is_new] =
        rank_of_device.insert({{member.host(), member.device()}, rank});
    if (!is_new) {
      return absl::FailedPreconditionError(absl::StrCat(
          "NCCL needs a GPU of its own for every rank, and ranks ",
          other->second, " and ", rank, " share ", member.device(), " of host ",
          member.host(),
          ": use fewer ranks (--nproc-per-node gpu) or --backend gloo"));
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
