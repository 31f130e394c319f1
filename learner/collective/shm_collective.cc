#include "learner/collective/shm_collective.h"

#include <limits.h>
#include <unistd.h>

#include <functional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "learner/collective/host_collective.h"
#include "learner/collective/peer_process.h"
#include "learner/collective/rendezvous.h"
#include "learner/collective/shm_reducer.h"
#include "learner/collective/shm_segment.h"
#include "learner/device/host.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

class ShmCollective : public HostCollective {
 public:
  ShmCollective(const v1::Assignment& assignment,
                CoordinatorClient* coordinator, ShmSegment segment,
                std::vector<PeerProcess> peer, absl::Duration timeout)
      : HostCollective(assignment.rank(), assignment.world_size()),
        segment_(std::move(segment)),
        reducer_(segment_.data(), rank(), world_size(), std::move(peer),
                 timeout),
        on_fence_(coordinator->Fence(assignment.generation()),
                  [this, generation = assignment.generation()] {
                    reducer_.End(absl::AbortedError(
                        absl::StrCat("generation ", generation, " is fenced")));
                  }) {}

  bool on_one_host() const override { return true; }

  absl::Status AllReduceSumByParts(torch::Tensor tensor,
                                   const Summed& summed) override {
    if (!tensor.is_cpu() || !tensor.is_contiguous() ||
        tensor.scalar_type() != torch::kFloat32) {
      return HostCollective::AllReduceSumByParts(std::move(tensor), summed);
    }
    static_assert(kSummedPart == kShmPart);
    return reducer_.AllReduceSum(HostBytes(tensor), tensor.numel(),
                                 Element::kFloat32, summed);
  }

  void Abort() override {
    reducer_.Abort(absl::AbortedError("the collective was aborted"));
  }

 protected:
  absl::Status SumOnHost(torch::Tensor flat) override {
    const Element element =
        flat.scalar_type() == torch::kFloat32    ? Element::kFloat32
        : flat.scalar_type() == torch::kFloat64  ? Element::kFloat64
        : flat.scalar_type() == torch::kBFloat16 ? Element::kBFloat16
                                                 : Element::kInt64;
    return reducer_.AllReduceSum(HostBytes(flat), flat.numel(), element);
  }

  absl::Status BroadcastOnHost(torch::Tensor bytes, int root) override {
    return reducer_.Broadcast(HostBytes(bytes), bytes.numel(), root);
  }

 private:
  const ShmSegment segment_;
  ShmReducer reducer_;
  // Last: it may call the reducer for as long as it lives.
  std::stop_callback<std::function<void()>> on_fence_;
};

// Equal for two processes that can reach each other's memory and name each
// other's processes.
std::string Neighbourhood() {
  char pid_namespace[PATH_MAX] = "";
  if (::readlink("/proc/self/ns/pid", pid_namespace,
                 sizeof(pid_namespace) - 1) < 0) {
    return absl::StrCat("unknown:", ::getpid());  // equal to nobody's
  }
  return absl::StrCat(FirstLine("/proc/sys/kernel/random/boot_id"), ":",
                      pid_namespace, ":", ::geteuid());
}

// "ok" on the wire, or why a rank cannot use the segment.
constexpr char kOk[] = "ok";

// Opens what rank 0 offers, and every rank's process.
absl::Status Reach(const std::vector<std::string>& seats, ShmSegment* segment,
                   std::vector<PeerProcess>* peer) {
  // A seat is "neighbourhood pid locator"; only rank 0 has a locator.
  std::string first_neighbourhood;
  for (size_t rank = 0; rank < seats.size(); ++rank) {
    const std::vector<std::string> part = absl::StrSplit(seats[rank], ' ');
    int pid = 0;
    if (part.size() != 3 || !absl::SimpleAtoi(part[1], &pid)) {
      return absl::InternalError(
          absl::StrCat("bad seat \"", seats[rank], "\""));
    }
    if (rank == 0) first_neighbourhood = part[0];
    if (part[0] != first_neighbourhood) {
      return absl::UnavailableError(absl::StrCat(
          "rank ", rank, " is in another container, user or boot than rank 0"));
    }
    ASSIGN_OR_RETURN(PeerProcess process, PeerProcess::Open(pid));
    peer->push_back(std::move(process));
    if (rank == 0 && segment->data() == nullptr) {
      ASSIGN_OR_RETURN(*segment, ShmSegment::Open(part[2]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> MakeShmCollective(
    const v1::Assignment& assignment, CoordinatorClient* coordinator,
    absl::Duration timeout) {
  const size_t bytes = ShmReducer::SegmentBytes(assignment.world_size());
  ShmSegment segment;
  std::string locator = "-";
  if (assignment.rank() == 0) {
    if (auto made = ShmSegment::Create(bytes); made.ok()) {
      segment = *std::move(made);
      locator = segment.locator();
    }
  }
  Told told;
  ASSIGN_OR_RETURN(
      const auto seats,
      ExchangeAll(assignment, coordinator, "shared-memory",
                  absl::StrCat(Neighbourhood(), " ", ::getpid(), " ", locator),
                  timeout, &told));

  std::vector<PeerProcess> peer;
  absl::Status reached = Reach(seats, &segment, &peer);
  if (reached.ok() && segment.size() != bytes) {
    reached = absl::UnavailableError("rank 0's shared memory has another size");
  }
  ASSIGN_OR_RETURN(
      const auto verdicts,
      ExchangeAll(assignment, coordinator, "shared-memory-verdict",
                  reached.ok() ? kOk : reached.ToString(), timeout, &told));
  for (size_t rank = 0; rank < verdicts.size(); ++rank) {
    if (verdicts[rank] == kOk) continue;
    LOG_IF(INFO, assignment.rank() == 0)
        << "learners of one host do not share memory and use TCP: rank " << rank
        << " says " << verdicts[rank];
    return nullptr;
  }
  return std::make_unique<ShmCollective>(
      assignment, coordinator, std::move(segment), std::move(peer), timeout);
}

}  // namespace flotilla
