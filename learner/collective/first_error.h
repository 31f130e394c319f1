#ifndef FLOTILLA_LEARNER_COLLECTIVE_FIRST_ERROR_H_
#define FLOTILLA_LEARNER_COLLECTIVE_FIRST_ERROR_H_

#include <atomic>

#include "absl/status/status.h"
#include "services/base/mutex.h"

namespace flotilla {

// The first error of a collective, which is also its last: whatever fails
// afterwards failed because of it.
//
// Thread-safe.
class FirstError {
 public:
  // Keeps `error`, unless there is one already.
  void Set(absl::Status error) {
    MutexLock lock(&mu_);
    if (!status_.ok() || error.ok()) return;
    status_ = std::move(error);
    is_set_.store(true, std::memory_order_release);
  }

  absl::Status Get() const {
    if (!is_set()) return absl::OkStatus();
    MutexLock lock(&mu_);
    return status_;
  }

  // Cheap enough to ask in a spin loop.
  bool is_set() const { return is_set_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> is_set_{false};
  mutable Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_FIRST_ERROR_H_
