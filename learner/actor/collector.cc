#include "learner/actor/collector.h"

#include <utility>

#include "learner/actor/agent_collector.h"
#include "learner/actor/lockstep_collector.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"

namespace flotilla {
namespace {

// What steps on their way get once the process is to end: it has to save too,
// within runtime.save_and_stop_seconds.
constexpr std::chrono::seconds kHurryPatience(3);

}  // namespace

absl::Status Collector::Collect(Policy* policy, Draws* draws,
                                std::stop_token stop,
                                const Preemption* preemption, Rollout* rollout,
                                CollectStats* stats,
                                const Opponents* opponents) {
  const Stopwatch all(&stats->seconds);
  const Task task = {policy,  draws, std::move(stop), preemption,
                     rollout, stats, opponents};
  // What nobody can learn from is not worth an update, for a while.
  const absl::Time began = SteadyNow();
  do {
    RETURN_IF_ERROR(Fill(task));
  } while (rollout->valid_steps == 0 && !stats->preempted && cut_at_ < began &&
           SteadyNow() - began < pool_->failed_rows().window() &&
           !(options_.hurry && options_.hurry()));
  return absl::OkStatus();
}

bool Collector::Alarmed() {
  const absl::Time now = SteadyNow();
  if (now - cut_at_ < pool_->failed_rows().window() ||
      !pool_->failed_rows().Alarming()) {
    return false;
  }
  cut_at_ = now;
  return true;
}

absl::StatusOr<EnvPool::Event> Collector::Receive(
    int slot, const Task& task, absl::FunctionRef<bool()> give_up) {
  const Stopwatch waiting(&task.stats->env_seconds);
  return pool_->Receive(slot, task.stop,
                        [&] { return give_up() || Hurried(); });
}

bool Collector::Hurried() {
  if (!options_.hurry || !options_.hurry()) return false;
  const auto now = std::chrono::steady_clock::now();
  if (!hurry_since_.has_value()) hurry_since_ = now;
  return now - *hurry_since_ > kHurryPatience;
}

CollectStats::Episode Collector::EpisodeOf(int64_t row,
                                           const v1::EpisodeEnd& end) const {
  CollectStats::Episode episode = {row, end.raw_return(), end.length()};
  for (const std::string& name : pool_->spec().episode_metric()) {
    const auto found = end.metric().find(name);
    episode.metrics.push_back(found == end.metric().end() ? 0 : found->second);
  }
  return episode;
}

std::unique_ptr<Collector> MakeCollector(EnvPool* pool, const Spaces& spaces,
                                         const Collector::Options& options,
                                         Normalizer* normalizer) {
  if (pool->spec().agents() > 1) {
    return std::make_unique<AgentCollector>(pool, spaces, options, normalizer);
  }
  return std::make_unique<LockstepCollector>(pool, spaces, options, normalizer);
}

}  // namespace flotilla
