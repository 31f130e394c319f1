#include "learner/training/trainer.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/actor/env_pool.h"
#include "learner/actor/rollout_source.h"
#include "learner/algo/algorithm.h"
#include "learner/torch.h"
#include "learner/training/agreement.h"
#include "learner/training/evaluation_rounds.h"
#include "learner/training/recorder.h"
#include "learner/training/run_state.h"
#include "learner/training/runtime.h"
#include "learner/training/stragglers.h"
#include "learner/training/system_usage.h"
#include "learner/training/watchdog.h"
#include "services/base/config.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A peer is gone, or this generation is over: nothing is wrong with this rank.
bool EndsGeneration(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsCancelled(status);
}

class Trainer {
 public:
  Trainer(const TrainerOptions& options, CoordinatorClient* coordinator,
          const ShutdownSignals& signals)
      : options_(options),
        config_(options.config),
        coordinator_(coordinator),
        signals_(signals),
        watchdog_(absl::Seconds(config_.runtime().progress_timeout_seconds()),
                  [this](const std::string& step) { GiveUp(step); }) {}

  absl::StatusOr<RunOutcome> Run();

 private:
  absl::Status SetUp();
  absl::Status JoinNextGeneration();
  absl::StatusOr<RunOutcome> RunGeneration();
  absl::StatusOr<std::optional<RunOutcome>> Iterate();
  absl::StatusOr<Agreement> Agree(const std::vector<Metric>& metrics,
                                  double update_seconds);
  void Vote(Agreement* agreement) const;
  void Commit(const Agreement& agreement);
  void Record(const Agreement& agreement, const std::vector<Metric>& metrics);
  void Evaluate();
  void MaybeSave();
  Snapshot SnapshotNow();
  absl::Status AwaitAllRanks(RunOutcome outcome);
  absl::Status ExchangeDigests();
  absl::Status Conclude(RunOutcome outcome);
  void ReportPhase(v1::Phase phase, const std::string& waits_for);
  void GiveUp(const std::string& step) const;
  LiveState Live() { return LiveState(algorithm_.get(), &normalizer_); }
  bool NothingIsLeft() const {
    return progress_.global_step >= config_.total_env_steps();
  }
  bool writes() const { return assignment_.rank() == 0; }

  const TrainerOptions options_;
  const v1::RunConfig config_;
  CoordinatorClient* const coordinator_;
  const ShutdownSignals& signals_;

  // Constant after SetUp.
  std::unique_ptr<EnvPool> pool_;
  Spaces spaces_;
  std::unique_ptr<Algorithm> algorithm_;
  Normalizer normalizer_;
  std::unique_ptr<RolloutSource> rollouts_;
  std::unique_ptr<Stragglers> stragglers_;
  EnvWorkerOptions env_options_;
  torch::Device device_{torch::kCPU};

  // Of one generation.
  v1::Assignment assignment_;
  std::unique_ptr<Collective> collective_;
  std::stop_token fence_;

  Progress progress_;  // committed
  bool has_state_ = false;
  Snapshot committed_;  // to go back to; kept only where there are peers
  Experience experience_;
  std::deque<CollectStats::Episode> window_;  // this rank's last episodes
  double mean_return_ = 0, mean_length_ = 0;  // of all ranks' windows
  int64_t window_count_ = 0;
  Clock::time_point began_;
  double wall_before_ = 0;    // seconds before this process
  int64_t steps_before_ = 0;  // global steps before this process
  int64_t env_restarts_before_ = 0;
  int64_t dropped_ = 0;  // rollouts of all ranks, by this process's time
  std::vector<std::string> parameters_sha256_;  // of all ranks, at the end
  v1::Heartbeat heartbeat_;

  // Rank 0 only.
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<EvaluationRounds> evaluations_;
  std::optional<SystemUsage> usage_;

  Watchdog watchdog_;  // last: it is done with before anything else goes
};

