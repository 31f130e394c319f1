#include "learner/training/training_loop.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "learner/actor/env_worker.h"
#include "learner/torch.h"
#include "services/base/sha256.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"

namespace flotilla {
namespace {

// A peer is gone, or this generation is over: nothing is wrong with this rank.
bool EndsGeneration(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsCancelled(status);
}

// How a rank ends whose run is over before it has finished it.
// Errors: kResourceExhausted if the run failed; kAborted.
absl::Status WhyOver(const v1::Command& newest) {
  if (!newest.failure().empty()) {
    return absl::ResourceExhaustedError(newest.failure());
  }
  return absl::AbortedError(
      newest.closed()
          ? "the run is over"
          : absl::StrCat("the run was told to stop: ", newest.stop_reason()));
}

// Whatever parts the same learners so often, and for as long as they may wait for one
// another, before they have made an update, does not pass.
constexpr int kBarrenGenerations = 5;
constexpr absl::Duration kLongestPause = absl::Seconds(5);

}  // namespace

TrainingLoop::TrainingLoop(const LoopParts& parts, const LeaderOptions& leader,
                           std::function<void(const absl::Status&)> hangs)
    : parts_(parts),
      leader_options_(leader),
      metrics_(parts.episode_metrics, parts.episodes, parts.agents),
      changes_(parts),
      verdicts_(parts),
      phases_(
          parts.config, parts.member_id, parts.coordinator,
          [this](v1::Heartbeat* beat) { Describe(beat); },
          [this](v1::Heartbeat* beat) { Refresh(beat); }, std::move(hangs)),
      iteration_(parts, &clock_, &metrics_, &phases_, &changes_, &verdicts_,
                 [this] {
                   return leads() ? leader_->PlayDue(verdicts_, &progress_)
                                  : absl::OkStatus();
                 }) {}

void TrainingLoop::BeginAt(const Progress& progress, bool has_state) {
  progress_ = progress;
  has_state_ = has_state;
}

absl::StatusOr<RunOutcome> TrainingLoop::Run() {
  parts_.coordinator->SetLayoutDigest(Sha256Hex(Layout()));
  for (;;) {
    const absl::Status joined = JoinNextGeneration();
    if (absl::IsCancelled(joined) && parts_.stop.stop_requested()) {
      // Nothing has happened yet that could be saved.
      return parts_.first_signal() == SIGINT ? RunOutcome::kInterrupted
                                             : RunOutcome::kPreempted;
    }
    if (absl::IsAborted(joined)) {
      // Nothing to save, or too late: the others have finished the run.
      LOG(INFO) << "nothing is left to do: " << joined.message();
      return WasPreempted() ? RunOutcome::kPreempted : RunOutcome::kCompleted;
    }
    RETURN_IF_ERROR(joined);
    absl::StatusOr<RunOutcome> outcome = RunOutcome::kCompleted;
    try {
      outcome = RunGeneration();
    } catch (...) {
      // Torch's, for main to tell. No thread may be at what is destroyed by then.
      LeaveGeneration(absl::InternalError("an exception"));
      throw;
    }
    absl::Status ended = outcome.status();
    if (ended.ok()) {
      parts_.rollouts->End();
      ended = AwaitAllRanks(*outcome);
    }
    if (ended.ok()) {
      if (leads()) RETURN_IF_ERROR(Conclude(*outcome));
      return outcome;
    }
    LeaveGeneration(ended);
    if (EndsGeneration(ended)) ended = GiveUpIfBarren(ended);
    if (ended.ok()) continue;
    if (leads() && leader_ != nullptr) {
      leader_->Fail(ended, progress_, Summarize());
    }
    return ended;
  }
}

// OK, after a pause if it was not the first: it is worth another. Errors:
// kResourceExhausted.
absl::Status TrainingLoop::GiveUpIfBarren(const absl::Status& ended) {
  std::vector<std::string> learners;
  for (const v1::Member& member : assignment_.learner()) {
    learners.push_back(absl::StrCat(member.id(), "#", member.incarnation()));
  }
  if (progress_.update > barren_update_ || learners != barren_learners_) {
    barren_ = 0;
    barren_since_ = SteadyNow();
  }
  barren_update_ = progress_.update;
  barren_learners_ = std::move(learners);
  const absl::Duration passed = SteadyNow() - barren_since_;
  if (++barren_ < kBarrenGenerations ||
      passed <
          absl::Seconds(parts_.config.distributed().join_timeout_seconds())) {
    if (barren_ > 1) {
      SleepUnless(parts_.stop, std::min(kLongestPause, passed / 4));
    }
    return absl::OkStatus();
  }
  std::vector<std::string> names;
  for (const v1::Member& member : assignment_.learner()) {
    names.push_back(absl::StrCat(member.id(), " on ", member.host()));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      absl::StrJoin(names, ", "), " met ", barren_, " times in ",
      absl::FormatDuration(absl::Trunc(passed, absl::Milliseconds(1))),
      " and made no update; what ended the last time: ", ended.message(),
      names.size() > 1
          ? ". Learners speak to each other directly, not only to the "
            "coordinator: let firewalls pass that, or name the network "
            "interface (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME)"
          : ""));
}

