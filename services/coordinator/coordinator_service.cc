#include "services/coordinator/coordinator_service.h"

#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/base/atomic_file.h"
#include "services/base/printable.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/coordinator/caller.h"
#include "services/coordinator/journal.h"
#include "services/coordinator/limits.h"
#include "services/rpc/grpc_status.h"
#include "services/rpc/roles.h"

namespace flotilla {
namespace {

// How often time is looked at, and so how late a deadline may be noticed.
constexpr absl::Duration kTick = absl::Milliseconds(50);

// What a call that waits may ask for at most.
constexpr absl::Duration kLongestKeyWait = absl::Minutes(10);
constexpr absl::Duration kLongestJoin = absl::Hours(1);
constexpr absl::Duration kLongestSet = absl::Hours(1);

// How long who gave up waiting for a generation still counts as waiting.
constexpr absl::Duration kAskAgain = absl::Seconds(1);

// After a journal that could not be written.
constexpr absl::Duration kJournalAgain = absl::Seconds(1);

absl::Status ShuttingDown() {
  return absl::UnavailableError("the coordinator is shutting down");
}

std::string RandomEpoch() {
  std::random_device device;
  return absl::StrFormat("%08x%08x", device(), device());
}

CoordinatorServiceOptions WithEpoch(CoordinatorServiceOptions options) {
  if (options.roster.epoch.empty()) options.roster.epoch = RandomEpoch();
  return options;
}

absl::Duration Capped(int64_t timeout_ms, absl::Duration longest) {
  return std::clamp(absl::Milliseconds(timeout_ms), absl::ZeroDuration(),
                    longest);
}

grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* context,
                                const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorService>> CoordinatorService::Make(
    const CoordinatorServiceOptions& options) {
  std::optional<RosterState> earlier;
  if (!options.journal.empty()) {
    ASSIGN_OR_RETURN(earlier, ReadJournal(options.journal));
  }
  const std::string& run_id = options.roster.run_id;
  if (earlier.has_value() && !run_id.empty() &&
      earlier->run.run_id() != run_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("the journal \"", options.journal, "\" is that of run \"",
                     earlier->run.run_id(), "\", not \"", run_id,
                     "\": name another file, or delete it"));
  }
  std::unique_ptr<CoordinatorService> service(
      new CoordinatorService(WithEpoch(options)));
  if (earlier.has_value()) {
    LOG(INFO) << "taking over run " << earlier->run.run_id()
              << " at generation " << earlier->command.generation();
    service->takes_over_ = true;
    service->roster_.Restore(*earlier, SteadyNow());
  }
  service->told_ = service->roster_.Command();
  return service;
}

absl::Status CoordinatorService::Start() {
  const absl::Status written = WriteJournal(roster_.State());
  if (!takes_over_) RETURN_IF_ERROR(written);  // otherwise Propagate says it
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

CoordinatorService::CoordinatorService(const CoordinatorServiceOptions& options)
    : options_(options), roster_(options.roster, SteadyNow()) {}

CoordinatorService::~CoordinatorService() {
  Shutdown();
  {
    MutexLock lock(&mu_);
    quit_ = true;
    woken_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

// Who has not heard of the run's end would look for the next coordinator.
void CoordinatorService::EndSession(SessionStream* session) {
  if (roster_.Command().closed()) {
    session->Conclude(ShuttingDown());
  } else {
    session->Close(ShuttingDown());
  }
}

void CoordinatorService::Shutdown() {
  if (shut_down_.exchange(true)) return;
  std::list<std::shared_ptr<StatusStream>> watchers;
  {
    MutexLock lock(&mu_);
    watchers = watchers_;
  }
  for (const auto& watcher : watchers) watcher->Close(ShuttingDown());
  for (const auto& session : AllSessions()) EndSession(session.get());
  kv_.FailAll(ShuttingDown());
  Wake();  // for those who join
}

v1::Status CoordinatorService::CurrentStatus() {
  return roster_.GetStatus(SteadyNow());
}

// ---- Members

grpc::ServerUnaryReactor* CoordinatorService::Register(
    grpc::CallbackServerContext* context, const v1::RegisterRequest* request,
    v1::RegisterResponse* response) {
  const v1::Member& member = request->member();
  const absl::Status allowed = CheckRole(
      *context->auth_context(),
      {member.role() == v1::ENV_SERVER ? kEnvServerRole : kLearnerRole},
      absl::StrCat("registering \"", PrintableLine(member.id(), 64), "\" as ",
                   v1::Role_Name(member.role())));
  if (!allowed.ok()) return Reply(context, allowed);
  auto result = roster_.Register(member, CallerOf(*context).key, SteadyNow());
  if (result.ok()) *response = *std::move(result);
  Wake();
  return Reply(context, result.status());
}

grpc::ServerUnaryReactor* CoordinatorService::ReportFailure(
    grpc::CallbackServerContext* context,
    const v1::ReportFailureRequest* request,
    v1::ReportFailureResponse* response) {
  const absl::Status status =
      roster_.ReportFailure(*request, CallerOf(*context).key, SteadyNow());
  response->set_generation(roster_.Command().generation());
  Wake();
  return Reply(context, status);
}

grpc::ServerUnaryReactor* CoordinatorService::Leave(
    grpc::CallbackServerContext* context, const v1::LeaveRequest* request,
    v1::LeaveResponse*) {
  const absl::Status status =
      roster_.Leave(*request, CallerOf(*context).key, SteadyNow());
  Wake();
  return Reply(context, status);
}

grpc::ServerUnaryReactor* CoordinatorService::JoinGeneration(
    grpc::CallbackServerContext* context,
    const v1::JoinGenerationRequest* request, v1::Assignment* response) {
  if (shut_down_) return Reply(context, ShuttingDown());
  const auto ticket =
      roster_.Join(*request, CallerOf(*context).key, SteadyNow());
  if (!ticket.ok()) return Reply(context, ticket.status());

  Joiner joiner = {ParkedCall::Make(), *request, response, *ticket,
                   SteadyNow() + Capped(request->timeout_ms(), kLongestJoin)};
  joiner.call->OnAbandoned([this, id = request->member_id(), ticket = *ticket] {
    roster_.GiveUpJoin(id, ticket, SteadyNow(), SteadyNow());
    Wake();
  });
  ParkedCall* const reactor = joiner.call.get();
  {
    MutexLock lock(&mu_);
    joiners_.push_back(std::move(joiner));
  }
  Wake();
  return reactor;
}

grpc::ServerBidiReactor<v1::Heartbeat, v1::Command>*
CoordinatorService::Session(grpc::CallbackServerContext* context) {
  const std::shared_ptr<SessionStream> stream =
      SessionStream::Start(this, context);
  {
    MutexLock lock(&mu_);
    sessions_.insert(stream);
  }
  if (shut_down_) EndSession(stream.get());
  return stream.get();
}

absl::StatusOr<bool> CoordinatorService::OnHeartbeat(
    const std::shared_ptr<SessionStream>& stream,
    const v1::Heartbeat& heartbeat) {
  ASSIGN_OR_RETURN(const v1::Command command,
                   roster_.Beat(heartbeat, stream->key(), SteadyNow()));
  std::shared_ptr<SessionStream> replaced;
  {
    MutexLock lock(&mu_);
    std::shared_ptr<SessionStream>& current =
        session_of_[heartbeat.member_id()];
    if (current != stream) replaced = std::exchange(current, stream);
  }
  if (replaced != nullptr) {
    replaced->Close(absl::AbortedError(
        absl::StrCat(heartbeat.member_id(), " has opened a newer session")));
  }
  if (roster_.command_version() != propagated_) Wake();
  return command.register_again();
}

void CoordinatorService::OnSessionOver(
    const std::shared_ptr<SessionStream>& stream) {
  const std::string id = stream->member_id();
  {
    MutexLock lock(&mu_);
    sessions_.erase(stream);
    const auto current = session_of_.find(id);
    if (current == session_of_.end() || current->second != stream) return;
    session_of_.erase(current);
  }
  roster_.SessionBroken(id, stream->incarnation());
}

absl::Time CoordinatorService::Now() { return SteadyNow(); }

// ---- Key-value store

absl::Status CoordinatorService::CheckKvCaller(
    const grpc::CallbackServerContext& context, uint64_t generation) const {
  const Caller caller = CallerOf(context);
  return roster_.CheckInGeneration(generation, caller.member_id, caller.key);
}

grpc::ServerUnaryReactor* CoordinatorService::KvSet(
    grpc::CallbackServerContext* context, const v1::KvSetRequest* request,
    v1::KvSetResponse*) {
  absl::Status status = CheckKvCaller(*context, request->generation());
  if (status.ok()) {
    status = kv_.Set(request->generation(), request->key(), request->value());
  }
  return Reply(context, status);
}

grpc::ServerUnaryReactor* CoordinatorService::KvGet(
    grpc::CallbackServerContext* context, const v1::KvGetRequest* request,
    v1::KvGetResponse* response) {
  const absl::Status status = CheckKvCaller(*context, request->generation());
  if (!status.ok()) return Reply(context, status);
  return AwaitKeys(
      request->generation(), {request->key()}, request->timeout_ms(),
      [response](const std::string& value) { response->set_value(value); });
}

grpc::ServerUnaryReactor* CoordinatorService::KvWait(
    grpc::CallbackServerContext* context, const v1::KvWaitRequest* request,
    v1::KvWaitResponse*) {
  const absl::Status status = CheckKvCaller(*context, request->generation());
  if (!status.ok()) return Reply(context, status);
  return AwaitKeys(request->generation(),
                   {request->key().begin(), request->key().end()},
                   request->timeout_ms(), [](const std::string&) {});
}

grpc::ServerUnaryReactor* CoordinatorService::AwaitKeys(
    uint64_t generation, std::vector<std::string> keys, int64_t timeout_ms,
    std::function<void(const std::string&)> fill) {
  const std::shared_ptr<ParkedCall> call = ParkedCall::Make();
  const uint64_t waiter = kv_.Wait(
      generation, std::move(keys),
      SteadyNow() + Capped(timeout_ms, kLongestKeyWait),
      [call, fill = std::move(fill)](const absl::StatusOr<std::string>& value) {
        call->Answer(value.status(), [&] { fill(*value); });
      });
  call->OnAbandoned([this, waiter] { kv_.Cancel(waiter); });
  if (shut_down_) kv_.FailAll(ShuttingDown());
  return call.get();
}

grpc::ServerUnaryReactor* CoordinatorService::KvAdd(
    grpc::CallbackServerContext* context, const v1::KvAddRequest* request,
    v1::KvAddResponse* response) {
  absl::Status status = CheckKvCaller(*context, request->generation());
  if (status.ok()) {
    const auto sum =
        kv_.Add(request->generation(), request->key(), request->amount());
    if (sum.ok()) response->set_value(*sum);
    status = sum.status();
  }
  return Reply(context, status);
}

grpc::ServerUnaryReactor* CoordinatorService::KvCompareSet(
    grpc::CallbackServerContext* context,
    const v1::KvCompareSetRequest* request,
    v1::KvCompareSetResponse* response) {
  absl::Status status = CheckKvCaller(*context, request->generation());
  if (status.ok()) {
    auto value = kv_.CompareSet(request->generation(), request->key(),
                                request->expected(), request->desired());
    status = value.status();
    if (value.ok()) response->set_value(*std::move(value));
  }
  return Reply(context, status);
}

grpc::ServerUnaryReactor* CoordinatorService::KvCheck(
    grpc::CallbackServerContext* context, const v1::KvCheckRequest* request,
    v1::KvCheckResponse* response) {
  absl::Status status = CheckKvCaller(*context, request->generation());
  if (status.ok()) {
    const auto all = kv_.Check(request->generation(),
                               {request->key().begin(), request->key().end()});
    if (all.ok()) response->set_all_present(*all);
    status = all.status();
  }
  return Reply(context, status);
}

grpc::ServerUnaryReactor* CoordinatorService::KvDelete(
    grpc::CallbackServerContext* context, const v1::KvDeleteRequest* request,
    v1::KvDeleteResponse* response) {
  absl::Status status = CheckKvCaller(*context, request->generation());
  if (status.ok()) {
    const auto deleted = kv_.Delete(request->generation(), request->key());
    if (deleted.ok()) response->set_deleted(*deleted);
    status = deleted.status();
  }
  return Reply(context, status);
}

grpc::ServerUnaryReactor* CoordinatorService::KvCount(
    grpc::CallbackServerContext* context, const v1::KvCountRequest* request,
    v1::KvCountResponse* response) {
  absl::Status status = CheckKvCaller(*context, request->generation());
  if (status.ok()) {
    const auto count = kv_.Count(request->generation());
    if (count.ok()) response->set_count(*count);
    status = count.status();
  }
  return Reply(context, status);
}

// ---- The run

grpc::ServerUnaryReactor* CoordinatorService::ReportEvaluation(
    grpc::CallbackServerContext* context,
    const v1::ReportEvaluationRequest* request,
    v1::ReportEvaluationResponse* response) {
  auto newest = roster_.ReportEvaluation(*request, CallerOf(*context).key);
  if (newest.ok()) *response->mutable_newest() = *std::move(newest);
  Wake();
  return Reply(context, newest.status());
}

grpc::ServerUnaryReactor* CoordinatorService::ReportCollected(
    grpc::CallbackServerContext* context,
    const v1::ReportCollectedRequest* request, v1::ReportCollectedResponse*) {
  const absl::Status status =
      roster_.ReportCollected(*request, CallerOf(*context).key);
  if (roster_.command_version() != propagated_) Wake();
  return Reply(context, status);
}

grpc::ServerUnaryReactor* CoordinatorService::LeaseEnvServers(
    grpc::CallbackServerContext* context,
    const v1::LeaseEnvServersRequest* request,
    v1::LeaseEnvServersResponse* response) {
  auto servers = roster_.LeaseEnvServers(*request, CallerOf(*context).key);
  if (servers.ok()) {
    response->mutable_env_server()->Assign(servers->begin(), servers->end());
    for (const v1::Member& server : *servers) {
      if (server.dials()) PushTo(server.id());
    }
  }
  return Reply(context, servers.status());
}

grpc::ServerUnaryReactor* CoordinatorService::ReleaseEnvServers(
    grpc::CallbackServerContext* context,
    const v1::ReleaseEnvServersRequest* request,
    v1::ReleaseEnvServersResponse*) {
  return Reply(context,
               roster_.ReleaseEnvServers(*request, CallerOf(*context).key));
}

grpc::ServerUnaryReactor* CoordinatorService::CloseRun(
    grpc::CallbackServerContext* context, const v1::CloseRunRequest* request,
    v1::CloseRunResponse*) {
  const absl::Status status =
      roster_.CloseRun(*request, CallerOf(*context).key);
  Wake();
  return Reply(context, status);
}

grpc::ServerUnaryReactor* CoordinatorService::Stop(
    grpc::CallbackServerContext* context, const v1::StopRequest* request,
    v1::StopResponse* response) {
  response->set_state(roster_.Stop(request->reason(), request->preempted()));
  Wake();
  return Reply(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* CoordinatorService::Set(
    grpc::CallbackServerContext* context, const v1::SetRequest* request,
    v1::SetResponse* response) {
  if (shut_down_) return Reply(context, ShuttingDown());
  const auto ticket = roster_.Set(*request);
  if (!ticket.ok()) return Reply(context, ticket.status());
  Setter setter = {ParkedCall::Make(), response, *ticket,
                   SteadyNow() + Capped(request->timeout_ms(), kLongestSet)};
  ParkedCall* const reactor = setter.call.get();
  {
    MutexLock lock(&mu_);
    setters_.push_back(std::move(setter));
  }
  Wake();
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::GetStatus(
    grpc::CallbackServerContext* context, const v1::GetStatusRequest*,
    v1::Status* response) {
  *response = CurrentStatus();
  return Reply(context, absl::OkStatus());
}

grpc::ServerWriteReactor<v1::Status>* CoordinatorService::WatchStatus(
    grpc::CallbackServerContext*, const v1::WatchStatusRequest* request) {
  const std::shared_ptr<StatusStream> stream =
      StatusStream::Start(absl::Milliseconds(request->interval_ms()));
  bool full = false;
  {
    MutexLock lock(&mu_);
    watchers_.remove_if([](const auto& watcher) { return watcher->over(); });
    full = watchers_.size() >= kMaxWatchers;
    if (!full) watchers_.push_back(stream);
  }
  if (full) {
    stream->Close(absl::ResourceExhaustedError(
        absl::StrCat(kMaxWatchers,
                     " watch this run's status already, the most that may; "
                     "ask with GetStatus, or try again later")));
  }
  if (shut_down_) stream->Close(ShuttingDown());
  Wake();
  return stream.get();
}

// ---- The thread

void CoordinatorService::Wake() {
  MutexLock lock(&mu_);
  work_ = true;
  woken_.notify_one();
}

void CoordinatorService::Run() {
  while (true) {
    {
      MutexLock lock(&mu_);
      if (!work_ && !quit_) lock.WaitFor(&woken_, kTick);
      if (quit_) break;
      work_ = false;
    }
    roster_.Tick(SteadyNow());
    Propagate();
    AnswerJoiners();
    AnswerSetters();
    kv_.Expire(SteadyNow());
    if (SteadyNow() >= next_sweep_) DropSilentSessions();
    SendStatus();
  }
  // A call may have been answered since.
  journal_again_ = absl::InfinitePast();
  Propagate();
}

// Makes a change of the roster known. The journal comes first: a generation
// that somebody has heard of must be in it.
void CoordinatorService::Propagate() {
  const uint64_t state_version = roster_.state_version();
  const uint64_t version = roster_.command_version();
  // What a full disk did not take is written once it has room again.
  const bool to_journal =
      state_version != journaled_ &&
      (state_version != unjournaled_ || SteadyNow() >= journal_again_);
  if (!to_journal && version == propagated_) return;
  const RosterState state = roster_.State();
  const absl::Status written = WriteJournal(state);
  if (written.ok()) {
    LOG_IF(INFO, unjournaled_ > journaled_) << "the journal is written again";
    journaled_ = state_version;
  } else {
    LOG_IF(ERROR, state_version != unjournaled_)
        << written << "; going on without a journal until it can be written";
    unjournaled_ = state_version;
    journal_again_ = SteadyNow() + kJournalAgain;
  }
  if (version == propagated_) return;
  Tell(state.command);
  kv_.Fence(state.command.fenced_generation(), state.command.fence_reason());
  propagated_ = version;
  for (const auto& session : AllSessions()) session->Push();
}

// To the log.
void CoordinatorService::Tell(const v1::Command& command) {
  if (command.fenced_generation() > told_.fenced_generation()) {
    LOG(WARNING) << "generation " << command.fenced_generation()
                 << " is fenced: " << command.fence_reason();
  }
  if (command.generation() > told_.generation()) {
    LOG(INFO) << "generation " << command.generation() << " has formed";
  }
  if (command.stop() && !told_.stop()) {
    LOG(INFO) << "told to stop: " << command.stop_reason();
  }
  for (int i = told_.change_size(); i < command.change_size(); ++i) {
    LOG(INFO) << "asked to change "
              << absl::StrJoin(command.change(i).override(), " ");
  }
  if (command.closed() && !told_.closed()) {
    LOG(INFO) << (command.failure().empty() ? "the run is over"
                                            : command.failure());
  }
  told_ = command;
}

absl::Status CoordinatorService::WriteJournal(const RosterState& state) {
  if (options_.journal.empty()) return absl::OkStatus();
  std::string text = FormatJournal(state);
  if (text == journal_text_) return absl::OkStatus();
  RETURN_IF_ERROR(WriteFileAtomically(options_.journal, text));
  journal_text_ = std::move(text);
  return absl::OkStatus();
}

void CoordinatorService::AnswerJoiners() {
  std::list<Joiner> joiners;
  {
    MutexLock lock(&mu_);
    joiners.swap(joiners_);
  }
  const absl::Time now = SteadyNow();
  joiners.remove_if([&](const Joiner& joiner) {
    if (joiner.call->answered()) return true;
    if (shut_down_) return joiner.call->Answer(ShuttingDown());
    auto place = roster_.JoinResult(joiner.request);
    if (!place.ok()) return joiner.call->Answer(place.status());
    // One that formed since Propagate is told next time.
    const bool known =
        place->has_value() && (*place)->generation() <= told_.generation();
    if (known) {
      return joiner.call->Answer(absl::OkStatus(),
                                 [&] { joiner.response->Swap(&**place); });
    }
    if (place->has_value() || now < joiner.deadline) return false;
    const std::string why = roster_.WhyNotFormed();
    roster_.GiveUpJoin(joiner.request.member_id(), joiner.ticket,
                       now + kAskAgain, now);
    return joiner.call->Answer(absl::DeadlineExceededError(
        absl::StrCat("no generation has formed: ", why)));
  });
  MutexLock lock(&mu_);
  joiners_.splice(joiners_.begin(), joiners);
}

void CoordinatorService::AnswerSetters() {
  std::list<Setter> setters;
  {
    MutexLock lock(&mu_);
    setters.swap(setters_);
  }
  const absl::Time now = SteadyNow();
  setters.remove_if([&](const Setter& setter) {
    if (setter.call->answered()) return true;
    if (shut_down_) return setter.call->Answer(ShuttingDown());
    const std::optional<v1::Change> change = roster_.FindChange(setter.ticket);
    if (!change.has_value()) {
      return setter.call->Answer(absl::AbortedError(
          "the change was lost: the ranks had agreed on too many others"));
    }
    if (!change->refused().empty()) {
      return setter.call->Answer(absl::InvalidArgumentError(change->refused()));
    }
    if (change->update() > 0) {
      return setter.call->Answer(absl::OkStatus(), [&] {
        *setter.response->mutable_change() = *change;
      });
    }
    if (now < setter.deadline) return false;
    return setter.call->Answer(absl::DeadlineExceededError(
        "the ranks have not agreed yet on the update from which on it holds; "
        "they still may (`flotilla status` shows it)"));
  });
  MutexLock lock(&mu_);
  setters_.splice(setters_.begin(), setters);
}

// Ends the sessions of whom nothing is heard. Who comes back opens another.
void CoordinatorService::DropSilentSessions() {
  const absl::Time now = SteadyNow();
  const absl::Duration limit = options_.roster.dead_after;
  next_sweep_ = now + limit / 10;
  for (const auto& session : AllSessions()) {
    const absl::Duration silence = now - session->last_heard();
    if (silence >= 2 * limit) {
      session->Cut();  // it does not read either
    } else if (silence >= limit) {
      session->Close(absl::DeadlineExceededError(absl::StrFormat(
          "no heartbeat for %.1f s", absl::ToDoubleSeconds(silence))));
    }
  }
}

void CoordinatorService::SendStatus() {
  std::list<std::shared_ptr<StatusStream>> watchers;
  {
    MutexLock lock(&mu_);
    watchers_.remove_if([](const auto& watcher) { return watcher->over(); });
    watchers = watchers_;
  }
  std::shared_ptr<const v1::Status> status;  // one for all
  const absl::Time now = SteadyNow();
  const uint64_t version = roster_.status_version();
  for (const auto& watcher : watchers) {
    if (!watcher->Wants(version, now)) continue;
    if (status == nullptr) {
      status = std::make_shared<v1::Status>(roster_.GetStatus(now));
    }
    watcher->Send(status, version, now);
  }
}

// What it is told has changed, and for it alone.
void CoordinatorService::PushTo(const std::string& member_id) {
  std::shared_ptr<SessionStream> session;
  {
    MutexLock lock(&mu_);
    const auto found = session_of_.find(member_id);
    if (found == session_of_.end()) return;
    session = found->second;
  }
  session->Push();
}

CoordinatorService::Sessions CoordinatorService::AllSessions() {
  MutexLock lock(&mu_);
  return Sessions(sessions_.begin(), sessions_.end());
}

}  // namespace flotilla
