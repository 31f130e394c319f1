#ifndef FLOTILLA_LAUNCHER_RESTART_BUDGET_H_
#define FLOTILLA_LAUNCHER_RESTART_BUDGET_H_

#include <deque>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace flotilla {

// How often one process may be replaced: so many times in any window, at once
// first and after a longer pause each time (1, 2, 4, ... seconds, 30 at most),
// so that a crash loop does not end like one bad night in a week.
//
// Not thread-safe. Reads no clock.
class RestartBudget {
 public:
  RestartBudget(int most, absl::Duration window)
      : most_(most), window_(window) {}

  // Charges one restart at `now`: how long to wait before it, or nullopt if the
  // budget is spent.
  std::optional<absl::Duration> Charge(absl::Time now);

  // Restarts charged so far, in all.
  int total() const { return total_; }

 private:
  const int most_;
  const absl::Duration window_;
  std::deque<absl::Time> recent_;  // inside the window
  int total_ = 0;
};

// " in 4s", for a sentence about a restart; "" for no pause.
std::string AfterPause(absl::Duration pause);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_RESTART_BUDGET_H_
