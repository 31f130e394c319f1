#include "learner/training/leader.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Leader>> Leader::Open(
    const LeaderOptions& options, const LoopParts& parts,
    const Changes* changes, const Progress& progress) {
  std::optional<Progress> resumed_at;
  if (progress.update > 0) resumed_at = progress;
  ASSIGN_OR_RETURN(
      std::unique_ptr<Recorder> recorder,
      Recorder::Open(options.run_config, options.run_folder, resumed_at));
  return std::unique_ptr<Leader>(
      new Leader(options, parts, changes, std::move(recorder)));
}

Leader::Leader(const LeaderOptions& options, const LoopParts& parts,
               const Changes* changes, std::unique_ptr<Recorder> recorder)
    : parts_(parts),
      changes_(changes),
      recorder_(std::move(recorder)),
      evaluations_(parts, options.make_evaluator(), recorder_.get()),
      games_(options.keep_games ? options.keep_games() : nullptr),
      save_clock_(Now()) {}

bool Leader::AsksToSave() const {
  // One that is still being written is not waited for.
  return !recorder_->saving() &&
         save_clock_.Asks(changes_->config().checkpoint(), Now());
}

void Leader::Record(const std::vector<Metric>& line, const Progress& progress) {
  recorder_->WriteChanges(progress);
  if (!line.empty()) recorder_->WriteUpdate(progress, line);
  if (games_ != nullptr) games_->Passed(progress.global_step);
}

absl::Status Leader::Evaluate(bool is_due, const Verdicts& verdicts,
                              Progress* progress) {
  if (verdicts.awaited()) return PlayDue(verdicts, progress);
  evaluations_.Take(progress);
  // What ends the run is the newest until all ranks have heard of it.
  if (is_due && !evaluations_.busy() && !evaluations_.ended()) {
    evaluations_.Begin(progress);
  }
  return absl::OkStatus();
}

absl::Status Leader::PlayDue(const Verdicts& verdicts, Progress* progress) {
  return evaluations_.Play(verdicts.due(), verdicts.decided(), progress);
}

void Leader::Save(const Progress& progress) {
  const double now = Now();
  save_clock_.Began(now, copy_seconds_ + recorder_->save_seconds());
  BeginSaving(progress);
  copy_seconds_ = Now() - now;
  if (parts_.replay != nullptr) copy_seconds_ += parts_.replay->copy_seconds();
}

void Leader::BeginSaving(const Progress& progress) {
  std::shared_future<void> replay;
  if (parts_.replay != nullptr) replay = parts_.replay->saved();
  recorder_->Save(SnapshotNow(progress), /*best=*/false, replay);
}

Snapshot Leader::SnapshotNow(const Progress& progress) const {
  Snapshot now;
  TakeSnapshot(parts_.Live(), progress, &now);
  return now;
}

// What is due, and the last policy.
absl::Status Leader::EvaluateTheRest(const Verdicts& verdicts,
                                     Progress* progress) {
  const auto& last = evaluations_.last();
  const auto stopped = [&] {
    return parts_.stop.stop_requested() || parts_.coordinator->Latest().stop();
  };
  if (verdicts.awaited()) {
    RETURN_IF_ERROR(PlayDue(verdicts, progress));
    while (evaluations_.busy() && !stopped()) {
      absl::SleepFor(absl::Milliseconds(5));
      RETURN_IF_ERROR(PlayDue(verdicts, progress));
    }
  } else {
    evaluations_.Await(progress, stopped);
  }
  if (verdicts.told_to_end() || evaluations_.ended() || evaluations_.busy() ||
      stopped() || (last.has_value() && last->update() == progress->update)) {
    return absl::OkStatus();
  }
  evaluations_.Begin(progress);
  evaluations_.Await(progress, stopped);
  return absl::OkStatus();
}

void Leader::Fail(const absl::Status& error, const Progress& progress,
                  v1::RunSummary summary) {
  summary.set_status(v1::RunSummary::FAILED);
  summary.set_error(std::string(error.message()));
  // Its launcher writes one where there is none.
  recorder_->WriteSummary(progress, std::move(summary)).IgnoreError();
}

absl::Status Leader::Conclude(RunOutcome outcome, v1::RunSummary summary,
                              const Verdicts& verdicts,
                              const std::function<void(v1::Phase)>& enter,
                              Progress* progress) {
  enter(v1::SAVING);
  BeginSaving(*progress);
  const auto& last = evaluations_.last();
  absl::Status saved;
  if (outcome == RunOutcome::kCompleted &&
      changes_->config().evaluation().every_updates() > 0) {
    // Before evaluations save what is best.
    saved = recorder_->FinishSaving();
    enter(v1::EVALUATING);
    RETURN_IF_ERROR(EvaluateTheRest(verdicts, progress));
    if (verdicts.told_to_end() || evaluations_.ended()) {
      outcome = RunOutcome::kSolved;
    }
    enter(v1::SAVING);
  }
  summary.set_status(StatusOf(outcome));
  // The rank 0 before may have played it.
  const v1::Evaluation newest =
      last.has_value() ? *last : parts_.coordinator->Latest().evaluation();
  if (newest.round() > 0 && newest.update() <= progress->update) {
    summary.set_eval_mean_return(newest.mean_return());
    summary.set_eval_episodes(newest.episodes());
    summary.set_eval_update(newest.update());
  }
  saved.Update(recorder_->FinishSaving());
  if (!saved.ok()) summary.set_error(std::string(saved.message()));
  RETURN_IF_ERROR(recorder_->WriteSummary(*progress, summary));
  evaluations_.FinishTelling();
  parts_.coordinator->CloseRun(OutcomeName(outcome)).IgnoreError();
  // The run is closed: nobody who took this rank's place could save it.
  return saved.ok() ? saved : absl::ResourceExhaustedError(saved.message());
}

}  // namespace flotilla