absl::StatusOr<RunOutcome> Trainer::Run() {
  RETURN_IF_ERROR(SetUp());
  for (;;) {
    const absl::Status joined = JoinNextGeneration();
    if (absl::IsCancelled(joined) && signals_.Stop().stop_requested()) {
      // Nothing has happened yet that could be saved.
      return signals_.first_signal() == SIGINT ? RunOutcome::kInterrupted
                                               : RunOutcome::kPreempted;
    }
    if (absl::IsAborted(joined)) {
      // Nothing to save, or too late: the others have finished the run.
      LOG(INFO) << "nothing is left to do: " << joined.message();
      return RunOutcome::kCompleted;
    }
    RETURN_IF_ERROR(joined);
    const absl::StatusOr<RunOutcome> outcome = RunGeneration();
    absl::Status ended = outcome.status();
    if (ended.ok()) {
      rollouts_->End();
      ended = AwaitAllRanks(*outcome);
    }
    if (ended.ok()) {
      if (writes()) RETURN_IF_ERROR(Conclude(*outcome));
      return outcome;
    }
    if (collective_ != nullptr) collective_->Abort();
    rollouts_->End();
    if (!EndsGeneration(ended)) return ended;
    LOG(WARNING) << "generation " << assignment_.generation()
                 << " ended at update " << progress_.update << ": "
                 << ended.message();
    coordinator_
        ->ReportFailure(assignment_.generation(), std::string(ended.message()))
        .IgnoreError();
    if (has_state_ && !committed_.weights.empty()) {
      RestoreSnapshot(committed_, Live(), &progress_);
    }
  }
}

absl::Status Trainer::SetUp() {
  ASSIGN_OR_RETURN(device_,
                   ChooseDevice(config_.runtime(), options_.local_rank));
  SetThreads(config_, options_.local_world_size);
  std::optional<CheckpointData> saved;
  if (!options_.resume.empty()) {
    ASSIGN_OR_RETURN(saved, LoadCheckpoint(options_.resume, config_));
    ASSIGN_OR_RETURN(progress_, ProgressFromText(saved->progress));
  }

  env_options_.env = config_.env();
  env_options_.seed = config_.seed();
  env_options_.learner_id = options_.member_id;
  env_options_.log_folder = options_.run_folder + "/logs";
  env_options_.name = absl::StrCat("rank_", options_.first_rank);
  env_options_.credentials = options_.credentials;
  env_options_.threads = EnvThreads(config_.env(), options_.local_world_size);
  env_options_.coordinator = coordinator_;
  env_options_.remote_timeout =
      absl::Seconds(config_.distributed().join_timeout_seconds());
  // Above every incarnation before, so that no episode is played twice.
  const uint64_t incarnation =
      progress_.env_incarnation + (options_.incarnation << 20) + 1;
  ASSIGN_OR_RETURN(
      pool_, EnvPool::Start(env_options_,
                            options_.first_rank * config_.env().num_workers(),
                            incarnation));
  ASSIGN_OR_RETURN(spaces_, DescribeSpaces(pool_->spec()));
  ASSIGN_OR_RETURN(algorithm_, MakeAlgorithm(config_, spaces_, device_));
  normalizer_ = Normalizer(config_.model(), Discount(config_),
                           spaces_.frames ? 0 : spaces_.features,
                           config_.env().num_envs());
  if (saved.has_value()) {
    RETURN_IF_ERROR(FromCheckpoint(*saved, Live(), &progress_));
    has_state_ = true;
  }
  rollouts_ =
      MakeRolloutSource({.config = config_,
                         .spaces = spaces_,
                         .pinned = device_.is_cuda(),
                         .state_size = algorithm_->live_policy()->state_size(),
                         .pool = pool_.get(),
                         .normalizer = &normalizer_,
                         .live_policy = algorithm_->live_policy(),
                         .freeze = [this] { return algorithm_->Freeze(); }});
  stragglers_ = std::make_unique<Stragglers>(config_, coordinator_);
  wall_before_ = progress_.wall_seconds;
  steps_before_ = progress_.global_step;
  env_restarts_before_ = progress_.env_restarts;
  return absl::OkStatus();
}

