#include "launcher/status_poller.h"

namespace flotilla {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(1);

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

void StatusPoller::Run() {
  for (;;) {
    absl::StatusOr<v1::Status> status = calls_->GetStatus(kCallTimeout);
    MutexLock lock(&mu_);
    if (status.ok()) latest_ = *std::move(status);
    if (stop_) return;
    lock.WaitFor(&wake_, interval_);
    if (stop_) return;
  }
}

}  // namespace flotilla
