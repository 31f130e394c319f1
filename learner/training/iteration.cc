#include "learner/training/iteration.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "learner/checkpoint/save_schedule.h"
#include "learner/rollout/rollout_numbers.h"
#include "learner/training/system_usage.h"
#include "services/base/run_length.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A digest of each rank's parameters, in halves that a double keeps whole.
class DigestCheck {
 public:
  DigestCheck(uint64_t mine, Agreement* agreement)
      : high_(agreement->AddPerRank("digest_high", mine >> 32)),
        low_(agreement->AddPerRank("digest_low", mine & 0xffffffff)) {}

  // Errors: kInternal, naming the ranks, if they are not all the same.
  absl::Status Result(const Agreement& agreement, int64_t update) const {
    std::map<std::pair<double, double>, std::vector<int>> ranks;
    for (int rank = 0; rank < agreement.world_size(); ++rank) {
      ranks[{agreement[high_][rank], agreement[low_][rank]}].push_back(rank);
    }
    if (ranks.size() == 1) return absl::OkStatus();
    std::vector<std::string> groups;
    for (const auto& [digest, alike] : ranks) {
      groups.push_back(absl::StrCat(alike.size() > 1 ? "ranks " : "rank ",
                                    absl::StrJoin(alike, ", ")));
    }
    return absl::InternalError(absl::StrCat(
        "after update ", update, " the parameters differ between ",
        absl::StrJoin(groups, " and "),
        ", which have been the same until now (they are compared every "
        "distributed.digest_every_updates): a fault of memory, of a GPU or of "
        "this program, or CPUs or FLOTILLA_KERNELS that differ. Resume from "
        "the last checkpoint"));
  }

 private:
  const Agreement::PerRank high_, low_;
};

}  // namespace

bool NothingIsLeft(const v1::RunConfig& config, const Progress& progress) {
  return ShareDone(config, progress.update, progress.global_step) >= 1;
}

Iteration::Iteration(const LoopParts& parts, RunClock* clock,
                     RunMetrics* metrics, PhaseReporter* phases,
                     Changes* changes, const Verdicts* verdicts,
                     std::function<absl::Status()> play)
    : parts_(parts),
      clock_(clock),
      metrics_(metrics),
      phases_(phases),
      changes_(changes),
      verdicts_(verdicts),
      play_(std::move(play)),
      stragglers_(parts.config, parts.coordinator),
      failures_(parts.config.env(), parts.failed_rows, parts.coordinator) {}

