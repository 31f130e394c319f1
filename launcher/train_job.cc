#include "launcher/train_job.h"

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "launcher/coordinator_calls.h"
#include "launcher/coordinator_process.h"
#include "launcher/find_coordinator.h"
#include "launcher/programs.h"
#include "launcher/progress.h"
#include "launcher/requeue.h"
#include "launcher/resume.h"
#include "launcher/status_poller.h"
#include "launcher/summary.h"
#include "launcher/supervisor.h"
#include "launcher/text_layout.h"
#include "launcher/train_plan.h"
#include "services/base/atomic_file.h"
#include "services/base/config.h"
#include "services/base/json.h"
#include "services/base/member_state.h"
#include "services/base/run_changes.h"
#include "services/base/run_summary.h"
#include "services/base/secret.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/base/text_file.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kPollInterval = absl::Milliseconds(500);
constexpr absl::Duration kCallTimeout = absl::Seconds(5);
// For learners of other nodes, which still talk to our coordinator when ours
// have ended.
constexpr absl::Duration kLingerTimeout = absl::Seconds(30);

std::string MemberId(const Topology& topology, int index) {
  return absl::StrCat("learner/", topology.node_rank, "/",
                      topology.first_local_rank + index);
}

// What the coordinator has to know about the run.
std::vector<std::string> CoordinatorFlags(const TrainJob& job) {
  const v1::DistributedConfig& distributed = job.config.distributed();
  std::vector<std::string> flags = {
      absl::StrCat("--run_id=", job.folder.name()),
      absl::StrCat("--min_learners=", job.topology.min_world_size),
      absl::StrCat("--max_learners=", job.topology.max_world_size),
      absl::StrCat("--heartbeat_seconds=", distributed.heartbeat_seconds()),
      absl::StrCat("--dead_after_seconds=", distributed.dead_after_seconds()),
      absl::StrCat("--last_call_seconds=", distributed.last_call_seconds())};
  if (!job.metrics_listen.empty()) {
    flags.push_back("--metrics-listen=" + job.metrics_listen);
    flags.push_back("--metrics-address-file=" + job.folder.metrics_address());
  }
  if (!job.metrics_token_file.empty()) {
    flags.push_back("--metrics-token-file=" + job.metrics_token_file);
  }
  return flags;
}

class Job {
 public:
  Job(const TrainJob& job, const ShutdownSignals& signals)
      : job_(job),
        signals_(signals),
        progress_(Mode(job), FactsOf(job), stdout) {}

  int Run() {
    const absl::Status prepared = Prepare();
    if (!prepared.ok()) {
      TakeBackNamed();
      if (signals_.first_signal() != 0) {
        if (job_.topology.hosts_coordinator) RequeueIfWarned(signals_);
        return ExitCodeOf(signals_.first_signal());
      }
      const std::string failure(prepared.message());
      std::fprintf(stderr, "flotilla train: %s\n", failure.c_str());
      if (began_ && job_.lock != nullptr && job_.lock->Keep().ok()) {
        WriteFailure(failure, BeforeTheFirst());
      }
      return kExitFailed;
    }
    // Rank 0 writes what they read, and one launcher is enough to start them.
    if (job_.topology.hosts_coordinator) {
      trackers_ = std::make_unique<Trackers>(
          job_.track, job_.folder,
          [this](const std::string& line) { progress_.Say(line); });
    }
    StatusPoller poller(calls_.get(), kPollInterval);
    poller_ = &poller;
    Supervisor supervisor(MakeSupervisorOptions());
    SupervisorResult result = supervisor.Run();
    const auto last = calls_->GetStatus(absl::Seconds(1));
    if (result.failure.empty()) summary_ = FreshSummary();
    latest_ = last.ok() ? std::optional(*last) : poller.Latest();
    if (result.exit_code == kExitDone && WasPreempted()) {
      result.exit_code = kExitPreempted;
    }
    TellTroubles();
    progress_.Finish(AsItEnded(latest_));
    Conclude(result);
    if (trackers_ != nullptr) {
      // Until the next signal at most, as in AwaitPeers.
      trackers_->Finish([this, signals = signals_.signals()] {
        return signals_.signals() != signals ||
               signals_.StopNow().stop_requested();
      });
    }
    return result.exit_code;
  }

