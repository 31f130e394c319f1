#include "envserver/part_pool.h"

#include <exception>

#include "absl/strings/str_cat.h"

namespace flotilla {

PartPool::PartPool(int groups, std::function<void(int, int)> run,
                   std::function<void(int)> done)
    : run_(std::move(run)),
      done_(std::move(done)),
      groups_(static_cast<size_t>(groups)) {}

absl::Status PartPool::Start(int threads) {
  if (threads <= 1) return absl::OkStatus();
  try {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { ThreadMain(); });
    }
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("no thread: ", error.what()));
  }
  return absl::OkStatus();
}

PartPool::~PartPool() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    work_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void PartPool::Begin(int group, int parts) {
  if (threads_.empty()) {
    for (int part = 0; part < parts; ++part) run_(group, part);
    done_(group);
    return;
  }
  MutexLock lock(&mu_);
  groups_[group] = {parts, 0, parts};
  queue_.push_back(group);
  work_.notify_all();
}

void PartPool::ThreadMain() {
  while (const auto claimed = Claim()) {
    const auto [group, part] = *claimed;
    run_(group, part);
    if (Finish(group)) done_(group);
  }
}

std::optional<std::pair<int, int>> PartPool::Claim() {
  MutexLock lock(&mu_);
  while (!stop_ && queue_.empty()) lock.Wait(&work_);
  if (stop_) return std::nullopt;
  const int group = queue_.front();
  const int part = groups_[group].next++;
  if (groups_[group].next == groups_[group].parts) queue_.pop_front();
  return std::pair(group, part);
}

bool PartPool::Finish(int group) {
  MutexLock lock(&mu_);
  return --groups_[group].remaining == 0;
}

}  // namespace flotilla
