#ifndef FLOTILLA_LEARNER_TRAINING_WATCHDOG_H_
#define FLOTILLA_LEARNER_TRAINING_WATCHDOG_H_

#include <condition_variable>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "services/base/mutex.h"

namespace flotilla {

// Notices that a step of training does not end: a GPU or a lock that hangs
// stops nothing but the training thread, and heartbeats go on.
//
// Time in which the whole process stood still (SIGSTOP, a suspended machine)
// does not count.
//
// Thread-safe.
class Watchdog {
 public:
  // A step may take `limit` and its allowance; zero: as long as it likes.
  // `on_late` is called on a thread of its own, once, with the step's name, and
  // may end the process.
  Watchdog(absl::Duration limit,
           std::function<void(const std::string& step)> on_late);
  ~Watchdog();

  // A step begins, and the one before has ended.
  void Begin(const std::string& step,
             absl::Duration allowance = absl::ZeroDuration());

  // What has to end now ends by itself: whoever waits has deadlines of its own.
  void Rest();

 private:
  void Watch();
  std::string AwaitLateStep();

  const absl::Duration limit_;
  const std::function<void(const std::string&)> on_late_;

  Mutex mu_;
  std::condition_variable quits_;
  bool quit_ ABSL_GUARDED_BY(mu_) = false;
  std::string step_ ABSL_GUARDED_BY(mu_);  // "": none
  absl::Duration left_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // last: it uses the others
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_WATCHDOG_H_