 private:
  static ProgressMode Mode(const TrainJob& job) {
    // Every node would show the same.
    if (job.progress == "auto" && !job.topology.hosts_coordinator) {
      return ProgressMode::kNone;
    }
    return ChooseProgressMode(job.progress, stdout);
  }

  static ProgressFacts FactsOf(const TrainJob& job) {
    const TrainPlan plan = MakePlan(job.config, job.topology);
    ProgressFacts facts = {.name = job.folder.name(),
                           .total_env_steps = plan.steps,
                           .steps_an_update = plan.batch * plan.world_size};
    if (!job.resume) return facts;
    const CheckpointFolder from(
        *job.resume == "latest" ? job.folder.latest_checkpoint() : *job.resume);
    // A learner that cannot read it says so.
    auto progress = ParseFlatJson(WholeFile(from.progress()).value_or(""));
    if (!progress.ok()) return facts;
    if (!absl::SimpleAtoi((*progress)["global_step"], &facts.first_step) ||
        !absl::SimpleAtoi((*progress)["update"], &facts.first_update)) {
      facts.first_step = facts.first_update = 0;
    }
    return facts;
  }

  absl::Status Prepare() {
    const bool hosts = job_.topology.hosts_coordinator;
    // What a run left stays as it is if it is the one that is over.
    std::error_code error;
    if (hosts && fs::exists(job_.folder.config(), error)) {
      RETURN_IF_ERROR(FindCoordinator());
    }
    began_ = true;
    for (const TrainJob::Copy& copy : job_.copies) {
      RETURN_IF_ERROR(CopyFile(copy));
    }
    const std::string text = FormatResolved(job_.config);
    RETURN_IF_ERROR(WriteFileAtomically(ConfigPath(), text));
    std::error_code absent;
    started_ = fs::last_write_time(ConfigPath(), absent);
    for (int i = 0; i < job_.topology.num_learners; ++i) {
      const std::string id = MemberId(job_.topology, i);
      RETURN_IF_ERROR(ReadOrDrawSecret(job_.folder.secret(id)).status());
    }
    progress_.Say(absl::StrCat("run folder: ", job_.folder.path()));
    for (const std::string& line : job_.notices) progress_.Say(line);
    if (hosts) {
      RETURN_IF_ERROR(WriteRunTopology(job_.folder, job_.topology));
      RETURN_IF_ERROR(KeepChanges());
      RETURN_IF_ERROR(HostCoordinator());
    } else {
      RETURN_IF_ERROR(AwaitCoordinator());
    }
    progress_.Say(
        absl::StrCat("coordinator: ", address_,
                     coordinator_ == nullptr ? " (started elsewhere)" : ""));
    return absl::OkStatus();
  }

  static absl::Status CopyFile(const TrainJob::Copy& copy) {
    const auto file = WholeFile(copy.from);
    if (!file) {
      return absl::NotFoundError(absl::StrCat("cannot read ", copy.from));
    }
    return WriteFileAtomically(copy.to, *file);
  }

  // What is left of another run's would be made again.
  absl::Status KeepChanges() const {
    const std::string path = job_.folder.changes();
    if (job_.changes.change_size() > 0) return WriteChanges(path, job_.changes);
    std::error_code absent;
    fs::remove(path, absent);
    return absl::OkStatus();
  }

  // The launcher of node 0 writes the run's own; the others keep theirs beside
  // their logs, and the coordinator compares the digests.
  std::string ConfigPath() const {
    if (job_.topology.hosts_coordinator) return job_.folder.config();
    return job_.folder.launcher_config(job_.topology.first_rank);
  }

