#include "learner/training/phase_reporter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/steady_now.h"

namespace flotilla {

PhaseReporter::PhaseReporter(const v1::RunConfig& config,
                             const std::string& member_id,
                             CoordinatorClient* coordinator,
                             std::function<void(v1::Heartbeat*)> describe,
                             std::function<void(v1::Heartbeat*)> refresh,
                             std::function<void(const absl::Status&)> hangs)
    : collective_seconds_(config.distributed().timeout_seconds()),
      coordinator_(coordinator),
      describe_(std::move(describe)),
      refresh_(std::move(refresh)),
      interval_(absl::Seconds(config.distributed().heartbeat_seconds())),
      watchdog_(
          absl::Seconds(config.runtime().progress_timeout_seconds()),
          [hangs = std::move(hangs), member_id,
           limit = config.runtime().progress_timeout_seconds()](
              const std::string& step) {
            hangs(absl::DeadlineExceededError(absl::StrCat(
                member_id, ": ", step, " has not ended after ", limit,
                " s (runtime.progress_timeout_seconds): this learner hangs. "
                "If it is only slow, raise that")));
          }),
      sampler_([this] { Sample(); }) {}

PhaseReporter::~PhaseReporter() {
  {
    MutexLock lock(&mu_);
    quit_ = true;
    quits_.notify_all();
  }
  sampler_.join();
}

void PhaseReporter::Enter(v1::Phase phase, int64_t update,
                          const std::string& waits_for) {
  v1::Heartbeat beat;
  describe_(&beat);
  beat.set_phase(phase);
  beat.set_waits_for(waits_for);
  beat.set_update(update);
  {
    MutexLock lock(&mu_);
    beat_ = std::move(beat);
    entered_ = SteadyNow();
    Report();
  }
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

void PhaseReporter::Sample() {
  MutexLock lock(&mu_);
  while (!quit_) {
    lock.WaitFor(&quits_, interval_);
    if (!quit_ && entered_ != absl::Time()) Report();
  }
}

void PhaseReporter::Report() {
  v1::Heartbeat now = beat_;
  now.set_phase_seconds(absl::ToDoubleSeconds(SteadyNow() - entered_));
  refresh_(&now);
  coordinator_->Report(now);
}

}  // namespace flotilla