// Whether the run that this rank came too late for is to be resumed. The answer to
// its join may be here before the newest command is.
bool TrainingLoop::WasPreempted() const {
  const v1::Command newest = parts_.coordinator->Latest();
  if (newest.preempted() || newest.closed()) return newest.preempted();
  const auto status = parts_.coordinator->GetStatus();
  return status.ok() && status->preempted();
}

absl::Status TrainingLoop::JoinNextGeneration() {
  Enter(v1::STARTING, "the other learners");
  const absl::Time deadline =
      SteadyNow() +
      absl::Seconds(parts_.config.distributed().join_timeout_seconds());
  // In short waits, so that a signal is not kept waiting. What has been learnt
  // is saved first, by those that are left.
  bool stopping = false;
  for (;;) {
    if (parts_.stop.stop_requested() && !stopping) {
      const bool has_learnt = has_state_ && assignment_.generation() > 0;
      if (!has_learnt) {
        return absl::CancelledError("told to stop before the learners had met");
      }
      stopping =
          parts_.coordinator
              ->StopRun(absl::StrCat(parts_.member_id, " got ", "SIG",
                                     sigabbrev_np(parts_.first_signal())),
                        /*preempted=*/parts_.first_signal() != SIGINT)
              .ok();
    }
    // What this process heard while it started outlives the coordinator that said
    // it: another that has come in its place serves the run that follows, and must
    // not be stopped by a rank that has no part in that.
    if (assignment_.generation() == 0) {
      const v1::Command newest = parts_.coordinator->Latest();
      const bool may_save = has_state_ && newest.generation() > 0;
      if (newest.closed() || (newest.stop() && !may_save)) {
        return WhyOver(newest);
      }
    }
    absl::StatusOr<v1::Assignment> assignment =
        parts_.coordinator->JoinGeneration(progress_.update, has_state_,
                                           absl::Seconds(1));
    if (assignment.ok()) {
      assignment_ = *std::move(assignment);
      break;
    }
    const bool patient = absl::IsDeadlineExceeded(assignment.status()) ||
                         absl::IsUnavailable(assignment.status());
    if (!patient || SteadyNow() > deadline) return assignment.status();
    // A coordinator that is gone answers nobody. It may have said so before.
    const v1::Command newest = parts_.coordinator->Latest();
    if (newest.closed()) return WhyOver(newest);
  }
  LOG(INFO) << "generation " << assignment_.generation() << ": rank "
            << assignment_.rank() << " of " << assignment_.world_size();
  fence_ = parts_.coordinator->Fence(assignment_.generation());
  return absl::OkStatus();
}

