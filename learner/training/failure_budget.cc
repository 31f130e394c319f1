#include "learner/training/failure_budget.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace flotilla {
namespace {

constexpr char kReasonKey[] = "failed_rows/reason";
constexpr absl::Duration kReasonTimeout = absl::Seconds(5);

}  // namespace

FailureBudget::FailureBudget(const v1::EnvConfig& env, const FailedRows* rows,
                             CoordinatorClient* coordinator)
    : max_share_(env.max_failed_share()),
      seconds_(env.failed_seconds()),
      rows_(rows),
      coordinator_(coordinator) {}

void FailureBudget::Add(int64_t committed, Agreement* agreement) {
  // Once, also if the others saw the last update commit and this rank did not.
  if (added_to_ <= committed) counted_ = added_;
  FailedRows::Window recent;
  int64_t failed = 0, owned = 0;
  if (rows_ != nullptr) {
    recent = rows_->Recent();
    failed = rows_->failed();
    owned = rows_->owned();
  }
  failed_ =
      agreement->AddSum("failed_rows", static_cast<double>(failed - counted_));
  added_ = failed;
  added_to_ = committed + 1;
  owned_ = agreement->AddSum("rows", static_cast<double>(owned));
  lost_ = agreement->AddPerRank("lost_rows", recent.share() * owned);
  full_ = agreement->AddVote("recent_is_full", recent.full);
}

absl::Status FailureBudget::Check(const Agreement& agreement,
                                  uint64_t generation) {
  failed_rows_ = static_cast<int64_t>(agreement[failed_]);
  const Agreement::Ranks lost = agreement[lost_];
  const double all_lost = std::accumulate(lost.begin(), lost.end(), 0.0);
  const double all = agreement[owned_];
  if (!agreement[full_] || all_lost <= max_share_ * all) {
    return absl::OkStatus();
  }
  // The first rank that has lost any tells the others why.
  const int teller = static_cast<int>(
      std::find_if(lost.begin(), lost.end(), [](double n) { return n > 0; }) -
      lost.begin());
  std::string reason;
  if (agreement.rank() == teller) {
    reason = rows_->newest();
    coordinator_->Set(generation, kReasonKey, reason).IgnoreError();
  } else {
    const auto told = coordinator_->Get(generation, kReasonKey, kReasonTimeout);
    reason = told.ok() ? *told : absl::StrCat("see rank ", teller, "'s log");
  }
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%.0f%% of the environments' steps and resets failed in the last %g s "
      "(env.max_failed_share is %g); the newest, of rank %d: %s",
      100 * all_lost / all, seconds_, max_share_, teller, reason));
}

}  // namespace flotilla
