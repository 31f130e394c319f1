#include "launcher/restart_budget.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

constexpr absl::Duration kSecondPause = absl::Seconds(1);
constexpr absl::Duration kLongestPause = absl::Seconds(30);

}  // namespace

std::optional<absl::Duration> RestartBudget::Charge(absl::Time now) {
  while (!recent_.empty() && recent_.front() <= now - window_) {
    recent_.pop_front();
  }
  if (static_cast<int>(recent_.size()) >= most_) return std::nullopt;
  absl::Duration pause = absl::ZeroDuration();
  for (size_t i = 0; i < recent_.size(); ++i) {
    pause = std::clamp(pause * 2, kSecondPause, kLongestPause);
  }
  recent_.push_back(now);
  ++total_;
  return pause;
}

std::string AfterPause(absl::Duration pause) {
  if (pause <= absl::ZeroDuration()) return "";
  return absl::StrCat(" in ", absl::FormatDuration(pause));
}

}  // namespace flotilla