absl::Status Trainer::JoinNextGeneration() {
  ReportPhase(v1::STARTING, "the other learners");
  const absl::Time deadline =
      absl::Now() + absl::Seconds(config_.distributed().join_timeout_seconds());
  // In short waits, so that a signal is not kept waiting. What has been learnt
  // is saved first, by those that are left.
  bool stopping = false;
  for (;;) {
    if (signals_.Stop().stop_requested() && !stopping) {
      const bool has_learnt = has_state_ && assignment_.generation() > 0;
      if (!has_learnt) {
        return absl::CancelledError("told to stop before the learners had met");
      }
      stopping =
          coordinator_
              ->StopRun(absl::StrCat(options_.member_id, " got ", "SIG",
                                     sigabbrev_np(signals_.first_signal())))
              .ok();
    }
    absl::StatusOr<v1::Assignment> assignment = coordinator_->JoinGeneration(
        progress_.update, has_state_, absl::Seconds(1));
    if (assignment.ok()) {
      assignment_ = *std::move(assignment);
      break;
    }
    const bool patient = absl::IsDeadlineExceeded(assignment.status()) ||
                         absl::IsUnavailable(assignment.status());
    if (!patient || absl::Now() > deadline) return assignment.status();
  }
  LOG(INFO) << "generation " << assignment_.generation() << ": rank "
            << assignment_.rank() << " of " << assignment_.world_size();
  fence_ = coordinator_->Fence(assignment_.generation());
  return absl::OkStatus();
}

absl::StatusOr<RunOutcome> Trainer::RunGeneration() {
  collective_.reset();
  ASSIGN_OR_RETURN(collective_,
                   MakeCollective(assignment_, config_.distributed(),
                                  coordinator_, device_));
  RETURN_IF_ERROR(ShareState(collective_.get(), assignment_.source_rank(),
                             Live(), &progress_));
  has_state_ = true;
  if (writes() && recorder_ == nullptr) {
    std::optional<Progress> resumed_at;
    if (progress_.update > 0) resumed_at = progress_;
    ASSIGN_OR_RETURN(recorder_,
                     Recorder::Open(config_, options_.run_folder, resumed_at));
    evaluations_ = std::make_unique<EvaluationRounds>(
        config_, env_options_, spaces_, coordinator_, recorder_.get());
    usage_.emplace(device_);
  }
  if (began_ == Clock::time_point()) began_ = Clock::now();
  if (assignment_.stopping()) {
    Agreement agreement(assignment_.world_size());
    Vote(&agreement);
    RETURN_IF_ERROR(agreement.Reduce(collective_.get()));
    return *ReasonToStop(agreement);
  }
  // A run that is resumed, or loses a rank, at its end has no update left.
  if (NothingIsLeft()) return RunOutcome::kCompleted;
  if (writes() && config_.evaluation().at_start() &&
      progress_.evaluation_round == 0) {
    Evaluate();
  }
  rollouts_->Begin(assignment_.rank(), fence_);
  for (;;) {
    ASSIGN_OR_RETURN(std::optional<RunOutcome> outcome, Iterate());
    if (outcome.has_value()) return *outcome;
  }
}

// One update: all of it commits, or none.
absl::StatusOr<std::optional<RunOutcome>> Trainer::Iterate() {
  if (collective_->world_size() > 1) {
    TakeSnapshot(Live(), progress_, &committed_);
  }
  ReportPhase(v1::STEPPING, "environments");
  algorithm_->BeforeCollecting(progress_.global_step);
  ASSIGN_OR_RETURN(experience_,
                   rollouts_->Next(progress_.update,
                                   stragglers_->Begin(assignment_.generation(),
                                                      progress_.update)));
  if (!experience_.stats.preempted) stragglers_->Finished();

  ReportPhase(v1::LEARNING, "");
  const Clock::time_point update_began = Clock::now();
  UpdateContext context;
  context.update = progress_.update;
  context.global_step = progress_.global_step;
  context.collective = collective_.get();
  const absl::StatusOr<std::vector<Metric>> updated =
      algorithm_->Update(*experience_.rollout, context);
  if (absl::IsInternal(updated.status())) {
    return absl::InternalError(absl::StrCat("update ", progress_.update,
                                            ", rank ", assignment_.rank(), ": ",
                                            updated.status().message()));
  }
  RETURN_IF_ERROR(updated.status());
  const std::vector<Metric>& metrics = *updated;
  ASSIGN_OR_RETURN(const Agreement agreement,
                   Agree(metrics, SecondsSince(update_began)));
  Commit(agreement);
  normalizer_.Add(agreement.SumsFrom(metrics.size() +
                                     pool_->spec().episode_metric_size() +
                                     assignment_.world_size()));
  if (writes()) {
    evaluations_->Take(&progress_);
    Record(agreement, metrics);
    Evaluate();
    MaybeSave();
  }
  std::optional<RunOutcome> reason = ReasonToStop(agreement);
  if (!reason.has_value() && NothingIsLeft()) reason = RunOutcome::kCompleted;
  return reason;
}

