#ifndef FLOTILLA_LEARNER_TRAINING_PHASE_REPORTER_H_
#define FLOTILLA_LEARNER_TRAINING_PHASE_REPORTER_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/training/watchdog.h"
#include "services/base/mutex.h"
#include "services/coordinator/coordinator_client.h"

namespace flotilla {

// Says what this rank does: to the coordinator, in its heartbeats, and to a
// watchdog, which ends a learner that hangs.
//
// A phase may last: what changes meanwhile (workers, rows that fail; collecting is
// STEPPING or INFERENCE, several thousand times a second by turns) is looked up
// once a heartbeat, by a thread.
//
// Not thread-safe: the training loop owns it.
class PhaseReporter {
 public:
  // `describe` fills in what heartbeats of a phase say beside its name, and
  // `refresh` what may change in it. That and `hangs`, which may end the process,
  // are called on other threads. `coordinator` is borrowed.
  PhaseReporter(const v1::RunConfig& config, const std::string& member_id,
                CoordinatorClient* coordinator,
                std::function<void(v1::Heartbeat*)> describe,
                std::function<void(v1::Heartbeat*)> refresh,
                std::function<void(const absl::Status&)> hangs);
  ~PhaseReporter();

  // `update`: committed so far. `waits_for`: in words; "" for nobody.
  void Enter(v1::Phase phase, int64_t update, const std::string& waits_for);

 private:
  void Sample();
  void Report() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const double collective_seconds_;
  CoordinatorClient* const coordinator_;
  const std::function<void(v1::Heartbeat*)> describe_;
  const std::function<void(v1::Heartbeat*)> refresh_;
  const absl::Duration interval_;  // between heartbeats
  Watchdog watchdog_;

  Mutex mu_;
  std::condition_variable quits_;
  bool quit_ ABSL_GUARDED_BY(mu_) = false;
  // As it was when the phase began, not refreshed.
  v1::Heartbeat beat_ ABSL_GUARDED_BY(mu_);
  absl::Time entered_ ABSL_GUARDED_BY(mu_);
  std::thread sampler_;  // last: it uses the others
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_PHASE_REPORTER_H_
