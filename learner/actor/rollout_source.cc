#include "learner/actor/rollout_source.h"

#include <utility>

#include "learner/actor/rollouts_ahead.h"
#include "services/algorithms/algorithm_traits.h"
#include "services/base/config.h"
#include "services/base/random.h"
#include "services/base/status_macros.h"
#include "services/env/agents.h"

namespace flotilla {
namespace {

// Collects while the trainer waits, with the policy that is being trained.
class RolloutsWhenAsked : public RolloutSource {
 public:
  explicit RolloutsWhenAsked(RolloutSourceOptions options)
      : options_(std::move(options)),
        collector_(MakeCollector(options_.pool, options_.spaces,
                                 CollectorOptions(options_),
                                 options_.normalizer)),
        rollout_(MakeRolloutFor(options_, collector_->rows())) {}

  void Begin(int rank, std::stop_token fence) override {
    options_.normalizer->Take();  // of a rollout that was given up
    rank_ = rank;
    fence_ = fence;
  }

  absl::StatusOr<Experience> Next(int64_t update,
                                  const Preemption* preemption) override {
    Experience experience;
    Draws draws(SamplingSeed(options_.config.seed(), rank_, update));
    const std::shared_ptr<const Opponents> opponents = options_.opponents();
    RETURN_IF_ERROR(collector_->Collect(options_.live_policy, &draws, fence_,
                                        preemption, &rollout_,
                                        &experience.stats, opponents.get()));
    rollout_.policy_version = update;
    experience.rollout = &rollout_;
    experience.env_steps = rollout_.valid_steps;
    experience.noted = options_.normalizer->Take();
    return experience;
  }

  void End() override {}

  bool deciding() const override { return collector_->deciding(); }

 private:
  const RolloutSourceOptions options_;
  const std::unique_ptr<Collector> collector_;
  Rollout rollout_;
  int rank_ = 0;
  std::stop_token fence_;
};

// Whether who collects does: an algorithm's live policy may where its frozen ones do
// not.
bool DecidesThere(const RolloutSourceOptions& options) {
  return CollectionOf(options.config) == Collection::kWhenAsked
             ? options.live_policy->resident() != nullptr
             : options.freeze()->resident() != nullptr;
}

}  // namespace

Rollout MakeRolloutFor(const RolloutSourceOptions& options, int64_t rows) {
  const int64_t length = options.config.rollout().length();
  Rollout rollout = MakeRollout(options.spaces, length, rows, options.pinned,
                                options.state_size);
  // Agents that take turns leave gaps that only the host fills, and an algorithm of
  // one's own reads what was decided here.
  if (!options.learned_on.is_cpu() && !TraitsOf(options.config).StandsIn() &&
      options.pool->spec().agents() <= 1 && DecidesThere(options)) {
    rollout.there = std::make_shared<Rollout>(MakeRolloutOn(
        options.learned_on, options.spaces, length, rows, options.state_size));
  }
  return rollout;
}

Collector::Options CollectorOptions(const RolloutSourceOptions& options) {
  const v1::RunConfig& config = options.config;
  return {.bootstrap_truncation = TraitsOf(config).BootstrapsTruncation(config),
          .reset_state = config.rollout().reset_state(),
          .hurry = options.hurry,
          .opponent_slots = OpponentSlots(config)};
}

std::unique_ptr<RolloutSource> MakeRolloutSource(RolloutSourceOptions options) {
  if (CollectionOf(options.config) == Collection::kWhenAsked) {
    return std::make_unique<RolloutsWhenAsked>(std::move(options));
  }
  return std::make_unique<RolloutsAhead>(std::move(options));
}

}  // namespace flotilla