absl::StatusOr<RunOutcome> TrainingLoop::RunGeneration() {
  collective_.reset();
  // Another writes the run's folder from here on.
  if (!leads()) leader_.reset();
  const bool has_peers = assignment_.world_size() > 1;
  // Also from a share that only half succeeds, for who has learnt nothing yet, too.
  committed_ = Snapshot();
  if (has_peers) TakeSnapshot(parts_.Live(), progress_, &committed_);
  ASSIGN_OR_RETURN(collective_,
                   MakeCollective(assignment_, parts_.config.distributed(),
                                  parts_.coordinator, parts_.device));
  RETURN_IF_ERROR(CheckThatAllTrainTheSame());
  RETURN_IF_ERROR(TakeStateThatIsFurthest());
  KeepCommitted();
  if (leads() && leader_ == nullptr) {
    ASSIGN_OR_RETURN(
        leader_, Leader::Open(leader_options_, parts_, &changes_, progress_));
  }
  if (leads()) leader_->Record(newest_line_, progress_);
  changes_.HoldFor(progress_);
  if (assignment_.stopping()) return AgreeWhyToStop();
  // A run that is resumed, or loses a rank, at its end has no update left.
  if (verdicts_.Solved(progress_.update)) return RunOutcome::kSolved;
  if (NothingIsLeft(changes_.config(), progress_))
    return RunOutcome::kCompleted;
  parts_.rollouts->Begin(assignment_.rank(), fence_);
  // What a run starts with is evaluated if that is asked for.
  RETURN_IF_ERROR(Evaluate(parts_.config.evaluation().at_start() &&
                           progress_.update == 0 &&
                           progress_.evaluation_round == 0));
  KeepCommitted();
  for (;;) {
    ASSIGN_OR_RETURN(
        Iteration::Result result,
        iteration_.Run(assignment_, collective_.get(),
                       leads() && leader_->AsksToSave(), &progress_));
    newest_line_ = std::move(result.line);
    if (leads()) leader_->Record(newest_line_, progress_);
    RETURN_IF_ERROR(Evaluate(
        EvaluationIsDue(changes_.config(), progress_, metrics_.window()),
        result.outcome == RunOutcome::kSolved));
    if (result.save) SaveReplay();
    if (leads() && result.save) leader_->Save(progress_);
    // Also of the last one, whoever is lost before the result is written.
    KeepCommitted();
    if (result.outcome.has_value()) return *result.outcome;
  }
}

// Where anything may end a generation between learning and committing: peers, and a
// verdict that is waited for.
void TrainingLoop::KeepCommitted() {
  if (collective_->has_group() || !verdicts_.due().empty()) {
    TakeSnapshot(parts_.Live(), progress_, &committed_);
  } else {
    committed_ = Snapshot();
  }
}

// Every rank its own, for the checkpoint that rank 0 saves.
void TrainingLoop::SaveReplay() {
  if (parts_.replay == nullptr) return;
  parts_.replay->Save({.global_step = progress_.global_step,
                       .weights_digest = WeightsDigest(parts_.Live())});
}

// What has been learnt by now, if that `is_due`.
absl::Status TrainingLoop::Evaluate(bool is_due, bool solved) {
  verdicts_.Committed(is_due, solved, &progress_);
  if (!leads()) return absl::OkStatus();
  return leader_->Evaluate(is_due, verdicts_, &progress_);
}

// What learners need the same of to take each other's state.
std::string TrainingLoop::Layout() const {
  std::string layout =
      absl::StrCat(LayoutOf(parts_.Live()), "agents ", parts_.agents);
  for (const std::string& metric : parts_.episode_metrics) {
    absl::StrAppend(&layout, "\nmetric ", metric);
  }
  return layout;
}

