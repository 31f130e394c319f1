#include "learner/training/stragglers.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace flotilla {

Stragglers::Stragglers(const v1::RunConfig& config,
                       CoordinatorClient* coordinator)
    : fraction_(config.distributed().preemption_fraction()),
      coordinator_(coordinator) {
  preemption_.min_steps = std::max<int64_t>(
      1, std::ceil(config.distributed().preemption_min_rollout() *
                   config.rollout().length()));
  preemption_.asked = [this] {
    const v1::Command command = coordinator_->Latest();
    return command.preempt_generation() == generation_ &&
           command.preempt_update() == number_;
  };
}

const Preemption* Stragglers::Begin(uint64_t generation, int64_t update) {
  generation_ = generation;
  number_ = update + 1;
  return fraction_ > 0 ? &preemption_ : nullptr;
}

void Stragglers::Finished() {
  if (fraction_ == 0) return;
  if (report_.valid() &&
      report_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return;
  }
  report_ = std::async(std::launch::async, [this, generation = generation_,
                                            number = number_] {
    coordinator_->ReportCollected(generation, number, fraction_).IgnoreError();
  });
}

}  // namespace flotilla