  // Looks whether one listens at a named port. Errors: kFailedPrecondition if the run
  // that it served is over.
  absl::Status FindCoordinator() {
    const Topology& topology = job_.topology;
    if (!topology.port_named || !SomethingListens(topology.coordinator)) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(Connect(topology.coordinator));
    ASSIGN_OR_RETURN(found_, calls_->GetStatus(kCallTimeout));
    if (found_->state() != v1::CLOSED || PeersLive()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "the coordinator at ", address_,
        " served a run that is over: start it anew, without the journal "
        "of that run"));
  }

  // Joins what listens at a named port; starts one where nothing does.
  absl::Status HostCoordinator() {
    if (!found_) RETURN_IF_ERROR(FindCoordinator());
    if (found_) {
      CountEarlierStarts(*found_);
      if (!PeersLive()) RETURN_IF_ERROR(GoOnFromNamed());
      // Left by one of the run's own, which would be asked for.
      if (JournalEpoch(job_.folder) != found_->epoch()) {
        std::error_code absent;
        fs::remove(job_.folder.coordinator_journal(), absent);
      }
      return WriteFileAtomically(job_.folder.coordinator_address(),
                                 address_ + "\n");
    }
    CoordinatorOptions options;
    options.address = job_.topology.coordinator;
    options.any_port = !job_.topology.port_named;
    options.folder = job_.folder;
    options.flags = CoordinatorFlags(job_);
    options.credentials = job_.credentials;
    options.notice = [this](const std::string& line) { progress_.Say(line); };
    RETURN_IF_ERROR(GoOnFromNamed());
    ASSIGN_OR_RETURN(coordinator_, CoordinatorProcess::Start(options));
    return Connect(coordinator_->address());
  }

  // What replacements go back to, and another --resume, before the first save.
  absl::Status GoOnFromNamed() {
    if (!job_.resume || *job_.resume == "latest") return absl::OkStatus();
    ASSIGN_OR_RETURN(before_, GoOnFrom(*job_.resume, job_.folder));
    return absl::OkStatus();
  }

  // Nobody has begun there.
  void TakeBackNamed() {
    if (before_) TakeBack(*before_, job_.folder);
  }

  absl::Status AwaitCoordinator() {
    RETURN_IF_ERROR(Connect(job_.topology.coordinator));
    const absl::Duration timeout =
        absl::Seconds(job_.config.distributed().join_timeout_seconds());
    const absl::Time deadline = SteadyNow() + timeout;
    bool told = false;
    for (;;) {
      const auto status = calls_->GetStatus(absl::Seconds(1));
      // Where a run was preempted, the next one's will be. If none comes, learners
      // hear from this one how theirs ended.
      const bool late = SteadyNow() > deadline;
      const bool of_the_last = status.ok() && status->state() == v1::CLOSED &&
                               status->preempted() && !late;
      if (status.ok() && !of_the_last) {
        // Now the run's token is there, if it has one.
        RETURN_IF_ERROR(Connect(address_));
        CountEarlierStarts(*status);
        return absl::OkStatus();
      }
      if (signals_.first_signal() != 0) return absl::CancelledError("stopped");
      if (!status.ok() && (late || !absl::IsUnavailable(status.status()))) {
        return status.status();
      }
      if (!told) progress_.Say("waiting for the coordinator at " + address_);
      told = true;
      calls_->Pause(absl::Milliseconds(100));
    }
  }

  // A node that comes back takes up its learners' names; they have to be newer
  // than the ones before.
  void CountEarlierStarts(const v1::Status& status) {
    for (const v1::LearnerStatus& learner : status.learner()) {
      if (learner.node_rank() != job_.topology.node_rank) continue;
      // Of restarts a coordinator forgets those from before its own; one of an
      // earlier build tells no incarnation.
      first_incarnation_ =
          std::max({first_incarnation_, learner.incarnation() + 1,
                    static_cast<uint64_t>(learner.restarts()) + 1});
    }
  }

  absl::Status Connect(const std::string& address) {
    address_ = address;
    credentials_ = WithRunToken(job_.credentials, job_.folder.path());
    ASSIGN_OR_RETURN(calls_, CoordinatorCalls::Make(address, credentials_));
    return absl::OkStatus();
  }

  int RankOf(int index) const { return job_.topology.first_rank + index; }

  SupervisorOptions MakeSupervisorOptions() {
    SupervisorOptions options;
    options.num_learners = job_.topology.num_learners;
    options.command = [this](const LearnerStart& start) {
      return LearnerCommand(start);
    };
    options.first_incarnation = first_incarnation_;
    options.max_restarts = job_.max_restarts;
    options.save_and_stop =
        absl::Seconds(job_.config.runtime().save_and_stop_seconds());
    options.name = [this](int i) {
      return absl::StrCat("learner ", RankOf(i));
    };
    options.log_path = [this](int i) {
      return job_.folder.rank_log(RankOf(i));
    };
    options.error_path = [this](int i) {
      return job_.folder.rank_error(RankOf(i));
    };
    options.stop_signal = [this] { return signals_.first_signal(); };
    options.stop_now = [this] { return signals_.StopNow().stop_requested(); };
    options.given_up = [this](int i, pid_t pid) { return GivenUp(i, pid); };
    options.run_is_over = [this] {
      const auto summary = FreshSummary();
      if (!summary || summary->status() == v1::RunSummary::FAILED) return false;
      const auto status = calls_->GetStatus(absl::Seconds(1));
      return status.ok() && status->state() == v1::CLOSED;
    };
    options.tick = [this] {
      latest_ = poller_->Latest();
      progress_.Show(latest_, SteadyNow());
      TellTroubles();
      if (trackers_ != nullptr) trackers_->Check(absl::Now());
      RETURN_IF_ERROR(KeepFolder());
      return coordinator_ == nullptr ? absl::OkStatus() : coordinator_->Check();
    };
    options.notice = [this](const std::string& line) { progress_.Say(line); };
    return options;
  }

  // Once a second: it asks a file system that may be far away.
  absl::Status KeepFolder() {
    if (job_.lock == nullptr || SteadyNow() < keep_at_) return absl::OkStatus();
    keep_at_ = SteadyNow() + absl::Seconds(1);
    return job_.lock->Keep();
  }

  // Each once.
  void TellTroubles() {
    if (!latest_) return;
    if (!latest_->started_over().empty() && !told_started_over_) {
      told_started_over_ = true;
      progress_.Say(latest_->started_over());
    }
    for (const v1::LearnerStatus& learner : latest_->learner()) {
      std::string& told = troubles_[learner.id()];
      if (told == learner.trouble()) continue;
      told = learner.trouble();
      if (!told.empty()) {
        progress_.Say(absl::StrCat("learner ", learner.rank(), ": ", told));
      }
    }
  }

  // The coordinator has heard nothing of it. That may be the network's fault:
  // where this launcher was cut off too, the learner gets the time to come
  // back.
  bool GivenUp(int index, pid_t pid) {
    const absl::Duration patience =
        absl::Seconds(job_.config.distributed().dead_after_seconds());
    if (!latest_ || poller_->AnsweredFor() < patience) return false;
    const std::string id = MemberId(job_.topology, index);
    for (const v1::LearnerStatus& learner : latest_->learner()) {
      if (learner.id() != id || learner.pid() != pid ||
          !Is(learner, LearnerState::kDead)) {
        continue;
      }
      progress_.Say(absl::StrFormat(
          "learner %d (process %d) has been silent for %.0f s: killing it",
          RankOf(index), pid, learner.last_heartbeat_seconds()));
      return true;
    }
    return false;
  }

  SubprocessOptions LearnerCommand(const LearnerStart& start) const {
    const Topology& topology = job_.topology;
    SubprocessOptions program;
    program.argv = {
        FindProgram("flotilla-learner").value_or("flotilla-learner"),
        "--config=" + ConfigPath(),
        "--run_dir=" + job_.folder.path(),
        "--coordinator=" + address_,
        "--member_id=" + MemberId(topology, start.index),
        "--secret_file=" + job_.folder.secret(MemberId(topology, start.index)),
        absl::StrCat("--incarnation=", start.incarnation),
        absl::StrCat("--node_rank=", topology.node_rank),
        absl::StrCat("--local_rank=", topology.first_local_rank + start.index),
        absl::StrCat("--local_world_size=", topology.local_world_size),
        absl::StrCat("--world_size=", topology.max_world_size),
        absl::StrCat("--requested_rank=", RankOf(start.index)),
        absl::StrCat("--restarts=", start.restarts)};
    if (!job_.device_ids.empty()) {
      program.argv.push_back("--device_ids=" +
                             absl::StrJoin(job_.device_ids, ","));
    }
    if (job_.cores.pinned()) {
      program.argv.push_back("--cores=" +
                             absl::StrJoin(job_.cores.cores[start.index], ","));
    }
    if (topology.one_rank) program.argv.push_back("--given_rank");
    const std::string resume = ResumeFrom(start);
    if (!resume.empty()) program.argv.push_back("--resume=" + resume);
    for (const std::string& flag : CredentialFlags(credentials_)) {
      program.argv.push_back(flag);
    }
    program.log_path = job_.folder.rank_log(RankOf(start.index));
    return program;
  }

  // A replaced learner takes its state from a peer; only where none is left
  // does it go back to a checkpoint. Where those that are left know nothing
  // either, one of them does (TrainingLoop).
  std::string ResumeFrom(const LearnerStart& start) const {
    if (start.restarts == 0) return job_.resume.value_or("");
    if (!start.alone || PeersLive()) return "";
    return job_.folder.HasCheckpoint() ? "latest" : "";
  }

  bool PeersLive() const {
    return job_.topology.has_peers() &&
           HasPeers(calls_->GetStatus(absl::Seconds(1)));
  }

  // One whose heartbeat is late, or whose session broke, lives as far as is known.
  bool HasPeers(const absl::StatusOr<v1::Status>& status) const {
    if (!status.ok()) return false;
    for (const v1::LearnerStatus& learner : status->learner()) {
      const bool ours = job_.topology.one_rank
                            ? learner.id() == MemberId(job_.topology, 0)
                            : learner.node_rank() == job_.topology.node_rank;
      if (!ours && (Is(learner, LearnerState::kAlive) ||
                    Is(learner, LearnerState::kSuspect))) {
        return true;
      }
    }
    return false;
  }

  void Conclude(const SupervisorResult& result) {
    if (job_.topology.has_peers() && !result.failure.empty()) {
      const std::string id = OneThatTrained();
      const auto secret = ReadSecret(job_.folder.secret(id));
      calls_->CloseRun(id, secret.value_or(""), "failed", kCallTimeout)
          .IgnoreError();
    }
    const bool met = latest_ && latest_->generation() > 0;
    if (result.exit_code != kExitDone && !met) TakeBackNamed();
    if (!result.failure.empty()) {
      const absl::Status kept =
          job_.lock == nullptr ? absl::OkStatus() : job_.lock->Keep();
      std::fprintf(stderr, "flotilla train: the run failed\n%s\n",
                   kept.ok() ? result.failure.c_str()
                             : std::string(kept.message()).c_str());
      if (kept.ok() && job_.topology.hosts_coordinator) {
        WriteFailure(result.failure, FreshSummary());
      }
    }
    // They hear of it that the run is over, and why if it failed.
    if (job_.topology.has_peers() && coordinator_ != nullptr) AwaitPeers();
    if (job_.topology.hosts_coordinator) {
      ShowSummary();
    } else {
      SayGoodbye(result);
    }
    SuggestResume(result);
    if (result.exit_code == kExitPreempted && job_.topology.hosts_coordinator) {
      RequeueIfWarned(signals_);
    }
  }

  // Of ours, one that has a place among those that train, if any has: who gives up
  // ends the run for these.
  std::string OneThatTrained() const {
    std::string id = MemberId(job_.topology, 0);
    if (!latest_) return id;
    for (int i = job_.topology.num_learners - 1; i >= 0; --i) {
      for (const v1::LearnerStatus& learner : latest_->learner()) {
        if (learner.id() == MemberId(job_.topology, i) && learner.rank() >= 0) {
          id = learner.id();
        }
      }
    }
    return id;
  }

  // Until the next signal at most: nobody waits longer who wants to be gone.
  void AwaitPeers() {
    const int signals = signals_.signals();
    const absl::Time deadline = SteadyNow() + kLingerTimeout;
    while (SteadyNow() < deadline && signals_.signals() == signals &&
           !signals_.StopNow().stop_requested()) {
      const auto status = calls_->GetStatus(absl::Seconds(1));
      const bool late = absl::IsDeadlineExceeded(status.status());
      if (!late && !HasPeers(status)) return;
      absl::SleepFor(absl::Milliseconds(100));
    }
  }

  // Also where all of ours ended as if there was nothing to save: they died after
  // the others had saved, or came too late and could ask nobody.
  bool WasPreempted() const {
    if (summary_) return summary_->status() == v1::RunSummary::PREEMPTED;
    return latest_ && latest_->preempted();
  }

  // What rank 0 wrote, if this run got that far.
  std::optional<v1::RunSummary> FreshSummary() const {
    std::error_code absent;
    const auto written = fs::last_write_time(job_.folder.summary(), absent);
    if (absent || written < started_) return std::nullopt;
    auto summary = ReadRunSummary(job_.folder.summary());
    return summary.ok() ? std::optional(*std::move(summary)) : std::nullopt;
  }

  // Of a run that failed before its first learner: what it had come to if it was
  // resumed, and else that there is nothing, so that it is in nobody's way.
  std::optional<v1::RunSummary> BeforeTheFirst() const {
    if (auto before = ReadRunSummary(job_.folder.summary());
        job_.resume && before.ok()) {
      before->clear_error();
      return *std::move(before);
    }
    if (job_.resume) return std::nullopt;
    v1::RunSummary nothing = SummarizeFailure(job_.config, {}, {}, {}, "");
    nothing.clear_error();
    nothing.set_global_steps(0);
    nothing.set_updates(0);
    nothing.set_episodes(0);
    return nothing;
  }

  // The coordinator may not have heard of the last update: the result has.
  std::optional<v1::Status> AsItEnded(std::optional<v1::Status> status) const {
    if (!status || !summary_) return status;
    status->set_global_step(summary_->global_steps());
    status->set_update(summary_->updates());
    if (summary_->has_mean_return()) {
      status->set_mean_return(summary_->mean_return());
    }
    if (summary_->has_eval_mean_return() && status->has_evaluation()) {
      status->mutable_evaluation()->set_mean_return(
          summary_->eval_mean_return());
    }
    for (v1::LearnerStatus& learner : *status->mutable_learner()) {
      learner.set_update(summary_->updates());
    }
    return status;
  }

  // `known`: what there is of a summary already.
  void WriteFailure(const std::string& failure,
                    const std::optional<v1::RunSummary>& known) {
    const absl::Status written = WriteRunSummary(
        job_.folder.summary(),
        SummarizeFailure(job_.config, known, latest_,
                         ReadNewestMetrics(job_.folder.metrics()), failure));
    if (!written.ok()) {
      std::fprintf(stderr, "flotilla train: %s\n",
                   std::string(written.message()).c_str());
    }
  }

  void ShowSummary() const {
    if (!summary_) return;
    std::printf("%s  %s\n", DescribeSummary(*summary_).c_str(),
                job_.folder.path().c_str());
    std::fflush(stdout);
  }

  // Where the result is shown by another launcher.
  void SayGoodbye(const SupervisorResult& result) {
    if (!result.failure.empty()) return;
    const Topology& topology = job_.topology;
    const std::string learners =
        topology.num_learners == 1
            ? absl::StrCat("learner ", topology.first_rank)
            : absl::StrCat("learners ", topology.first_rank, " to ",
                           topology.first_rank + topology.num_learners - 1);
    // Where ranks are given, a node may have several numbers.
    const std::string node =
        topology.one_rank ? ""
                          : absl::StrCat("node ", topology.node_rank, ": ");
    progress_.Say(absl::StrCat(
        node, learners, " ended, ",
        result.exit_code == kExitDone ? "the run is over" : "state saved",
        summary_ ? "; its result is in " + job_.folder.summary() : ""));
  }

  void SuggestResume(const SupervisorResult& result) const {
    if (result.exit_code == kExitDone || !fs::exists(job_.folder.config()) ||
        !job_.folder.HasCheckpoint()) {
      return;
    }
    std::fprintf(stderr, "go on with: flotilla train --resume --run-dir %s\n",
                 ShellWord(job_.folder.path()).c_str());
  }

  const TrainJob& job_;
  const ShutdownSignals& signals_;
  fs::file_time_type started_;  // by the clock of the run folder's file system
  uint64_t first_incarnation_ = 0;
  std::string address_;
  RpcCredentials credentials_;  // the job's, with the run's token if it has one
  ProgressPrinter progress_;
  std::unique_ptr<CoordinatorProcess> coordinator_;  // null: not ours
  std::unique_ptr<CoordinatorCalls> calls_;
  std::optional<v1::Status> found_;  // of one that was there
  bool began_ = false;               // to write the run's folder
  std::unique_ptr<Trackers>
      trackers_;  // null: another node's launcher has them
  StatusPoller* poller_ = nullptr;
  std::optional<v1::Status> latest_;             // at this tick
  std::optional<LatestBefore> before_;           // GoOnFromNamed
  std::map<std::string, std::string> troubles_;  // by learner, as told
  std::optional<v1::RunSummary> summary_;        // once it has ended well
  bool told_started_over_ = false;
  absl::Time keep_at_ = absl::InfinitePast();
};

}  // namespace

int RunTrainJob(const TrainJob& job, const ShutdownSignals& signals) {
  return Job(job, signals).Run();
}

}  // namespace flotilla
