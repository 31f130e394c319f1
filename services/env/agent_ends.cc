#include "services/env/agent_ends.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace flotilla {

absl::Status AgentEnds::Take(const v1::StepBatch& step) {
  if (agents_ == 1) return absl::OkStatus();
  failed_.assign(gone_.size(), false);
  for (const v1::RowError& error : step.error()) failed_[error.row()] = true;
  others_play_on_.assign(gone_.size(), -1);
  for (const v1::EpisodeEnd& end : step.episode_end()) {
    others_play_on_[end.row()] = end.others_play_on() ? 1 : 0;
  }
  const int rows = static_cast<int>(gone_.size());
  for (int first = 0; first < rows; first += agents_) {
    RETURN_IF_ERROR(TakeEnvironment(step, first));
  }
  return absl::OkStatus();
}

absl::Status AgentEnds::TakeEnvironment(const v1::StepBatch& step, int first) {
  const auto begin = gone_.begin() + first, end = begin + agents_;
  if (failed_[first]) {  // and all of them: another episode has begun
    std::fill(begin, end, false);
    return absl::OkStatus();
  }
  const auto wrong = [&](const char* field, int row, const char* want) {
    return absl::InternalError(absl::StrCat("step.", field, " of group ",
                                            step.group(), ", seq ", step.seq(),
                                            " in row ", row, want));
  };
  for (int row = first; row < first + agents_; ++row) {
    if (!step.terminated()[row] && !step.truncated()[row]) continue;
    if (gone_[row]) {
      return wrong("terminated or truncated", row,
                   " is 1 again, want one end at most in its environment's "
                   "episode");
    }
    gone_[row] = true;
  }
  const bool over = std::find(begin, end, false) == end;
  for (int row = first; row < first + agents_; ++row) {
    if (others_play_on_[row] == (over ? 1 : 0)) {
      return wrong("episode_end.others_play_on", row,
                   over ? " is true, and every slot's episode has ended"
                        : " is false, and not every slot's episode has ended");
    }
    if (!over && gone_[row] && IsActive(step, row)) {
      return wrong("active", row,
                   " is 1, and its episode has ended before its environment's: "
                   "want 0");
    }
  }
  if (over) std::fill(begin, end, false);
  return absl::OkStatus();
}

}  // namespace flotilla