absl::StatusOr<Iteration::Result> Iteration::Run(
    const v1::Assignment& assignment, Collective* collective, bool asks_to_save,
    Progress* progress) {
  changes_->HoldFor(*progress);
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

  const double update_seconds = SecondsSince(began);
  const int64_t number = progress->update + 1;
  RETURN_IF_ERROR(verdicts_->Await(
      number, parts_.coordinator->Fence(assignment.generation()),
      [&](int64_t evaluated) {
        phases_->Enter(v1::EVALUATING, progress->update,
                       absl::StrCat("the evaluation of update ", evaluated));
      },
      play_));

  Agreement agreement(assignment.rank(), assignment.world_size());
  const StopVotes votes(LookForSigns(assignment, number), &agreement);
  const auto save = agreement.AddVote("save", asks_to_save);
  // Once, also if the others saw the last update commit and this rank did not.
  if (told_of_ <= progress->update) counted_ = told_;
  told_ = parts_.env_counts();
  told_of_ = number;
  const auto env_steps = agreement.AddSum("env_steps", experience.env_steps);
  const auto episodes =
      agreement.AddSum("episodes", experience.stats.episodes.size());
  const auto env_restarts =
      agreement.AddSum("env_restarts", told_.restarts - counted_.restarts);
  const auto incarnation =
      agreement.AddPerRank("env_incarnation", told_.last_incarnation);
  const auto noted = agreement.AddSums("normalizer", experience.noted);
  // Rank 0 counts these: whoever takes its place goes on from there.
  const auto round =
      agreement.AddFrom(0, "evaluation_round", progress->evaluation_round);
  const auto best = agreement.AddFrom(0, "best_return", progress->best_return);
  failures_.Add(progress->update, &agreement);
  changes_->Add(*progress, &agreement);
  metrics_->Add(experience, learnt, update_seconds, &agreement);
  if (parts_.self_play != nullptr) {
    parts_.self_play->Add(experience.stats.games, &agreement);
  }
  std::optional<DigestCheck> digests;
  const int64_t digest_every =
      changes_->config().distributed().digest_every_updates();
  if (assignment.world_size() > 1 && digest_every > 0 &&
      number % digest_every == 0) {
    digests.emplace(WeightsDigest(parts_.Live()), &agreement);
  }
  const UsageOfRanks usage(
      parts_.usage == nullptr ? SystemUsage::Means() : parts_.usage->Sample(),
      &agreement);
  phases_->Enter(v1::COLLECTIVE, progress->update, "the other ranks");
  RETURN_IF_ERROR(agreement.Reduce(collective));
  if (digests) RETURN_IF_ERROR(digests->Result(agreement, number));

  RETURN_IF_ERROR(CheckNoted(agreement[noted]));
  const absl::Status budget =
      failures_.Check(agreement, assignment.generation());
  progress->failed_rows += failures_.failed_rows();  // whatever comes of it
  RETURN_IF_ERROR(budget);

  // From here on nothing fails.
  const double done_before =
      ShareDone(changes_->config(), progress->update, progress->global_step);
  progress->update = number;
  progress->global_step += static_cast<int64_t>(agreement[env_steps]);
  progress->episodes += static_cast<int64_t>(agreement[episodes]);
  progress->env_restarts += static_cast<int64_t>(agreement[env_restarts]);
  progress->env_incarnation =
      std::max(progress->env_incarnation,
               static_cast<int64_t>(agreement[incarnation].max()));
  progress->evaluation_round = static_cast<int64_t>(agreement[round]);
  progress->best_return = agreement[best];
  progress->wall_seconds = clock_->Seconds();
  parts_.normalizer->Add(agreement[noted]);
  metrics_->Take(agreement);
  if (parts_.self_play != nullptr) {
    parts_.self_play->Take(agreement);
    parts_.self_play->Committed(progress->update);
  }

  std::vector<Metric> line;
  const int64_t every =
      std::max<int64_t>(1, changes_->config().metrics().every_updates());
  if (progress->update % every == 0) {
    line = metrics_->Line(agreement, *progress);
    if (parts_.self_play != nullptr) parts_.self_play->AppendTo(&line);
    usage.AppendTo(agreement, &line);
    changes_->AppendTo(&line);
  }
  // What comes behind this update goes by what holds for the next.
  changes_->Take(agreement, progress);
  const v1::RunConfig& config = changes_->config();

  Result result;
  result.line = std::move(line);
  result.save =
      IsSaveDue(config.checkpoint(), progress->update, done_before,
                ShareDone(config, progress->update, progress->global_step),
                agreement[save]);
  result.outcome = votes.Result(agreement);
  if (!result.outcome && NothingIsLeft(config, *progress)) {
    result.outcome = RunOutcome::kCompleted;
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
    // What a device computed behind a call that was aborted is nonsense: then that
    // is the error.
    if (!parts_.device.is_cpu()) {
      RETURN_IF_ERROR(collective->AllReduceSum(torch::empty({0})));
    }
    return absl::InternalError(absl::StrCat(
        "update ", progress.update + 1, ", rank ", assignment.rank(), ": ",
        learnt.status().message(), "; ", DescribeNumbers(*experience.rollout)));
  }
  return learnt;
}

StopSigns Iteration::LookForSigns(const v1::Assignment& assignment,
                                  int64_t update) const {
  const v1::Command command = parts_.coordinator->Latest();
  const int signal = parts_.first_signal();
  return {.solved = verdicts_->EndTheRun(update),
          .told_to_stop = command.stop() || assignment.stopping(),
          .preempted = (signal != 0 && signal != SIGINT) || command.preempted(),
          .interrupted = signal == SIGINT};
}

}  // namespace flotilla
