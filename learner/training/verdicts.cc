#include "learner/training/verdicts.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/base/config.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

// Episodes that a mean has to be over before it says anything, where the window
// can hold them.
constexpr int64_t kEnoughEpisodes = 20;

int64_t DelayOf(const v1::RunConfig& config) {
  const v1::EvaluationConfig& e = config.evaluation();
  if (!config.runtime().deterministic() || !e.has_stop_return() ||
      e.stop_at_once() || CollectionOf(config) == Collection::kFreeRunning) {
    return 0;
  }
  // What update u comes to is known when it has been committed.
  return e.deterministic_delay_updates();
}

}  // namespace

bool EvaluationIsDue(const v1::RunConfig& config, const Progress& progress,
                     const RunMetrics::Window& window) {
  const v1::EvaluationConfig& evaluation = config.evaluation();
  if (evaluation.every_updates() == 0 ||
      progress.update % evaluation.every_updates() != 0) {
    return false;
  }
  const int64_t most = config.metrics().episode_window();
  return !evaluation.has_min_training_return() ||
         (window.episodes >= std::min(kEnoughEpisodes, most) &&
          window.mean_return >= evaluation.min_training_return());
}

Verdicts::Verdicts(const LoopParts& parts)
    : parts_(parts), delay_(DelayOf(parts.config)) {}

v1::Evaluation Verdicts::Newest() const {
  v1::Evaluation newest = parts_.coordinator->Latest().evaluation();
  if (newest.round() <= ignored_) return v1::Evaluation();
  return newest;
}

int64_t Verdicts::decided() const {
  const v1::Evaluation newest = Newest();
  // Nothing is evaluated after what ends the run.
  if (newest.stop()) return std::numeric_limits<int64_t>::max();
  return std::max(newest.round(), ignored_);
}

absl::Status Verdicts::Share(Collective* collective, int source,
                             Progress* progress) {
  if (!awaited()) return absl::OkStatus();
  const int64_t ignored =
      due_.empty() ? std::max(progress->evaluation_round,
                              parts_.coordinator->Latest().evaluation().round())
                   : due_.front().progress.evaluation_round - 1;
  std::vector<int64_t> shared = {ignored, static_cast<int64_t>(due_.size())};
  RETURN_IF_ERROR(ShareWords(collective, source, &shared));
  // Aside, until all of it has come.
  std::deque<Snapshot> due(shared[1]);
  if (collective->rank() == source) due = due_;
  for (Snapshot& snapshot : due) {
    RETURN_IF_ERROR(
        ShareSnapshot(collective, source, parts_.Live(), &snapshot));
  }
  due_ = std::move(due);
  ignored_ = shared[0];
  progress->evaluation_round = std::max(progress->evaluation_round, ignored_);
  return absl::OkStatus();
}

void Verdicts::Committed(bool is_due, bool solved, Progress* progress) {
  if (!awaited() || solved) return;
  while (!due_.empty() &&
         due_.front().progress.update + delay_ <= progress->update) {
    due_.pop_front();
  }
  if (!is_due) return;
  ++progress->evaluation_round;
  due_.emplace_back();
  TakeSnapshot(parts_.Live(), *progress, &due_.back());
}

absl::Status Verdicts::Await(
    int64_t update, std::stop_token fence,
    const std::function<void(int64_t evaluated)>& waits,
    const std::function<absl::Status()>& play) const {
  bool told = false;
  for (const Snapshot& snapshot : due_) {
    const Progress& evaluated = snapshot.progress;
    if (evaluated.update + delay_ > update) break;
    bool waiting = false;
    while (decided() < evaluated.evaluation_round) {
      if (!std::exchange(waiting, true)) waits(evaluated.update);
      if (fence.stop_requested()) {
        return absl::AbortedError(
            absl::StrCat("the generation ended while the evaluation of update ",
                         evaluated.update, " was awaited"));
      }
      if (parts_.coordinator->Latest().stop()) return absl::OkStatus();
      // The others wait too: all have to hear of it.
      if (parts_.stop.stop_requested() && !told) {
        told = parts_.coordinator
                   ->StopRun(absl::StrCat(parts_.member_id, " got SIG",
                                          sigabbrev_np(parts_.first_signal())),
                             /*preempted=*/parts_.first_signal() != SIGINT)
                   .ok();
      }
      RETURN_IF_ERROR(play());
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  return absl::OkStatus();
}

bool Verdicts::told_to_end() const { return Newest().stop(); }

// What has acted is forgotten at once, but for what ended the run.
bool Verdicts::Solved(int64_t update) const {
  return !due_.empty() && due_.front().progress.update + delay_ <= update;
}

bool Verdicts::EndTheRun(int64_t update) const {
  const v1::Evaluation newest = Newest();
  // What was evaluated in a future that was lost with its learners is none of ours yet.
  return newest.stop() && newest.update() + delay_ <= update;
}

}  // namespace flotilla
