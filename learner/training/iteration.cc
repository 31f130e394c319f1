#include "learner/training/iteration.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

bool NothingIsLeft(const v1::RunConfig& config, const Progress& progress) {
  return progress.global_step >= config.total_env_steps();
}

Iteration::Iteration(const LoopParts& parts, RunClock* clock,
                     RunMetrics* metrics, PhaseReporter* phases)
    : parts_(parts),
      clock_(clock),
      metrics_(metrics),
      phases_(phases),
      stragglers_(parts.config, parts.coordinator) {}

absl::StatusOr<Iteration::Result> Iteration::Run(
    const v1::Assignment& assignment, Collective* collective,
    Progress* progress) {
  phases_->Enter(v1::STEPPING, progress->update, "environments");
  parts_.algorithm->BeforeCollecting(progress->global_step);
  ASSIGN_OR_RETURN(
      const Experience experience,
      parts_.rollouts->Next(
          progress->update,
          stragglers_.Begin(assignment.generation(), progress->update)));
  if (!experience.stats.preempted) stragglers_.Finished();

  phases_->Enter(v1::LEARNING, progress->update, "");
  const Clock::time_point began = Clock::now();
  ASSIGN_OR_RETURN(const std::vector<Metric> learnt,
                   Learn(experience, assignment, collective, *progress));

  Agreement agreement(assignment.rank(), assignment.world_size());
  const StopVotes votes(LookForSigns(assignment), &agreement);
  const EnvCounts counts = parts_.env_counts();
  const auto env_steps = agreement.AddSum("env_steps", experience.env_steps);
  const auto episodes =
      agreement.AddSum("episodes", experience.stats.episodes.size());
  const auto env_restarts =
      agreement.AddSum("env_restarts", counts.restarts - counted_.restarts);
  const auto noted = agreement.AddSums("normalizer", experience.noted);
  metrics_->Add(experience, learnt, SecondsSince(began), &agreement);
  phases_->Enter(v1::COLLECTIVE, progress->update, "the other ranks");
  RETURN_IF_ERROR(agreement.Reduce(collective));

  // From here on nothing fails.
  ++progress->update;
  progress->global_step += static_cast<int64_t>(agreement[env_steps]);
  progress->episodes += static_cast<int64_t>(agreement[episodes]);
  progress->env_restarts += static_cast<int64_t>(agreement[env_restarts]);
  progress->env_incarnation =
      std::max(progress->env_incarnation, counts.last_incarnation);
  progress->wall_seconds = clock_->Seconds();
  counted_ = counts;
  parts_.normalizer->Add(agreement[noted]);
  metrics_->Take(agreement);

  Result result;
  result.outcome = votes.Result(agreement);
  if (!result.outcome && NothingIsLeft(parts_.config, *progress)) {
    result.outcome = RunOutcome::kCompleted;
  }
  const int64_t every =
      std::max<int64_t>(1, parts_.config.metrics().every_updates());
  if (progress->update % every == 0) {
    result.line = metrics_->Line(agreement, *progress);
  }
  return result;
}

absl::StatusOr<std::vector<Metric>> Iteration::Learn(
    const Experience& experience, const v1::Assignment& assignment,
    Collective* collective, const Progress& progress) {
  UpdateContext context;
  context.update = progress.update;
  context.global_step = progress.global_step;
  context.collective = collective;
  absl::StatusOr<std::vector<Metric>> learnt =
      parts_.algorithm->Update(*experience.rollout, context);
  if (absl::IsInternal(learnt.status())) {
    return absl::InternalError(absl::StrCat("update ", progress.update,
                                            ", rank ", assignment.rank(), ": ",
                                            learnt.status().message()));
  }
  return learnt;
}

StopSigns Iteration::LookForSigns(const v1::Assignment& assignment) const {
  const v1::Command command = parts_.coordinator->Latest();
  const int signal = parts_.first_signal();
  return {.solved = command.evaluation().stop(),
          .told_to_stop = command.stop() || assignment.stopping(),
          .preempted = signal == SIGTERM || signal == SIGUSR1,
          .interrupted = signal == SIGINT};
}

}  // namespace flotilla
