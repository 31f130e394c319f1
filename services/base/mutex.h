#ifndef FLOTILLA_SERVICES_BASE_MUTEX_H_
#define FLOTILLA_SERVICES_BASE_MUTEX_H_

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace flotilla {

// std::mutex, annotated for clang's thread-safety analysis.
//
// Not absl::Mutex: Debian's Abseil is built without TSan, which therefore
// cannot see its locks and reports correct code as a race.
class ABSL_LOCKABLE Mutex {
 private:
  friend class MutexLock;
  std::mutex mu_;
};

// Holds `mu` for a scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu)
      : lock_(mu->mu_) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() {}

  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // Waits to be notified. May wake for no reason: call it in a while loop.
  void Wait(std::condition_variable* cv) { cv->wait(lock_); }

  // As Wait, for at most `timeout` (which may be infinite), on the monotonic
  // clock. Returns false if it passed.
  bool WaitFor(std::condition_variable* cv, absl::Duration timeout) {
    if (timeout > absl::Hours(24 * 365)) timeout = absl::Hours(24 * 365);
    return cv->wait_for(lock_, absl::ToChronoNanoseconds(timeout)) ==
           std::cv_status::no_timeout;
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_MUTEX_H_
