#ifndef FLOTILLA_SERVICES_BASE_BOUNDED_QUEUE_H_
#define FLOTILLA_SERVICES_BASE_BOUNDED_QUEUE_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "services/base/mutex.h"

namespace flotilla {

// A closable FIFO of fixed capacity. A full queue blocks its producers: this is
// the back-pressure that keeps actors from outrunning the learner.
//
// Thread-safe.
template <typename T>
class BoundedQueue {
 public:
  // `capacity` is at least 1.
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // Blocks while full. Returns false, dropping `item`, once closed.
  bool Push(T item) {
    MutexLock lock(&mu_);
    while (!closed_ && items_.size() == capacity_) lock.Wait(&not_full_);
    if (closed_) return false;
    items_.push_back(std::move(item));
    not_empty_.notify_one();
    return true;
  }

  // Blocks while empty. Returns nullopt once closed and drained.
  std::optional<T> Pop() {
    MutexLock lock(&mu_);
    while (!closed_ && items_.empty()) lock.Wait(&not_empty_);
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    not_full_.notify_one();
    return item;
  }

  // Wakes every waiter. Idempotent.
  void Close() {
    MutexLock lock(&mu_);
    closed_ = true;
    not_full_.notify_all();
    not_empty_.notify_all();
  }

 private:
  const size_t capacity_;
  Mutex mu_;
  std::condition_variable not_full_;
  std::condition_variable not_empty_;
  std::deque<T> items_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_BOUNDED_QUEUE_H_
