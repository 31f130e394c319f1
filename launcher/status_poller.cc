#include "launcher/status_poller.h"

#include <algorithm>

#include "services/base/steady_now.h"

namespace flotilla {
namespace {

constexpr absl::Duration kPollTimeout = absl::Seconds(1);

}  // namespace

StatusPoller::StatusPoller(CoordinatorCalls* calls, absl::Duration interval)
    : calls_(calls), interval_(interval), thread_([this] { Run(); }) {}

StatusPoller::~StatusPoller() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

std::optional<v1::Status> StatusPoller::Latest() const {
  MutexLock lock(&mu_);
  return latest_;
}

absl::Duration StatusPoller::AnsweredFor() const {
  MutexLock lock(&mu_);
  return std::max(absl::ZeroDuration(), SteadyNow() - answers_since_);
}

void StatusPoller::Run() {
  for (;;) {
    absl::StatusOr<v1::Status> status = calls_->GetStatus(kPollTimeout);
    const bool answered = status.ok();
    {
      MutexLock lock(&mu_);
      if (answered) {
        latest_ = *std::move(status);
        answers_since_ = std::min(answers_since_, SteadyNow());
        if (!stop_) lock.WaitFor(&wake_, interval_);
      } else {
        answers_since_ = absl::InfiniteFuture();
      }
      if (stop_) return;
    }
    if (!answered) calls_->Pause(interval_);
  }
}

}  // namespace flotilla
