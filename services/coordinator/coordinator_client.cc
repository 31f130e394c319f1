#include "services/coordinator/coordinator_client.h"

#include <glog/logging.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "flotilla/v1/coordinator.grpc.pb.h"
#include "services/base/mutex.h"
#include "services/base/status_macros.h"
#include "services/base/version.h"
#include "services/coordinator/session_client.h"
#include "services/rpc/channel.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {
namespace {

using Stub = v1::CoordinatorService::Stub;

// The one deadline of calls that do not wait.
constexpr absl::Duration kShortDeadline = absl::Seconds(10);
// Of one attempt at them: a connection that has gone dead costs no more.
constexpr absl::Duration kAttempt = absl::Seconds(3);
// Longer than what the server was asked to wait, for its answer to come.
constexpr absl::Duration kSlack = absl::Seconds(1);
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(1);

absl::Duration NextPause(absl::Duration pause) {
  return std::min(2 * pause, kLongestPause);
}

int64_t RemainingMs(absl::Time deadline) {
  return std::max<int64_t>(absl::ToInt64Milliseconds(deadline - absl::Now()),
                           0);
}

template <typename Request, typename Response>
using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&,
                                      Response*);

template <typename Request, typename Response>
absl::Status CallOnce(Stub* stub, Method<Request, Response> method,
                      const Request& request, absl::Duration timeout,
                      bool wait_for_ready, Response* response) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMilliseconds(timeout));
  context.set_wait_for_ready(wait_for_ready);
  return FromGrpc((stub->*method)(&context, request, response));
}

