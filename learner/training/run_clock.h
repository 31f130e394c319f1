#ifndef FLOTILLA_LEARNER_TRAINING_RUN_CLOCK_H_
#define FLOTILLA_LEARNER_TRAINING_RUN_CLOCK_H_

#include <functional>
#include <utility>

#include "absl/time/time.h"
#include "services/base/steady_now.h"

namespace flotilla {

// Seconds of training: they go on where a checkpoint, or the state of another
// rank, left them. Not thread-safe.
class RunClock {
 public:
  explicit RunClock(std::function<absl::Time()> now = SteadyNow)
      : now_(std::move(now)) {}

  // It has run for `seconds` now.
  void Set(double seconds) {
    before_ = seconds;
    since_ = now_();
    runs_ = true;
  }

  // 0 until it was set.
  double Seconds() const {
    return runs_ ? before_ + absl::ToDoubleSeconds(now_() - since_) : 0;
  }

  bool runs() const { return runs_; }

 private:
  const std::function<absl::Time()> now_;
  double before_ = 0;
  absl::Time since_;
  bool runs_ = false;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_RUN_CLOCK_H_
