#include "learner/training/watchdog.h"

#include <algorithm>
#include <utility>

#include "services/base/steady_now.h"

namespace flotilla {

Watchdog::Watchdog(absl::Duration limit,
                   std::function<void(const std::string&)> on_late)
    : limit_(limit),
      on_late_(std::move(on_late)),
      thread_([this] { Watch(); }) {}

Watchdog::~Watchdog() {
  {
    MutexLock lock(&mu_);
    quit_ = true;
    quits_.notify_all();
  }
  thread_.join();
}

void Watchdog::Begin(const std::string& step, absl::Duration allowance) {
  MutexLock lock(&mu_);
  step_ = step;
  left_ = limit_ + allowance;
}

void Watchdog::Rest() { Begin(""); }

void Watchdog::Watch() {
  if (limit_ <= absl::ZeroDuration()) return;
  const std::string step = AwaitLateStep();
  if (!step.empty()) on_late_(step);
}

// "" if this object goes away.
std::string Watchdog::AwaitLateStep() {
  const absl::Duration tick = std::min(limit_ / 20, absl::Seconds(1));
  absl::Time last = SteadyNow();
  MutexLock lock(&mu_);
  while (!quit_ && (step_.empty() || left_ > absl::ZeroDuration())) {
    lock.WaitFor(&quits_, tick);
    const absl::Time now = SteadyNow();
    // A longer one is time in which this thread stood still, and the others
    // too.
    left_ -= std::clamp(now - last, absl::ZeroDuration(), 2 * tick);
    last = now;
  }
  return quit_ ? "" : step_;
}

}  // namespace flotilla
