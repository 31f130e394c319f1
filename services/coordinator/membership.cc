#include "services/coordinator/membership.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "services/base/printable.h"
#include "services/coordinator/member_metadata.h"
#include "services/coordinator/unary_call.h"
#include "services/rpc/channel.h"

namespace flotilla {
namespace {

// How long a wait for the connection may keep a goodbye waiting.
constexpr absl::Duration kSlice = absl::Milliseconds(20);

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
  // Whoever closes the run knows best.
  if (!command.closed() && (known.preempted() || known.closed())) {
    command.set_preempted(known.preempted());
  }
  if (known.evaluation().round() > command.evaluation().round()) {
    *command.mutable_evaluation() = known.evaluation();
  }
  if (known.closed()) command.set_closed(true);
  if (command.failure().empty()) command.set_failure(known.failure());
  return command;
}

// A newer incarnation has it, or somebody with another secret.
bool HasLostItsPlace(const absl::Status& status) {
  return absl::IsAlreadyExists(status) || absl::IsPermissionDenied(status);
}

double FiniteOrZero(double value) { return std::isfinite(value) ? value : 0; }

}  // namespace

Membership::Membership(std::string address, RpcCredentials credentials,
                       v1::Member self, std::string secret,
                       std::shared_ptr<grpc::Channel> channel,
                       const v1::RegisterResponse& registered)
    : address_(std::move(address)),
      credentials_(std::move(credentials)),
      self_(std::move(self)),
      secret_(std::move(secret)),
      heartbeat_(absl::Milliseconds(registered.heartbeat_ms())),
      patience_(std::max(2 * heartbeat_,
                         absl::Milliseconds(registered.dead_after_ms()) / 2)),
      channel_(std::move(channel)),
      stub_(v1::CoordinatorService::NewStub(channel_)),
      beats_([this] { KeepSession(); }),
      alarms_([this] { RaiseAlarms(); }) {}

Membership::~Membership() {
  {
    MutexLock lock(&mu_);
    quit_ = true;
    changed_.notify_all();
  }
  beats_.join();
  alarms_.join();
}

std::shared_ptr<Membership::Stub> Membership::stub() const {
  MutexLock lock(&mu_);
  return stub_;
}

uint64_t Membership::LeaveGeneration() {
  MutexLock lock(&mu_);
  generation_ = 0;
  return last_generation_;
}

void Membership::EnterGeneration(uint64_t generation) {
  MutexLock lock(&mu_);
  last_generation_ = generation_ = generation;
}

void Membership::Remember(const v1::ReportEvaluationRequest& evaluation) {
  MutexLock lock(&mu_);
  evaluation_ = evaluation;
}

void Membership::Quit() {
  MutexLock lock(&mu_);
  left_ = true;
  changed_.notify_all();
}

std::stop_token Membership::Fence(uint64_t generation) {
  MutexLock lock(&mu_);
  if (!IsOver(generation)) return fences_[generation].get_token();
  std::stop_source over;
  over.request_stop();
  return over.get_token();
}

absl::Status Membership::CheckOpen(uint64_t generation) const {
  MutexLock lock(&mu_);
  if (evicted_.has_value()) return *evicted_;
  if (generation == 0 || !IsOver(generation)) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(
      "generation ", generation, " is fenced: ", latest_.fence_reason()));
}

void Membership::Report(const v1::Heartbeat& progress) {
  MutexLock lock(&mu_);
  // Whoever has finished may be gone before the next heartbeat is due; and while
  // rank 0 writes what the run came to, nobody joins.
  beat_now_ |=
      progress.phase() != progress_.phase() &&
      (progress.phase() == v1::FINISHED || progress.phase() == v1::SAVING);
  // A person waits for it.
  beat_now_ |= progress.change_size() > progress_.change_size();
  progress_ = progress;
  reported_at_ = SteadyNow();
  if (beat_now_) changed_.notify_all();
}

