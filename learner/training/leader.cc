#include "learner/training/leader.h"

#include <utility>
#include <vector>

#include "services/base/status_macros.h"

namespace flotilla {

absl::StatusOr<std::unique_ptr<Leader>> Leader::Open(
    const LeaderOptions& options, const LoopParts& parts,
    const Progress& progress) {
  std::optional<Progress> resumed_at;
  if (progress.update > 0) resumed_at = progress;
  ASSIGN_OR_RETURN(
      std::unique_ptr<Recorder> recorder,
      Recorder::Open(parts.config, options.run_folder, resumed_at));
  return std::unique_ptr<Leader>(
      new Leader(options, parts, std::move(recorder)));
}

Leader::Leader(const LeaderOptions& options, const LoopParts& parts,
               std::unique_ptr<Recorder> recorder)
    : parts_(parts),
      recorder_(std::move(recorder)),
      evaluations_(parts.config, options.workers, options.spaces,
                   parts.coordinator, recorder_.get()),
      usage_(parts.device) {}

void Leader::BeforeUpdates(Progress* progress) {
  if (parts_.config.evaluation().at_start() &&
      progress->evaluation_round == 0) {
    MaybeEvaluate(RunMetrics::Window(), progress);
  }
}

void Leader::AfterUpdate(const Iteration::Result& result,
                         const RunMetrics::Window& window, Progress* progress) {
  evaluations_.Take(progress);
  if (!result.line.empty()) {
    std::vector<Metric> line = result.line;
    const std::vector<Metric>& usage = usage_.Sample();
    line.insert(line.end(), usage.begin(), usage.end());
    recorder_->WriteMetrics(*progress, line);
  }
  MaybeEvaluate(window, progress);
  MaybeSave(*progress);
}

void Leader::MaybeEvaluate(const RunMetrics::Window& window,
                           Progress* progress) {
  const v1::EvaluationConfig& e = parts_.config.evaluation();
  if (e.every_updates() == 0 || progress->update % e.every_updates() != 0 ||
      evaluations_.busy()) {
    return;
  }
  if (e.has_min_training_return() &&
      (window.episodes < 20 || window.mean_return < e.min_training_return())) {
    return;
  }
  evaluations_.Begin(parts_.algorithm, parts_.normalizer, progress);
}

void Leader::MaybeSave(const Progress& progress) {
  const int64_t every = parts_.config.checkpoint().every_updates();
  if (every == 0 || progress.update % every != 0) return;
  recorder_->Save(SnapshotNow(progress), /*best=*/false);
}

Snapshot Leader::SnapshotNow(const Progress& progress) const {
  Snapshot now;
  TakeSnapshot(parts_.Live(), progress, &now);
  return now;
}

absl::Status Leader::Conclude(RunOutcome outcome, v1::RunSummary summary,
                              Progress* progress) {
  recorder_->Save(SnapshotNow(*progress), /*best=*/false);
  const auto& last = evaluations_.last();
  if (outcome == RunOutcome::kCompleted &&
      parts_.config.evaluation().every_updates() > 0) {
    // For the last one, unless the user does not want to wait.
    evaluations_.Await(progress, parts_.stop);
    if (!evaluations_.busy() &&
        (!last.has_value() || last->update() != progress->update)) {
      evaluations_.Begin(parts_.algorithm, parts_.normalizer, progress);
      evaluations_.Await(progress, parts_.stop);
    }
    if (last.has_value() && last->stop()) outcome = RunOutcome::kSolved;
  }
  summary.set_status(StatusOf(outcome));
  if (last.has_value()) {
    summary.set_eval_mean_return(last->mean_return());
    summary.set_eval_episodes(last->episodes());
    summary.set_eval_update(last->update());
  }
  const absl::Status saved = recorder_->FinishSaving();
  if (!saved.ok()) summary.set_error(std::string(saved.message()));
  RETURN_IF_ERROR(recorder_->WriteSummary(*progress, summary));
  parts_.coordinator->CloseRun(OutcomeName(outcome)).IgnoreError();
  return saved;
}

}  // namespace flotilla
