#ifndef FLOTILLA_LEARNER_TRAINING_PHASE_REPORTER_H_
#define FLOTILLA_LEARNER_TRAINING_PHASE_REPORTER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/training/watchdog.h"
#include "services/coordinator/coordinator_client.h"

namespace flotilla {

// Says what this rank does: to the coordinator, in its heartbeats, and to a
// watchdog, which ends a learner that hangs.
//
// Not thread-safe: the training loop owns it.
class PhaseReporter {
 public:
  // `describe` fills in what heartbeats say beside the phase. `hangs` is called
  // on another thread, and may end the process. `coordinator` is borrowed.
  PhaseReporter(const v1::RunConfig& config, const std::string& member_id,
                CoordinatorClient* coordinator,
                std::function<void(v1::Heartbeat*)> describe,
                std::function<void(const absl::Status&)> hangs);

  // `update`: committed so far. `waits_for`: in words; "" for nobody.
  void Enter(v1::Phase phase, int64_t update, const std::string& waits_for);

 private:
  const double collective_seconds_;
  CoordinatorClient* const coordinator_;
  const std::function<void(v1::Heartbeat*)> describe_;
  Watchdog watchdog_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_PHASE_REPORTER_H_