// What a lost coordinator or connection looks like. It may be back soon.
bool IsLoss(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

// Takes in `command`, newer than `known`. What is sticky stays, even if the
// coordinator has forgotten it over a restart.
v1::Command Merged(const v1::Command& known, v1::Command command) {
  if (command.fenced_generation() < known.fenced_generation()) {
    command.set_fenced_generation(known.fenced_generation());
    command.set_fence_reason(known.fence_reason());
  }
  if (known.stop() && !command.stop()) {
    command.set_stop(true);
    command.set_stop_reason(known.stop_reason());
  }
  if (known.evaluation().round() > command.evaluation().round()) {
    *command.mutable_evaluation() = known.evaluation();
  }
  if (known.closed()) command.set_closed(true);
  return command;
}

class Client final : public CoordinatorClient {
 public:
  Client(std::string address, RpcCredentials credentials, v1::Member self,
         std::shared_ptr<Stub> stub, const v1::RegisterResponse& registered)
      : address_(std::move(address)),
        credentials_(std::move(credentials)),
        self_(std::move(self)),
        run_id_(registered.run_id()),
        heartbeat_(absl::Milliseconds(registered.heartbeat_ms())),
        patience_(std::max(2 * heartbeat_,
                           absl::Milliseconds(registered.dead_after_ms()) / 2)),
        stub_(std::move(stub)),
        beats_([this] { KeepSession(); }),
        alarms_([this] { RaiseAlarms(); }) {}

  ~Client() override {
    {
      MutexLock lock(&mu_);
      quit_ = true;
      changed_.notify_all();
    }
    beats_.join();
    alarms_.join();
  }

  absl::StatusOr<v1::Assignment> JoinGeneration(
      uint64_t last_committed_update, bool has_state,
      absl::Duration timeout) override {
    v1::JoinGenerationRequest request;
    request.set_member_id(self_.id());
    request.set_incarnation(self_.incarnation());
    request.set_last_committed_update(last_committed_update);
    request.set_has_state(has_state);
    {
      MutexLock lock(&mu_);
      request.set_after_generation(last_generation_);
      generation_ = 0;
    }
    v1::Assignment assignment;
    const absl::Time deadline = absl::Now() + timeout;
    RETURN_IF_ERROR(Waiting(&Stub::JoinGeneration, 0, &request, deadline,
                            "no generation has formed", &assignment));
    MutexLock lock(&mu_);
    last_generation_ = generation_ = assignment.generation();
    return assignment;
  }

  std::stop_token Fence(uint64_t generation) override {
    MutexLock lock(&mu_);
    if (!IsOver(generation)) return fences_[generation].get_token();
    std::stop_source over;
    over.request_stop();
    return over.get_token();
  }

  absl::Status ReportFailure(uint64_t generation,
                             const std::string& reason) override {
    v1::ReportFailureRequest request;
    request.set_generation(generation);
    request.set_member_id(self_.id());
    request.set_reason(reason);
    v1::ReportFailureResponse response;
    return Short(&Stub::ReportFailure, request, &response);
  }

  absl::Status Set(uint64_t generation, const std::string& key,
                   const std::string& value) override {
    v1::KvSetRequest request;
    request.set_generation(generation);
    request.set_key(key);
    request.set_value(value);
    v1::KvSetResponse response;
    return Short(&Stub::KvSet, request, &response);
  }

  absl::StatusOr<std::string> Get(uint64_t generation, const std::string& key,
                                  absl::Duration timeout) override {
    v1::KvGetRequest request;
    request.set_generation(generation);
    request.set_key(key);
    v1::KvGetResponse response;
    RETURN_IF_ERROR(
        Waiting(&Stub::KvGet, generation, &request, absl::Now() + timeout,
                absl::StrCat("key \"", key, "\" did not come"), &response));
    return std::move(*response.mutable_value());
  }

  absl::Status Wait(uint64_t generation, const std::vector<std::string>& keys,
                    absl::Duration timeout) override {
    if (keys.empty()) return absl::OkStatus();
    v1::KvWaitRequest request;
    request.set_generation(generation);
    request.mutable_key()->Assign(keys.begin(), keys.end());
    v1::KvWaitResponse response;
    return Waiting(&Stub::KvWait, generation, &request, absl::Now() + timeout,
                   absl::StrCat("keys \"", keys.front(), "\"... did not come"),
                   &response);
  }

  // Sent once: after a loss nobody knows whether it was counted.
  absl::StatusOr<int64_t> Add(uint64_t generation, const std::string& key,
                              int64_t amount) override {
    v1::KvAddRequest request;
    request.set_generation(generation);
    request.set_key(key);
    request.set_amount(amount);
    v1::KvAddResponse response;
    RETURN_IF_ERROR(Explained(CallOnce(TheStub().get(), &Stub::KvAdd, request,
                                       kShortDeadline, /*wait_for_ready=*/true,
                                       &response)));
    return response.value();
  }

  absl::StatusOr<std::string> CompareSet(uint64_t generation,
                                         const std::string& key,
                                         const std::string& expected,
                                         const std::string& desired) override {
    v1::KvCompareSetRequest request;
    request.set_generation(generation);
    request.set_key(key);
    request.set_expected(expected);
    request.set_desired(desired);
    v1::KvCompareSetResponse response;
    RETURN_IF_ERROR(Short(&Stub::KvCompareSet, request, &response));
    return std::move(*response.mutable_value());
  }

  absl::StatusOr<bool> Check(uint64_t generation,
                             const std::vector<std::string>& keys) override {
    v1::KvCheckRequest request;
    request.set_generation(generation);
    request.mutable_key()->Assign(keys.begin(), keys.end());
    v1::KvCheckResponse response;
    RETURN_IF_ERROR(Short(&Stub::KvCheck, request, &response));
    return response.all_present();
  }

  absl::StatusOr<bool> Delete(uint64_t generation,
                              const std::string& key) override {
    v1::KvDeleteRequest request;
    request.set_generation(generation);
    request.set_key(key);
    v1::KvDeleteResponse response;
    RETURN_IF_ERROR(Short(&Stub::KvDelete, request, &response));
    return response.deleted();
  }

  absl::StatusOr<int64_t> Count(uint64_t generation) override {
    v1::KvCountRequest request;
    request.set_generation(generation);
    v1::KvCountResponse response;
    RETURN_IF_ERROR(Short(&Stub::KvCount, request, &response));
    return response.count();
  }

  void Report(const v1::Heartbeat& progress) override {
    MutexLock lock(&mu_);
    // Whoever has finished may be gone before the next heartbeat is due.
    beat_now_ |=
        progress.phase() == v1::FINISHED && progress_.phase() != v1::FINISHED;
    progress_ = progress;
    reported_at_ = absl::Now();
    if (beat_now_) changed_.notify_all();
  }

  v1::Command Latest() const override {
    MutexLock lock(&mu_);
    return latest_;
  }

  std::stop_token RunStopped() const override {
    return run_stopped_.get_token();
  }

  absl::Status ReportEvaluation(const v1::Evaluation& evaluation) override {
    {
      MutexLock lock(&mu_);
      evaluation_ = evaluation;
    }
    v1::ReportEvaluationResponse response;
    return Short(&Stub::ReportEvaluation, EvaluationRequest(evaluation),
                 &response);
  }

  // Sent once: news of a moment, which nobody should wait for.
  absl::Status ReportCollected(uint64_t generation, int64_t update,
                               double fraction) override {
    v1::ReportCollectedRequest request;
    request.set_generation(generation);
    request.set_member_id(self_.id());
    request.set_update(update);
    request.set_fraction(fraction);
    v1::ReportCollectedResponse response;
    return Explained(CallOnce(TheStub().get(), &Stub::ReportCollected, request,
                              kAttempt, /*wait_for_ready=*/false, &response));
  }

  absl::StatusOr<std::vector<v1::Member>> LeaseEnvServers(
      const std::string& env_id, int count) override {
    v1::LeaseEnvServersRequest request;
    request.set_member_id(self_.id());
    request.set_env_id(env_id);
    request.set_count(count);
    v1::LeaseEnvServersResponse response;
    RETURN_IF_ERROR(Short(&Stub::LeaseEnvServers, request, &response));
    return std::vector<v1::Member>(response.env_server().begin(),
                                   response.env_server().end());
  }

  absl::Status ReleaseEnvServers(
      const std::vector<std::string>& env_server_ids) override {
    v1::ReleaseEnvServersRequest request;
    request.set_member_id(self_.id());
    request.mutable_env_server_id()->Assign(env_server_ids.begin(),
                                            env_server_ids.end());
    v1::ReleaseEnvServersResponse response;
    return Short(&Stub::ReleaseEnvServers, request, &response);
  }

  absl::Status Leave(const std::string& reason) override {
    {
      // Heartbeats end here: one of them after it would mean coming back.
      MutexLock lock(&mu_);
      left_ = true;
      changed_.notify_all();
    }
    v1::LeaveRequest request;
    request.set_member_id(self_.id());
    request.set_incarnation(self_.incarnation());
    request.set_reason(reason);
    v1::LeaveResponse response;
    return Short(&Stub::Leave, request, &response);
  }

  absl::Status CloseRun(const std::string& status) override {
    v1::CloseRunRequest request;
    request.set_member_id(self_.id());
    request.set_status(status);
    v1::CloseRunResponse response;
    return Short(&Stub::CloseRun, request, &response);
  }

  absl::StatusOr<v1::Status> GetStatus() override {
    v1::Status response;
    RETURN_IF_ERROR(Short(&Stub::GetStatus, v1::GetStatusRequest(), &response));
    return response;
  }

  std::string run_id() const override { return run_id_; }

 private:
  std::shared_ptr<Stub> TheStub() const {
    MutexLock lock(&mu_);
    return stub_;
  }

  // A call that does not wait, tried again while the coordinator is lost or
  // does not know us (again).
  template <typename Request, typename Response>
  absl::Status Short(Method<Request, Response> method, const Request& request,
                     Response* response) {
    const absl::Time deadline = absl::Now() + kShortDeadline;
    absl::Duration pause = kFirstPause;
    while (true) {
      const absl::Duration left = deadline - absl::Now();
      const absl::Status status =
          CallOnce(TheStub().get(), method, request, std::min(left, kAttempt),
                   /*wait_for_ready=*/false, response);
      const bool again = IsLoss(status) || NeedsRegistration(status);
      if (!again || absl::Now() + pause >= deadline || !Pause(pause)) {
        return Explained(status);
      }
      pause = NextPause(pause);
    }
  }

  // A call that waits on the server, until `deadline`, and that goes on waiting
  // with the next coordinator if this one is lost. Ends early if `generation`
  // (0: none) is fenced.
  template <typename Request, typename Response>
  absl::Status Waiting(Method<Request, Response> method, uint64_t generation,
                       Request* request, absl::Time deadline,
                       const std::string& what, Response* response) {
    absl::Duration pause = kFirstPause;
    while (true) {
      const int64_t left_ms = RemainingMs(deadline);
      request->set_timeout_ms(left_ms);
      const absl::Status status = CallOnce(TheStub().get(), method, *request,
                                           absl::Milliseconds(left_ms) + kSlack,
                                           /*wait_for_ready=*/false, response);
      const bool again = IsLoss(status) || NeedsRegistration(status);
      if (!again) return status;
      RETURN_IF_ERROR(CheckOpen(generation));
      if (absl::Now() + pause >= deadline || !Pause(pause)) {
        if (absl::IsDeadlineExceeded(status)) return status;
        return absl::DeadlineExceededError(
            absl::StrCat(what, ": ", Explained(status).message()));
      }
      pause = NextPause(pause);
    }
  }

  // Waits, unless this object is going away.
  bool Pause(absl::Duration duration) {
    const absl::Time end = absl::Now() + duration;
    MutexLock lock(&mu_);
    while (!quit_ && !evicted_.has_value()) {
      const absl::Duration left = end - absl::Now();
      if (left <= absl::ZeroDuration()) return true;
      lock.WaitFor(&changed_, left);
    }
    return false;
  }

  // Whether the coordinator forgot us; the heartbeats' thread mends that.
  bool NeedsRegistration(const absl::Status& status) {
    if (!absl::IsNotFound(status)) return false;
    MutexLock lock(&mu_);
    if (left_ || evicted_.has_value()) return false;
    register_again_ = true;
    changed_.notify_all();
    return true;
  }

  absl::Status Explained(const absl::Status& status) const {
    if (!IsLoss(status)) return status;
    return absl::UnavailableError(
        absl::StrCat("the coordinator at ", address_,
                     " does not answer: ", status.message()));
  }

  absl::Status CheckOpen(uint64_t generation) const {
    MutexLock lock(&mu_);
    if (evicted_.has_value()) return *evicted_;
    if (generation == 0 || !IsOver(generation)) return absl::OkStatus();
    return absl::AbortedError(absl::StrCat(
        "generation ", generation, " is fenced: ", latest_.fence_reason()));
  }

  bool IsOver(uint64_t generation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return generation <= latest_.fenced_generation() || evicted_.has_value();
  }

  v1::ReportEvaluationRequest EvaluationRequest(
      const v1::Evaluation& evaluation) const {
    v1::ReportEvaluationRequest request;
    request.set_member_id(self_.id());
    *request.mutable_evaluation() = evaluation;
    return request;
  }

  // ---- The heartbeats' thread

  // Opens sessions, one after the other, and sends heartbeats into them.
  void KeepSession() {
    absl::Duration pause = kFirstPause;
    while (true) {
      std::shared_ptr<SessionClient> session = OpenSession();
      if (session == nullptr) return;
      const bool answered = SendHeartbeats(session.get());
      session->Cancel();
      AwaitEnd();
      pause = answered ? kFirstPause : NextPause(pause);
      if (!Pause(pause)) return;
    }
  }

  std::shared_ptr<SessionClient> OpenSession() {
    std::shared_ptr<Stub> stub;
    {
      MutexLock lock(&mu_);
      if (quit_ || left_ || evicted_.has_value()) return nullptr;
      session_over_ = false;
      heard_at_ = absl::Now();
      answered_ = false;
      stub = stub_;
    }
    return SessionClient::Start(
        stub.get(),
        {[this](const v1::Command& command) { OnCommand(command); },
         [this](const absl::Status& status) { OnSessionOver(status); }});
  }

  // Until the session ends. Returns whether it was ever answered.
  bool SendHeartbeats(SessionClient* session) {
    while (true) {
      v1::Heartbeat beat;
      {
        MutexLock lock(&mu_);
        if (quit_ || left_ || session_over_) return answered_;
        if (absl::Now() - heard_at_ >= patience_) {
          Reconnect();
          return answered_;
        }
        beat = MakeHeartbeat();
        beat_now_ = false;
      }
      session->Send(beat);
      AwaitNextBeat();
      if (!RegisterIfAsked()) return false;
    }
  }

  void AwaitNextBeat() {
    const absl::Time due = absl::Now() + heartbeat_;
    MutexLock lock(&mu_);
    while (!quit_ && !left_ && !session_over_ && !beat_now_ &&
           !register_again_) {
      const absl::Duration left = due - absl::Now();
      if (left <= absl::ZeroDuration()) return;
      lock.WaitFor(&changed_, left);
    }
  }

  void AwaitEnd() {
    MutexLock lock(&mu_);
    while (!session_over_) lock.Wait(&changed_);
  }

  // Sessions that are not answered may be on a connection that only seems
  // alive: the next one gets a new one.
  void Reconnect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    auto channel = MakeChannel(address_, credentials_);
    if (channel.ok()) stub_ = v1::CoordinatorService::NewStub(*channel);
  }

  v1::Heartbeat MakeHeartbeat() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    v1::Heartbeat beat = progress_;
    beat.set_member_id(self_.id());
    beat.set_incarnation(self_.incarnation());
    beat.set_generation(generation_);
    beat.set_phase_seconds(progress_.phase_seconds() +
                           absl::ToDoubleSeconds(absl::Now() - reported_at_));
    return beat;
  }

  // Returns false if a newer incarnation has taken this process's place.
  bool RegisterIfAsked() {
    {
      MutexLock lock(&mu_);
      if (!register_again_ || left_) return true;
      register_again_ = false;
    }
    v1::RegisterRequest request;
    *request.mutable_member() = self_;
    v1::RegisterResponse response;
    const absl::Status status =
        CallOnce(TheStub().get(), &Stub::Register, request, kAttempt,
                 /*wait_for_ready=*/false, &response);
    if (absl::IsAlreadyExists(status)) {
      Evict(status);
      return false;
    }
    if (!status.ok()) {  // the next answer asks again
      LOG_EVERY_N(WARNING, 10)
          << "cannot register again with the coordinator at " << address_
          << ", training goes on: " << status;
      return true;
    }
    LOG(INFO) << self_.id() << " registered again with the coordinator at "
              << address_;
    std::optional<v1::Evaluation> evaluation;
    {
      MutexLock lock(&mu_);
      evaluation = evaluation_;
      beat_now_ = true;
    }
    if (!evaluation.has_value()) return true;
    // The coordinator may be a new one that never heard of it.
    v1::ReportEvaluationResponse newest;
    CallOnce(TheStub().get(), &Stub::ReportEvaluation,
             EvaluationRequest(*evaluation), kAttempt,
             /*wait_for_ready=*/false, &newest)
        .IgnoreError();
    return true;
  }

  void Evict(const absl::Status& status) {
    LOG(ERROR) << self_.id() << " has no place in the run any more: " << status;
    MutexLock lock(&mu_);
    evicted_ = status;
    changed_.notify_all();
  }

  void OnCommand(const v1::Command& command) {
    MutexLock lock(&mu_);
    latest_ = Merged(latest_, command);
    latest_.set_register_again(false);
    register_again_ |= command.register_again();
    heard_at_ = absl::Now();
    answered_ = true;
    changed_.notify_all();
  }

  void OnSessionOver(const absl::Status& status) {
    if (absl::IsAlreadyExists(status)) Evict(status);
    MutexLock lock(&mu_);
    session_over_ = true;
    changed_.notify_all();
  }

  // ---- The alarms' thread

  // Stops what has to stop. Not on gRPC's threads, nor the heartbeats': what
  // hangs on a stop token may take its time.
  void RaiseAlarms() {
    while (true) {
      std::vector<std::stop_source> due;
      {
        MutexLock lock(&mu_);
        while (!quit_ && !AlarmsDue()) lock.Wait(&changed_);
        if (quit_) return;
        due = TakeAlarms();
      }
      for (std::stop_source& source : due) source.request_stop();
    }
  }

  bool AlarmsDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return (latest_.stop() && !run_stopped_.stop_requested()) ||
           (!fences_.empty() && IsOver(fences_.begin()->first));
  }

  std::vector<std::stop_source> TakeAlarms()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::vector<std::stop_source> due;
    if (latest_.stop()) due.push_back(run_stopped_);
    while (!fences_.empty() && IsOver(fences_.begin()->first)) {
      due.push_back(std::move(fences_.begin()->second));
      fences_.erase(fences_.begin());
    }
    return due;
  }

  const std::string address_;
  const RpcCredentials credentials_;
  const v1::Member self_;
  const std::string run_id_;
  const absl::Duration heartbeat_;
  // For an answer to a heartbeat. Short enough for another connection before
  // we are taken for dead.
  const absl::Duration patience_;
  std::stop_source run_stopped_;

  mutable Mutex mu_;
  std::condition_variable changed_;
  bool quit_ ABSL_GUARDED_BY(mu_) = false;
  bool left_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> evicted_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Stub> stub_ ABSL_GUARDED_BY(mu_);

  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;       // now; 0: joining
  uint64_t last_generation_ ABSL_GUARDED_BY(mu_) = 0;  // the newest ever
  v1::Heartbeat progress_ ABSL_GUARDED_BY(mu_);
  absl::Time reported_at_ ABSL_GUARDED_BY(mu_) = absl::Now();
  std::optional<v1::Evaluation> evaluation_ ABSL_GUARDED_BY(mu_);
  v1::Command latest_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::stop_source> fences_ ABSL_GUARDED_BY(mu_);

  bool session_over_ ABSL_GUARDED_BY(mu_) = true;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;  // this session
  absl::Time heard_at_ ABSL_GUARDED_BY(mu_);
  bool register_again_ ABSL_GUARDED_BY(mu_) = false;
  bool beat_now_ ABSL_GUARDED_BY(mu_) = false;

  std::thread beats_;  // last: they use the rest
  std::thread alarms_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorClient>> JoinRun(
    const std::string& address, const v1::Member& self,
    const RpcCredentials& credentials, absl::Duration timeout) {
  ASSIGN_OR_RETURN(auto channel, MakeChannel(address, credentials));
  std::shared_ptr<Stub> stub = v1::CoordinatorService::NewStub(channel);
  v1::RegisterRequest request;
  *request.mutable_member() = self;
  if (self.version().empty()) request.mutable_member()->set_version(Version());

  const absl::Time deadline = absl::Now() + timeout;
  absl::Duration pause = kFirstPause;
  while (true) {
    v1::RegisterResponse response;
    const absl::Duration left = deadline - absl::Now();
    const absl::Status status =
        CallOnce(stub.get(), &Stub::Register, request, std::min(left, kAttempt),
                 /*wait_for_ready=*/false, &response);
    if (status.ok()) {
      return std::make_unique<Client>(address, credentials, request.member(),
                                      std::move(stub), response);
    }
    if (absl::IsUnimplemented(status)) {
      return absl::FailedPreconditionError(
          absl::StrCat("what listens at ", address, " is no coordinator"));
    }
    if (!IsLoss(status)) return status;
    if (absl::Now() + pause >= deadline) {
      return absl::UnavailableError(absl::StrCat(
          "no coordinator answers at ", address, " within ",
          absl::FormatDuration(timeout), " (", status.message(),
          "): is it running there, and are address and TLS files right? "
          "`flotilla coordinator --listen ",
          address, "` starts one"));
    }
    absl::SleepFor(pause);
    pause = NextPause(pause);
  }
}

}  // namespace flotilla