v1::Command Membership::Latest() const {
  MutexLock lock(&mu_);
  return latest_;
}

bool Membership::Pause(absl::Duration duration) {
  const absl::Time end = SteadyNow() + duration;
  std::shared_ptr<grpc::Channel> channel;
  {
    MutexLock lock(&mu_);
    channel = channel_;
  }
  const bool connected = channel->GetState(false) == GRPC_CHANNEL_READY;
  while (true) {
    const absl::Duration left = end - SteadyNow();
    {
      MutexLock lock(&mu_);
      if (quit_ || evicted_.has_value()) return false;
      if (left <= absl::ZeroDuration()) return true;
      if (connected) {
        lock.WaitFor(&changed_, left);
        continue;
      }
    }
    if (AwaitConnected(channel.get(), std::min(left, kSlice))) return true;
  }
}

bool Membership::NeedsRegistration(const absl::Status& status) {
  if (!absl::IsNotFound(status)) return false;
  MutexLock lock(&mu_);
  if (left_ || evicted_.has_value()) return false;
  register_again_ = true;
  changed_.notify_all();
  return true;
}

bool Membership::IsOver(uint64_t generation) const {
  return generation <= latest_.fenced_generation() || evicted_.has_value();
}

// ---- The heartbeats' thread

// Opens sessions, one after the other, and sends heartbeats into them.
void Membership::KeepSession() {
  absl::Duration pause = kFirstPause;
  while (true) {
    std::unique_ptr<SessionClient> session = OpenSession();
    if (session == nullptr) return;
    const bool answered = SendHeartbeats(session.get());
    session.reset();
    pause = answered ? kFirstPause : NextPause(pause);
    if (!Pause(pause)) return;
  }
}

std::unique_ptr<SessionClient> Membership::OpenSession() {
  std::shared_ptr<Stub> stub;
  {
    MutexLock lock(&mu_);
    if (quit_ || left_ || evicted_.has_value()) return nullptr;
    session_over_ = false;
    heard_at_ = SteadyNow();
    answered_ = false;
    stub = stub_;
  }
  return SessionClient::Start(
      std::move(stub),
      {[this](const v1::Command& command) { OnCommand(command); },
       [this](const absl::Status& status) { OnSessionOver(status); }});
}

// Until the session ends. Returns whether it was ever answered.
bool Membership::SendHeartbeats(SessionClient* session) {
  while (true) {
    v1::Heartbeat beat;
    {
      MutexLock lock(&mu_);
      if (quit_ || left_ || session_over_) return answered_;
      if (SteadyNow() - heard_at_ >= patience_) {
        Reconnect();
        return answered_;
      }
      beat = MakeHeartbeat();
      beat_now_ = false;
    }
    session->Send(beat);
    AwaitNextBeat();
    if (!RegisterIfAsked()) return false;
    TellEvaluationAgain();
  }
}

void Membership::AwaitNextBeat() {
  const absl::Time due = SteadyNow() + heartbeat_;
  MutexLock lock(&mu_);
  while (!quit_ && !left_ && !session_over_ && !beat_now_ && !register_again_) {
    const absl::Duration left = due - SteadyNow();
    if (left <= absl::ZeroDuration()) return;
    lock.WaitFor(&changed_, left);
  }
}

// Sessions that are not answered may be on a connection that only seems alive:
// the next one gets a new one.
void Membership::Reconnect() {
  auto channel =
      MakeChannel(address_, credentials_, MemberMetadata(self_.id(), secret_));
  if (!channel.ok()) return;
  channel_ = *std::move(channel);
  stub_ = v1::CoordinatorService::NewStub(channel_);
}

