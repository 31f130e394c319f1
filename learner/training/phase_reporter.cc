#include "learner/training/phase_reporter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace flotilla {

PhaseReporter::PhaseReporter(const v1::RunConfig& config,
                             const std::string& member_id,
                             CoordinatorClient* coordinator,
                             std::function<void(v1::Heartbeat*)> describe,
                             std::function<void(const absl::Status&)> hangs)
    : collective_seconds_(config.distributed().timeout_seconds()),
      coordinator_(coordinator),
      describe_(std::move(describe)),
      watchdog_(
          absl::Seconds(config.runtime().progress_timeout_seconds()),
          [hangs = std::move(hangs), member_id,
           limit = config.runtime().progress_timeout_seconds()](
              const std::string& step) {
            hangs(absl::DeadlineExceededError(absl::StrCat(
                member_id, ": ", step, " has not ended after ", limit,
                " s (runtime.progress_timeout_seconds): this learner hangs. "
                "If it is only slow, raise that")));
          }) {}

void PhaseReporter::Enter(v1::Phase phase, int64_t update,
                          const std::string& waits_for) {
  v1::Heartbeat beat;
  describe_(&beat);
  beat.set_phase(phase);
  beat.set_waits_for(waits_for);
  beat.set_update(update);
  coordinator_->Report(beat);
  // Peers, checkpoints and evaluations have deadlines of their own.
  if (phase == v1::STEPPING) {
    watchdog_.Begin(absl::StrCat("the rollout of update ", update));
  } else if (phase == v1::LEARNING) {
    watchdog_.Begin(
        absl::StrCat("update ", update, ", besides ", collective_seconds_,
                     " s for its collectives,"),
        absl::Seconds(collective_seconds_));
  } else {
    watchdog_.Rest();
  }
}

}  // namespace flotilla
