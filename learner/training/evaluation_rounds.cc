#include "learner/training/evaluation_rounds.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "learner/torch.h"
#include "services/base/run_changes.h"
#include "services/base/steady_now.h"

namespace flotilla {
namespace {

constexpr int kAttempts = 3;
// Between two times that the coordinator is told of one. It may have heard of it,
// and its word be on its way.
constexpr absl::Duration kTellInterval = absl::Seconds(1);

}  // namespace

std::vector<Metric> MetricsOf(const v1::Evaluation& evaluation) {
  std::vector<Metric> metrics = {
      {"eval/mean_return", evaluation.mean_return()},
      {"eval/mean_length", evaluation.mean_length()},
      {"eval/update", static_cast<double>(evaluation.update())}};
  const size_t ours = metrics.size();
  for (const auto& [own, mean] : evaluation.mean_metric()) {
    const std::string name = "eval/" + own;
    const bool taken =
        std::any_of(metrics.begin(), metrics.begin() + ours,
                    [&](const Metric& metric) { return metric.name == name; });
    if (!taken) metrics.push_back({name, mean});
  }
  return metrics;
}

EvaluationRounds::EvaluationRounds(const LoopParts& parts,
                                   std::unique_ptr<Evaluator> evaluator,
                                   Recorder* recorder)
    : parts_(parts), recorder_(recorder), evaluator_(std::move(evaluator)) {}

void EvaluationRounds::Begin(Progress* progress) {
  // A rank 0 that was replaced may have counted further: older rounds would be
  // ignored.
  progress->evaluation_round =
      std::max(progress->evaluation_round,
               parts_.coordinator->Latest().evaluation().round()) +
      1;
  TakeSnapshot(parts_.Live(), *progress, &evaluated_);
  PlayEvaluated();
}

std::shared_ptr<const Opponents> EvaluationRounds::EarlierSelves() const {
  return parts_.self_play == nullptr ? nullptr
                                     : parts_.self_play->ForEvaluation();
}

// Whoever evaluates it, and whenever: by what held, and exploring as it did, behind
// that update. Before the next rollout the algorithm is told anew where the run is.
void EvaluationRounds::PlayEvaluated() {
  const Progress& at = evaluated_.progress;
  evaluator_->Reconfigure(
      ConfigAt(parts_.config, at.changes, at.update + 1).evaluation());
  parts_.algorithm->BeforeCollecting(at.global_step);
  evaluator_->Begin(parts_.algorithm->Freeze(), EarlierSelves(),
                    *parts_.normalizer, at.evaluation_round, at.update,
                    at.global_step);
}

// Later than what is learnt by then: its weights take their place for a moment.
void EvaluationRounds::BeginWith(Snapshot evaluated) {
  evaluated_ = std::move(evaluated);
  Progress ignored;
  Snapshot now;
  TakeSnapshot(parts_.Live(), Progress(), &now);
  RestoreSnapshot(evaluated_, parts_.Live(), &ignored);
  PlayEvaluated();
  RestoreSnapshot(now, parts_.Live(), &ignored);
}

void EvaluationRounds::Take(Progress* progress) {
  const absl::Status taken = TakeFinished(progress);
  LOG_IF(ERROR, !taken.ok())
      << "an evaluation failed and was skipped: " << taken.message();
  Tell();
}

absl::Status EvaluationRounds::Play(const std::deque<Snapshot>& due,
                                    int64_t decided, Progress* progress) {
  const absl::Status taken = TakeFinished(progress);
  if (!taken.ok() && ++failures_ >= kAttempts) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the evaluation of update ", evaluated_.progress.update, " has failed ",
        failures_, " times, and its verdict may end the run: ", taken.message(),
        ". With --set evaluation.stop_at_once=true a run goes on without"));
  }
  LOG_IF(WARNING, !taken.ok())
      << "an evaluation failed and is played again: " << taken.message();
  Tell();
  if (busy()) return absl::OkStatus();
  // The coordinator may be away: what it has not heard of is decided too.
  if (ended()) return absl::OkStatus();
  if (last_.has_value()) decided = std::max(decided, last_->round());
  for (const Snapshot& snapshot : due) {
    if (snapshot.progress.evaluation_round <= decided) continue;
    BeginWith(snapshot);
    break;
  }
  return absl::OkStatus();
}

// Errors: the evaluation's.
absl::Status EvaluationRounds::TakeFinished(Progress* progress) {
  const auto finished = evaluator_->Take();
  if (!finished.has_value()) return absl::OkStatus();
  if (!finished->ok()) return finished->status();
  failures_ = 0;
  last_ = **finished;
  LOG(INFO) << "evaluation of update " << last_->update() << ": mean "
            << last_->mean_return() << " over " << last_->episodes()
            << " episodes";
  tell_at_ = absl::InfinitePast();
  Tell();
  recorder_->WriteMetrics(*progress, MetricsOf(*last_));
  // Better than what is kept, whatever has been committed of it: one that could not
  // be written is none.
  const bool best = recorder_->IsBest(last_->mean_return());
  progress->best_return = std::max(
      {progress->best_return, recorder_->best_return(), last_->mean_return()});
  if (best) {
    evaluated_.progress.best_return = last_->mean_return();
    recorder_->Save(std::move(evaluated_), /*best=*/true);
  }
  evaluated_ = Snapshot();
  return absl::OkStatus();
}

// Tells the coordinator of the newest, unless it is known to have heard of it. One
// that is away answers late, and training does not wait for it.
void EvaluationRounds::Tell() {
  if (!last_.has_value() ||
      parts_.coordinator->Latest().evaluation().round() >= last_->round()) {
    return;
  }
  const absl::Time now = SteadyNow();
  if (now < tell_at_ ||
      (telling_.valid() && telling_.wait_for(std::chrono::seconds(0)) !=
                               std::future_status::ready)) {
    return;
  }
  tell_at_ = now + kTellInterval;
  telling_ = std::async(std::launch::async, [coordinator = parts_.coordinator,
                                             evaluation = *last_] {
    const absl::Status told = coordinator->ReportEvaluation(evaluation);
    LOG_IF(WARNING, !told.ok())
        << "the coordinator has not heard of the evaluation of update "
        << evaluation.update() << " and is told again: " << told.message();
  });
}

void EvaluationRounds::FinishTelling() {
  if (telling_.valid()) telling_.wait();
  // What was being told may have been the one before.
  tell_at_ = absl::InfinitePast();
  Tell();
  if (telling_.valid()) telling_.wait();
}

void EvaluationRounds::Await(Progress* progress,
                             const std::function<bool()>& stopped) {
  while (busy() && !stopped()) {
    evaluator_->WaitFor(absl::Milliseconds(20));
    Take(progress);
  }
}

}  // namespace flotilla