// Before any rank gives another what only fits its own network and environments.
// The coordinator lets nobody in whose layout is another than the run's; where nobody
// holds its state yet, or that coordinator has forgotten it, this finds it.
// Errors: kFailedPrecondition, on all ranks alike.
absl::Status TrainingLoop::CheckThatAllTrainTheSame() const {
  if (!collective_->has_group()) return absl::OkStatus();
  Agreement agreement(assignment_.rank(), assignment_.world_size());
  const Agreement::PerRank hash =
      agreement.AddPerRank("layout", HashOf(Layout()));
  RETURN_IF_ERROR(agreement.Reduce(collective_.get()));
  const auto name = [&](int rank) {
    const v1::Member& member = assignment_.learner(rank);
    return absl::StrCat("rank ", rank, " (", member.id(), " on ", member.host(),
                        ")");
  };
  std::vector<std::string> others;
  for (int rank = 1; rank < assignment_.world_size(); ++rank) {
    if (agreement[hash][rank] != agreement[hash][0]) {
      others.push_back(name(rank));
    }
  }
  if (others.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "these have another network or other episode metrics than ", name(0),
      ": ", absl::StrJoin(others, ", "),
      ". All ranks must run the same build with the same configuration, and "
      "environments with the same observations, actions, agents and episode "
      "metrics"));
}

// On all ranks of a new generation.
absl::Status TrainingLoop::TakeStateThatIsFurthest() {
  const int source = assignment_.source_rank();
  const bool knew_nothing = !has_state_;
  if (knew_nothing && assignment_.rank() == source && parts_.go_back) {
    RETURN_IF_ERROR(parts_.go_back(&progress_));
  }
  if (clock_.runs()) progress_.wall_seconds = clock_.Seconds();
  RETURN_IF_ERROR(
      ShareState(collective_.get(), source, parts_.Live(), &progress_));
  RETURN_IF_ERROR(ShareMetrics(collective_.get(), source, &newest_line_));
  RETURN_IF_ERROR(verdicts_.Share(collective_.get(), source, &progress_));
  clock_.Set(progress_.wall_seconds);
  has_state_ = true;
  CountRestarts();
  if (knew_nothing && parts_.take_up_replay) parts_.take_up_replay(progress_);
  return absl::OkStatus();
}

// On all ranks alike. Coordinators count anew in a run that is resumed.
void TrainingLoop::CountRestarts() {
  const int64_t assigned = assignment_.learner_restarts();
  progress_.learner_restarts +=
      std::max<int64_t>(0, assigned - progress_.assigned_restarts);
  progress_.assigned_restarts = assigned;
}

// In a generation that forms only to save.
absl::StatusOr<RunOutcome> TrainingLoop::AgreeWhyToStop() {
  Agreement agreement(assignment_.rank(), assignment_.world_size());
  const StopVotes votes(iteration_.LookForSigns(assignment_, progress_.update),
                        &agreement);
  RETURN_IF_ERROR(agreement.Reduce(collective_.get()));
  return *votes.Result(agreement);
}

void TrainingLoop::LeaveGeneration(const absl::Status& why) {
  if (collective_ != nullptr) collective_->Abort();
  parts_.rollouts->End();
  if (!EndsGeneration(why)) return;
  LOG(WARNING) << "generation " << assignment_.generation()
               << " ended at update " << progress_.update << ": "
               << why.message();
  parts_.coordinator
      ->ReportFailure(assignment_.generation(), std::string(why.message()))
      .IgnoreError();
  if (!committed_.weights.empty()) {
    RestoreSnapshot(committed_, parts_.Live(), &progress_);
  }
}