v1::Heartbeat Membership::MakeHeartbeat() {
  v1::Heartbeat beat = progress_;
  beat.set_member_id(self_.id());
  beat.set_incarnation(self_.incarnation());
  beat.set_generation(generation_);
  // The coordinator cannot parse what is not UTF-8, as a path in an error may
  // not be.
  beat.set_trouble(PrintableText(beat.trouble()));
  beat.set_started_over(PrintableText(beat.started_over()));
  // The coordinator refuses what is not finite; returns may be.
  beat.set_mean_return(FiniteOrZero(progress_.mean_return()));
  beat.set_steps_per_second(FiniteOrZero(progress_.steps_per_second()));
  beat.set_phase_seconds(progress_.phase_seconds() +
                         absl::ToDoubleSeconds(SteadyNow() - reported_at_));
  return beat;
}

// Returns false if a newer incarnation has taken this process's place.
bool Membership::RegisterIfAsked() {
  {
    MutexLock lock(&mu_);
    if (!register_again_ || left_) return true;
    register_again_ = false;
  }
  v1::RegisterRequest request;
  *request.mutable_member() = self_;
  v1::RegisterResponse response;
  const absl::Status status =
      CallOnce(stub().get(), &Stub::Register, request, kAttempt,
               /*wait_for_ready=*/false, &response);
  if (HasLostItsPlace(status)) {
    Evict(status);
    return false;
  }
  if (!status.ok()) {  // the next answer asks again
    LOG_EVERY_N(WARNING, 10) << "cannot register again with the coordinator at "
                             << address_ << ", training goes on: " << status;
    return true;
  }
  LOG(INFO) << self_.id() << " registered again with the coordinator at "
            << address_;
  MutexLock lock(&mu_);
  tell_again_ = evaluation_.has_value();
  beat_now_ = true;
  return true;
}

// The coordinator may be a new one that never heard of it. A call that is lost is
// made again with the next heartbeat, which it must not hold up for long.
void Membership::TellEvaluationAgain() {
  v1::ReportEvaluationRequest evaluation;
  {
    MutexLock lock(&mu_);
    if (quit_ || left_ || session_over_ || !std::exchange(tell_again_, false)) {
      return;
    }
    evaluation = *evaluation_;
  }
  v1::ReportEvaluationResponse newest;
  const absl::Status told =
      CallOnce(stub().get(), &Stub::ReportEvaluation, evaluation,
               std::clamp(heartbeat_, absl::Milliseconds(500), kAttempt),
               /*wait_for_ready=*/false, &newest);
  MutexLock lock(&mu_);
  tell_again_ |= IsLoss(told);
}

void Membership::Evict(const absl::Status& status) {
  LOG(ERROR) << self_.id() << " has no place in the run any more: " << status;
  MutexLock lock(&mu_);
  evicted_ = status;
  changed_.notify_all();
}

void Membership::OnCommand(const v1::Command& command) {
  MutexLock lock(&mu_);
  latest_ = Merged(latest_, command);
  latest_.set_register_again(false);
  register_again_ |= command.register_again();
  heard_at_ = SteadyNow();
  answered_ = true;
  changed_.notify_all();
}

void Membership::OnSessionOver(const absl::Status& status) {
  if (HasLostItsPlace(status)) Evict(status);
  MutexLock lock(&mu_);
  session_over_ = true;
  changed_.notify_all();
}

// ---- The alarms' thread

// Stops what has to stop. Not on gRPC's threads, nor the heartbeats': what
// hangs on a stop token may take its time.
void Membership::RaiseAlarms() {
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

bool Membership::AlarmsDue() const {
  return (latest_.stop() && !run_stopped_.stop_requested()) ||
         (!fences_.empty() && IsOver(fences_.begin()->first));
}

std::vector<std::stop_source> Membership::TakeAlarms() {
  std::vector<std::stop_source> due;
  if (latest_.stop()) due.push_back(run_stopped_);
  while (!fences_.empty() && IsOver(fences_.begin()->first)) {
    due.push_back(std::move(fences_.begin()->second));
    fences_.erase(fences_.begin());
  }
  return due;
}

}  // namespace flotilla
