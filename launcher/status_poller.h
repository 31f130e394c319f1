#ifndef FLOTILLA_LAUNCHER_STATUS_POLLER_H_
#define FLOTILLA_LAUNCHER_STATUS_POLLER_H_

#include <condition_variable>
#include <memory>
#include <optional>
#include <thread>

#include "absl/time/time.h"
#include "flotilla/v1/coordinator.pb.h"
#include "launcher/coordinator_calls.h"
#include "services/base/mutex.h"

namespace flotilla {

// Asks a coordinator for its status again and again, on a thread of its own, so
// that whoever shows it never waits.
//
// Thread-safe.
class StatusPoller {
 public:
  // `calls` is borrowed and must outlive this.
  StatusPoller(CoordinatorCalls* calls, absl::Duration interval);
  ~StatusPoller();  // blocks for one call and `interval` at most

  // The newest answer; nullopt before the first one. Never blocks.
  std::optional<v1::Status> Latest() const;

  // For how long every call has been answered; zero if the last one was not.
  absl::Duration AnsweredFor() const;

 private:
  void Run();

  CoordinatorCalls* const calls_;
  const absl::Duration interval_;

  mutable Mutex mu_;
  std::condition_variable wake_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<v1::Status> latest_ ABSL_GUARDED_BY(mu_);
  absl::Time answers_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  std::thread thread_;  // last: it uses the others
};

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_STATUS_POLLER_H_