// Until all ranks are at the end, and rank 0 has written the result: should it
// die before, the others still have what it takes.
absl::Status TrainingLoop::AwaitAllRanks(RunOutcome outcome) {
  LOG(INFO) << OutcomeName(outcome) << " at update " << progress_.update;
  SaveReplay();
  ASSIGN_OR_RETURN(
      parameters_sha256_,
      collective_->GatherBytes(WeightsSha256(parts_.Live()), /*root=*/0));
  if (leads()) return absl::OkStatus();
  if (parts_.replay != nullptr) {
    Enter(v1::SAVING, "");
    parts_.replay->saved().wait();
  }
  Enter(v1::FINISHED, "rank 0 to save");
  // For as long as its last evaluation takes; but a coordinator that has gone, and
  // does not come back in that time, tells nobody of the end.
  const absl::Duration patience =
      absl::Seconds(parts_.config.distributed().join_timeout_seconds());
  absl::Time heard = SteadyNow(), ask_at = heard + patience;
  while (!parts_.coordinator->Latest().closed()) {
    if (fence_.stop_requested()) {
      return absl::AbortedError("rank 0 was lost before it had saved");
    }
    if (SteadyNow() >= ask_at) {
      if (parts_.coordinator->GetStatus().ok()) {
        heard = SteadyNow();
      } else if (SteadyNow() - heard > 2 * patience) {
        break;
      }
      ask_at = SteadyNow() + patience / 10;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const v1::Command newest = parts_.coordinator->Latest();
  return newest.failure().empty() ? absl::OkStatus() : WhyOver(newest);
}

// What a result has in common, however the run ended.
v1::RunSummary TrainingLoop::Summarize() const {
  v1::RunSummary summary;
  summary.set_world_size(assignment_.world_size());
  const RunMetrics::Window window = metrics_.window();
  if (window.episodes > 0) {
    summary.set_mean_return(window.mean_return);
    summary.set_mean_return_episodes(window.episodes);
  }
  if (const double rate = StepsPerSecond(progress_); rate > 0) {
    summary.set_steps_per_second(rate);
  }
  return summary;
}

// Rank 0's.
absl::Status TrainingLoop::Conclude(RunOutcome outcome) {
  v1::RunSummary summary = Summarize();
  summary.mutable_parameters_sha256()->Assign(parameters_sha256_.begin(),
                                              parameters_sha256_.end());
  return leader_->Conclude(
      outcome, std::move(summary), verdicts_,
      [this](v1::Phase phase) { Enter(phase, ""); }, &progress_);
}

void TrainingLoop::Enter(v1::Phase phase, const std::string& waits_for) {
  phases_.Enter(phase, progress_.update, waits_for);
}

void TrainingLoop::Describe(v1::Heartbeat* beat) const {
  if (leader_ != nullptr) {
    beat->set_trouble(leader_->trouble());
    beat->set_started_over(leader_->started_over());
  }
  changes_.Describe(progress_, beat);
  beat->set_env_steps(progress_.global_step);
  beat->set_episodes(progress_.episodes);
  beat->set_mean_return(metrics_.window().mean_return);
  Progress now = progress_;
  now.wall_seconds = clock_.Seconds();
  beat->set_steps_per_second(StepsPerSecond(now) /
                             std::max(1, assignment_.world_size()));
}

void TrainingLoop::Refresh(v1::Heartbeat* beat) const {
  if (beat->trouble().empty() && parts_.replay != nullptr) {
    beat->set_trouble(parts_.replay->trouble());
  }
  if (beat->phase() == v1::STEPPING && parts_.rollouts->deciding()) {
    beat->set_phase(v1::INFERENCE);
    beat->clear_waits_for();
  }
  beat->set_env_worker_restarts(parts_.env_counts().restarts);
  for (v1::EnvServerStatus& worker : parts_.env_workers()) {
    *beat->add_env_worker() = std::move(worker);
  }
  if (parts_.failed_rows == nullptr) return;
  beat->set_failed_rows(
      std::min<int64_t>(parts_.failed_rows->failed(), 1'000'000'000));
  if (beat->trouble().empty()) {
    beat->set_trouble(parts_.failed_rows->Trouble(SteadyNow()));
  }
}

}  // namespace flotilla