absl::StatusOr<Agreement> Trainer::Agree(const std::vector<Metric>& metrics,
                                         double update_seconds) {
  const int world = collective_->world_size();
  const size_t share = std::max(1, 100 / world);
  const CollectStats& stats = experience_.stats;
  window_.insert(window_.end(), stats.episodes.begin(), stats.episodes.end());
  while (window_.size() > share) window_.pop_front();
  double window_return = 0, window_length = 0;
  std::vector<double> window_metrics(pool_->spec().episode_metric_size());
  for (const CollectStats::Episode& e : window_) {
    window_return += e.raw_return;
    window_length += e.length;
    for (size_t i = 0; i < e.metrics.size(); ++i) {
      window_metrics[i] += e.metrics[i];
    }
  }

  Agreement a(world);
  Vote(&a);
  a.Set(Agreement::kEnvSteps, experience_.env_steps);
  a.Set(Agreement::kEpisodes, stats.episodes.size());
  a.Set(Agreement::kWindowCount, window_.size());
  a.Set(Agreement::kWindowReturnSum, window_return);
  a.Set(Agreement::kWindowLengthSum, window_length);
  a.Set(Agreement::kEnvRestarts, pool_->restarts());
  a.Set(Agreement::kCollectSeconds, stats.seconds);
  a.Set(Agreement::kEnvSeconds, stats.env_seconds);
  a.Set(Agreement::kInferenceSeconds, stats.inference_seconds);
  a.Set(Agreement::kUpdateSeconds, update_seconds);
  a.Set(Agreement::kPreempted, stats.preempted);
  a.Set(Agreement::kDropped, experience_.dropped);
  std::vector<double> extra;
  for (const Metric& metric : metrics) extra.push_back(metric.value);
  extra.insert(extra.end(), window_metrics.begin(), window_metrics.end());
  for (int rank = 0; rank < world; ++rank) {
    extra.push_back(rank == assignment_.rank() ? experience_.policy_lag : 0);
  }
  extra.insert(extra.end(), experience_.noted.begin(), experience_.noted.end());
  a.SetExtra(extra);
  ReportPhase(v1::COLLECTIVE, "the other ranks");
  RETURN_IF_ERROR(a.Reduce(collective_.get()));
  return a;
}

void Trainer::Vote(Agreement* a) const {
  const v1::Command command = coordinator_->Latest();
  const int signal = signals_.first_signal();
  a->Set(Agreement::kSolvedVotes, command.evaluation().stop());
  a->Set(Agreement::kStopVotes, command.stop() || assignment_.stopping());
  a->Set(Agreement::kInterruptVotes, signal == SIGINT);
  a->Set(Agreement::kPreemptVotes, signal == SIGTERM || signal == SIGUSR1);
}

void Trainer::Commit(const Agreement& agreement) {
  ++progress_.update;
  progress_.global_step +=
      static_cast<int64_t>(agreement.Sum(Agreement::kEnvSteps));
  progress_.episodes +=
      static_cast<int64_t>(agreement.Sum(Agreement::kEpisodes));
  progress_.env_restarts =
      env_restarts_before_ +
      static_cast<int64_t>(agreement.Sum(Agreement::kEnvRestarts));
  progress_.env_incarnation =
      std::max<int64_t>(progress_.env_incarnation, pool_->last_incarnation());
  progress_.wall_seconds = wall_before_ + SecondsSince(began_);
  dropped_ += static_cast<int64_t>(agreement.Sum(Agreement::kDropped));
  window_count_ = static_cast<int64_t>(agreement.Sum(Agreement::kWindowCount));
  if (window_count_ > 0) {
    mean_return_ = agreement.Sum(Agreement::kWindowReturnSum) / window_count_;
    mean_length_ = agreement.Sum(Agreement::kWindowLengthSum) / window_count_;
  }
}

