#include "learner/actor/rollouts_ahead.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "services/base/config.h"
#include "services/base/random.h"
#include "services/base/status_macros.h"

namespace flotilla {

RolloutsAhead::RolloutsAhead(RolloutSourceOptions options)
    : options_(std::move(options)),
      one_ahead_(CollectionOf(options_.config) == Collection::kOneAhead),
      normalizer_(options_.config.model(), Discount(options_.config),
                  options_.spaces.normalized(),
                  options_.config.env().num_envs()),
      collector_(MakeCollector(options_.pool, options_.spaces,
                               CollectorOptions(options_), &normalizer_)) {
  // Beside those that wait, one is being filled and one learned from.
  const v1::RolloutConfig& rollout = options_.config.rollout();
  for (int i = 0; i < rollout.queue_capacity() + 2; ++i) {
    slots_.push_back(MakeRolloutFor(options_, collector_->rows()));
  }
}

void RolloutsAhead::Begin(int rank, std::stop_token fence) {
  End();
  normalizer_.Take();  // of the generation before, which was given up
  filled_ = std::make_unique<BoundedQueue<Collected>>(
      options_.config.rollout().queue_capacity());
  stop_ = std::stop_source();
  {
    MutexLock lock(&mu_);
    published_.clear();
    free_.clear();
    const StreamMark now = StreamMark::Now(options_.acts_on);
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      free_.push_back({slot, now});
    }
    cancelled_ = false;
  }
  lent_.reset();
  on_fence_.emplace(fence, [this] { Cancel(); });
  thread_ = std::thread([this, rank, stop = stop_.get_token()] {
    CollectUntilCancelled(rank, stop);
  });
}

void RolloutsAhead::Cancel() {
  stop_.request_stop();
  filled_->Close();
  MutexLock lock(&mu_);
  cancelled_ = true;
  changed_.notify_all();
}

void RolloutsAhead::End() {
  on_fence_.reset();
  if (!thread_.joinable()) return;
  Cancel();
  thread_.join();
}

absl::StatusOr<Experience> RolloutsAhead::Next(int64_t update,
                                               const Preemption*) {
  const auto asked = std::chrono::steady_clock::now();
  Published now;
  now.version = update;
  now.policy = options_.freeze();
  now.scaling = options_.normalizer->ForEvaluation();
  now.opponents = options_.opponents();
  now.frozen = StreamMark::Now(options_.acts_on);
  {
    MutexLock lock(&mu_);
    published_.push_back(std::move(now));
    changed_.notify_all();
  }
  if (lent_.has_value()) Release(*lent_);
  lent_.reset();

  Experience experience;
  // Of dropped rollouts: what was played counts.
  std::vector<CollectStats::Episode> before;
  std::vector<GameResult> games;
  std::vector<double> noted;
  for (;;) {
    std::optional<Collected> next = filled_->Pop();
    if (!next.has_value() || stop_.stop_requested()) {
      return absl::CancelledError("told to stop");
    }
    next->filled.Await();
    RETURN_IF_ERROR(next->status);
    const Rollout& rollout = slots_[next->slot];
    experience.env_steps += rollout.valid_steps;
    experience.policy_lag = update - rollout.policy_version;
    std::vector<CollectStats::Episode>& episodes = next->stats.episodes;
    episodes.insert(episodes.begin(), before.begin(), before.end());
    games.insert(games.end(), next->stats.games.begin(),
                 next->stats.games.end());
    noted.resize(next->noted.size());
    std::ranges::transform(noted, next->noted, noted.begin(), std::plus());
    if (!one_ahead_ &&
        experience.policy_lag > options_.config.rollout().max_policy_lag()) {
      ++experience.dropped;
      before = std::move(episodes);
      Release(next->slot);
      continue;
    }
    lent_ = next->slot;
    experience.rollout = &rollout;
    experience.stats = std::move(next->stats);
    experience.stats.games = std::move(games);
    experience.noted = std::move(noted);
    experience.stats.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - asked)
            .count();
    return experience;
  }
}

void RolloutsAhead::CollectUntilCancelled(int rank, std::stop_token stop) {
  // Both outlive what the stream was asked of them.
  std::optional<Published> current;
  std::vector<Published> retired;
  const OwnStream stream(options_.acts_on);
  int64_t first = -1;  // the version of the first policy
  for (int64_t i = 0;; ++i) {
    if (!AwaitPolicy(first + i, first, &current, &retired)) return;
    if (first < 0) first = current->version;
    current->frozen.Await();
    Collected next;
    next.slot = TakeFreeSlot();
    Rollout* rollout = &slots_[next.slot];
    normalizer_.ScaleAs(current->scaling);
    Draws draws(SamplingSeed(options_.config.seed(), rank, first + i));
    try {
      next.status = collector_->Collect(current->policy.get(), &draws, stop,
                                        /*preemption=*/nullptr, rollout,
                                        &next.stats, current->opponents.get());
    } catch (const std::exception& e) {  // Torch's, for who learns to tell
      next.status = absl::InternalError(e.what());
    }
    rollout->policy_version = current->version;
    next.noted = normalizer_.Take();
    next.filled = StreamMark::Now(options_.acts_on);
    next.retired = std::exchange(retired, {});
    const bool failed = !next.status.ok();
    if (!filled_->Push(std::move(next)) || failed) return;
  }
}

bool RolloutsAhead::AwaitPolicy(int64_t index, int64_t first,
                                std::optional<Published>* current,
                                std::vector<Published>* retired) {
  MutexLock lock(&mu_);
  // One ahead: that of the update before, or the first.
  const int64_t wanted = one_ahead_ ? std::max(first, index - 1) : 0;
  for (;;) {
    if (cancelled_) return false;
    while (!published_.empty() && (!one_ahead_ || !current->has_value() ||
                                   published_.front().version <= wanted)) {
      if (current->has_value()) retired->push_back(*std::move(*current));
      *current = std::move(published_.front());
      published_.pop_front();
    }
    if (current->has_value() && (*current)->version >= wanted) return true;
    lock.Wait(&changed_);
  }
}

// There always is one: see the constructor.
size_t RolloutsAhead::TakeFreeSlot() {
  MutexLock lock(&mu_);
  const FreeSlot free = free_.back();
  free_.pop_back();
  free.learned.Await();
  return free.slot;
}

void RolloutsAhead::Release(size_t slot) {
  MutexLock lock(&mu_);
  free_.push_back({slot, StreamMark::Now(options_.acts_on)});
}

}  // namespace flotilla
