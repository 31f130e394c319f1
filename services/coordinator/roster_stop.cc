#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/base/printable.h"
#include "services/base/status_macros.h"
#include "services/coordinator/limits.h"
#include "services/coordinator/roster.h"

// How a run ends.

namespace flotilla {
namespace {

// CloseRunRequest.status of a launcher that gives up.
constexpr char kFailed[] = "failed";

// And of rank 0, after a signal of a job scheduler's.
constexpr char kPreempted[] = "preempted";

}  // namespace

absl::Status Roster::CloseRun(const v1::CloseRunRequest& request,
                              const std::string& key) {
  MutexLock lock(&mu_);
  const Seat* seat = Find(request.member_id());
  if (seat != nullptr) RETURN_IF_ERROR(CheckKey(*seat, key));
  if (closed_) return absl::OkStatus();
  const bool known = seat != nullptr && seat->member.role() == v1::LEARNER;
  if (!known && generation_ > 0) {
    return absl::NotFoundError(
        absl::StrCat("\"", request.member_id(),
                     "\" is no learner of this run, and cannot close it"));
  }
  if (request.status() == kFailed) {
    // As with a member that goes: nothing ends with it that it has no part in, or
    // has finished.
    const bool needed =
        known && seat->rank >= 0 && seat->last.phase() != v1::FINISHED;
    if (!needed && !Recovering() && GoesOn()) return absl::OkStatus();
    failure_ = PrintableLine(absl::StrCat(
        "the run failed: the launcher of ",
        known ? absl::StrCat(NameOf(*seat), " on ", seat->member.host())
              : request.member_id(),
        " gave up; its output says why"));
    Fence(failure_);
  }
  preempted_ = request.status() == kPreempted;
  closed_ = true;
  close_status_ = Shortened(request.status());
  SetState(v1::CLOSED);
  return absl::OkStatus();
}

// Whether there is a generation, or enough are left of the last one for the next.
bool Roster::GoesOn() const {
  if (state_ == v1::ACTIVE) return true;
  const auto left =
      std::count_if(seats_.begin(), seats_.end(), [](const auto& entry) {
        return entry.second.rank >= 0 && IsThere(entry.second);
      });
  return left >= options_.min_learners;
}

v1::GenerationState Roster::Stop(const std::string& reason, bool preempted) {
  MutexLock lock(&mu_);
  if (!stop_) {
    stop_ = true;
    stop_reason_ = Shortened(reason);
    Changed();
  }
  // Also if it was told to stop before: a preemption weighs more, as it does where
  // the ranks agree.
  if (preempted && !preempted_ && !closed_) {
    preempted_ = true;
    Changed();
  }
  return state_;
}

// What who comes to a run that is over is told.
absl::Status Roster::Over() const {
  if (!failure_.empty()) return absl::ResourceExhaustedError(failure_);
  return absl::AbortedError(absl::StrCat("the run is over: ", close_status_));
}

}  // namespace flotilla