void Trainer::Record(const Agreement& agreement,
                     const std::vector<Metric>& metrics) {
  if (progress_.update %
      std::max<int64_t>(1, config_.metrics().every_updates())) {
    return;
  }
  std::vector<Metric> all;
  if (window_count_ > 0) {
    all.push_back({"charts/episodic_return", mean_return_});
    all.push_back({"charts/episodic_length", mean_length_});
    for (int i = 0; i < pool_->spec().episode_metric_size(); ++i) {
      all.push_back({"metrics/" + pool_->spec().episode_metric(i),
                     agreement.SumsFrom(metrics.size())[i] / window_count_});
    }
  }
  all.push_back({"charts/SPS", (progress_.global_step - steps_before_) /
                                   SecondsSince(began_)});
  all.push_back({"charts/episodes", static_cast<double>(progress_.episodes)});
  for (size_t i = 0; i < metrics.size(); ++i) {
    all.push_back({metrics[i].name, agreement.MeanExtra(i)});
  }
  const double collect = agreement.Mean(Agreement::kCollectSeconds);
  const double update = agreement.Mean(Agreement::kUpdateSeconds);
  const double total = std::max(1e-9, collect + update);
  all.push_back({"perf/env_wait_fraction",
                 agreement.Mean(Agreement::kEnvSeconds) / total});
  all.push_back({"perf/inference_fraction",
                 agreement.Mean(Agreement::kInferenceSeconds) / total});
  all.push_back({"perf/update_fraction", update / total});
  all.push_back({"sync/preempted_ranks", agreement.Sum(Agreement::kPreempted)});
  all.push_back({"env/restarts", static_cast<double>(progress_.env_restarts)});
  const auto lags =
      agreement.SumsFrom(metrics.size() + pool_->spec().episode_metric_size())
          .first(assignment_.world_size());
  all.push_back({"policy/lag_mean",
                 std::accumulate(lags.begin(), lags.end(), 0.0) / lags.size()});
  all.push_back(
      {"policy/lag_max", *std::max_element(lags.begin(), lags.end())});
  all.push_back({"rollout/dropped", static_cast<double>(dropped_)});
  for (const Metric& metric : usage_->Sample()) all.push_back(metric);
  recorder_->WriteMetrics(progress_, all);
}

void Trainer::Evaluate() {
  const v1::EvaluationConfig& e = config_.evaluation();
  if (e.every_updates() == 0 || progress_.update % e.every_updates() != 0 ||
      evaluations_->busy()) {
    return;
  }
  if (e.has_min_training_return() &&
      (window_count_ < 20 || mean_return_ < e.min_training_return())) {
    return;
  }
  evaluations_->Begin(algorithm_.get(), &normalizer_, &progress_);
}

Snapshot Trainer::SnapshotNow() {
  Snapshot now;
  TakeSnapshot(Live(), progress_, &now);
  return now;
}

void Trainer::MaybeSave() {
  const int64_t every = config_.checkpoint().every_updates();
  if (every == 0 || progress_.update % every != 0) return;
  recorder_->Save(SnapshotNow(), /*best=*/false);
}

absl::Status Trainer::ExchangeDigests() {
  constexpr int kHexDigits = 64;
  const int world = collective_->world_size();
  std::vector<int64_t> letters(world * kHexDigits, 0);
  const std::string mine = WeightsSha256(Live());
  std::copy(mine.begin(), mine.end(),
            letters.begin() + assignment_.rank() * kHexDigits);
  RETURN_IF_ERROR(collective_->AllReduceSum(torch::from_blob(
      letters.data(), {static_cast<int64_t>(letters.size())}, torch::kInt64)));
  parameters_sha256_.assign(world, "");
  for (size_t i = 0; i < letters.size(); ++i) {
    parameters_sha256_[i / kHexDigits].push_back(static_cast<char>(letters[i]));
  }
  return absl::OkStatus();
}

