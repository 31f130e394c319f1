#ifndef FLOTILLA_SERVICES_BASE_SHUTDOWN_H_
#define FLOTILLA_SERVICES_BASE_SHUTDOWN_H_

#include <atomic>
#include <memory>
#include <stop_token>
#include <thread>

#include "absl/status/statusor.h"

namespace flotilla {

// Turns SIGINT, SIGTERM, SIGUSR1, SIGUSR2 and SIGHUP into stop tokens: make one
// early in main. A SIGHUP that is ignored, as under nohup, stays ignored.
//
// Handlers only write a byte to a pipe; a thread of its own reads it and
// requests the stop, so stop_callbacks run there and may lock and log.
//
// Children are not affected: exec puts the handlers back.
//
// Thread-safe. At most one at a time per process.
class ShutdownSignals {
 public:
  // Errors: kFailedPrecondition if there is one already; kResourceExhausted if
  // no pipe can be made.
  static absl::StatusOr<std::unique_ptr<ShutdownSignals>> Install();

  // Puts the previous handlers back.
  ~ShutdownSignals();

  // Stops at the first of the signals.
  std::stop_token Stop() const { return stop_.get_token(); }

  // Stops at the second SIGINT: the user does not want to wait.
  std::stop_token StopNow() const { return stop_now_.get_token(); }

  // The signal that came first; 0 while none did.
  int first_signal() const { return first_signal_; }

  // How many have come.
  int interrupts() const { return interrupts_; }  // SIGINT
  int signals() const { return signals_; }        // all of them

 private:
  ShutdownSignals(int read_fd, int write_fd);
  void Run();

  const int read_fd_;
  const int write_fd_;
  std::atomic<int> first_signal_ = 0;
  std::atomic<int> interrupts_ = 0;
  std::atomic<int> signals_ = 0;
  std::stop_source stop_;
  std::stop_source stop_now_;
  std::thread thread_;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_SHUTDOWN_H_