// Until all ranks are at the end, and rank 0 has written the result: should it
// die before, the others still have what it takes.
absl::Status Trainer::AwaitAllRanks(RunOutcome outcome) {
  LOG(INFO) << OutcomeName(outcome) << " at update " << progress_.update;
  RETURN_IF_ERROR(ExchangeDigests());
  if (writes()) return absl::OkStatus();
  ReportPhase(v1::FINISHED, "rank 0 to save");
  const absl::Time patience = absl::Now() + absl::Minutes(10);
  while (!coordinator_->Latest().closed() && absl::Now() < patience) {
    if (fence_.stop_requested()) {
      return absl::AbortedError("rank 0 was lost before it had saved");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return absl::OkStatus();
}

// Rank 0's.
absl::Status Trainer::Conclude(RunOutcome outcome) {
  ReportPhase(v1::SAVING, "");
  recorder_->Save(SnapshotNow(), /*best=*/false);
  if (outcome == RunOutcome::kCompleted &&
      config_.evaluation().every_updates() > 0) {
    // For the last one, unless the user does not want to wait.
    const auto& last = evaluations_->last();
    evaluations_->Await(&progress_, signals_.Stop());
    if (!evaluations_->busy() &&
        (!last.has_value() || last->update() != progress_.update)) {
      evaluations_->Begin(algorithm_.get(), &normalizer_, &progress_);
      evaluations_->Await(&progress_, signals_.Stop());
    }
    if (last.has_value() && last->stop()) outcome = RunOutcome::kSolved;
  }
  Summary summary;
  summary.status = OutcomeName(outcome);
  summary.parameters_sha256 = parameters_sha256_;
  summary.world_size = assignment_.world_size();
  summary.stop_update = progress_.update;
  summary.mean_return = mean_return_;
  summary.steps_per_second =
      (progress_.global_step - steps_before_) /
      std::max(1e-9, progress_.wall_seconds - wall_before_);
  summary.evaluation = evaluations_->last();
  for (const v1::Member& member : assignment_.learner()) {
    summary.learner_restarts += member.restarts();
  }
  const absl::Status saved = recorder_->FinishSaving();
  if (!saved.ok()) summary.error = std::string(saved.message());
  RETURN_IF_ERROR(recorder_->WriteSummary(progress_, summary));
  coordinator_->CloseRun(summary.status).IgnoreError();
  return saved;
}

void Trainer::ReportPhase(v1::Phase phase, const std::string& waits_for) {
  heartbeat_.set_phase(phase);
  heartbeat_.set_waits_for(waits_for);
  heartbeat_.set_trouble(recorder_ == nullptr ? "" : recorder_->trouble());
  heartbeat_.set_update(progress_.update);
  heartbeat_.set_env_steps(progress_.global_step);
  heartbeat_.set_episodes(progress_.episodes);
  heartbeat_.set_mean_return(mean_return_);
  if (began_ != Clock::time_point()) {
    heartbeat_.set_steps_per_second((progress_.global_step - steps_before_) /
                                    SecondsSince(began_) /
                                    std::max(1, assignment_.world_size()));
  }
  if (pool_ != nullptr) {
    heartbeat_.set_env_worker_restarts(pool_->restarts());
    heartbeat_.clear_env_worker();
    for (v1::EnvServerStatus& worker : pool_->Describe()) {
      *heartbeat_.add_env_worker() = std::move(worker);
    }
  }
  coordinator_->Report(heartbeat_);
  // Peers, checkpoints and the last evaluation have deadlines of their own.
  if (phase == v1::STEPPING) {
    watchdog_.Begin(absl::StrCat("the rollout of update ", progress_.update));
  } else if (phase == v1::LEARNING) {
    const double collectives = config_.distributed().timeout_seconds();
    watchdog_.Begin(absl::StrCat("update ", progress_.update, ", besides ",
                                 collectives, " s for its collectives,"),
                    absl::Seconds(collectives));
  } else {
    watchdog_.Rest();
  }
}

void Trainer::GiveUp(const std::string& step) const {
  options_.give_up(absl::DeadlineExceededError(absl::StrCat(
      options_.member_id, ": ", step, " has not ended after ",
      config_.runtime().progress_timeout_seconds(),
      " s (runtime.progress_timeout_seconds): this learner hangs. If it is "
      "only slow, raise that")));
}

}  // namespace

absl::StatusOr<RunOutcome> Train(const TrainerOptions& options,
                                 CoordinatorClient* coordinator,
                                 const ShutdownSignals& signals) {
  return Trainer(options, coordinator, signals).Run();
}

}  // namespace flotilla
