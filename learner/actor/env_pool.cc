#include "learner/actor/env_pool.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "google/protobuf/util/message_differencer.h"
#include "services/base/member_state.h"
#include "services/base/printable.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"

namespace flotilla {
namespace {

constexpr absl::Duration kBudgetWindow = absl::Minutes(10);
constexpr absl::Duration kRateWindow = absl::Seconds(1);
// Batches with rows to be refused that a leased server may send in that time.
constexpr size_t kMaxRefused = 10;

// Notes that something happened `now`, and how often in kBudgetWindow.
size_t CountRecent(std::deque<absl::Time>* times, absl::Time now) {
  times->push_back(now);
  while (times->front() < now - kBudgetWindow) times->pop_front();
  return times->size();
}

}  // namespace

absl::StatusOr<std::unique_ptr<EnvPool>> EnvPool::Start(
    EnvWorkerOptions options, uint64_t first_worker_id, uint64_t incarnation,
    std::stop_token stop) {
  std::unique_ptr<EnvPool> pool(new EnvPool);
  const std::stop_callback close(
      stop, [raw = pool.get()] { raw->closing_.request_stop(); });
  const v1::EnvConfig& env = options.env;
  pool->options_ = options;
  pool->failed_rows_ = std::make_unique<FailedRows>(env);
  pool->rows_per_worker_ = env.num_envs() / env.num_workers();
  pool->rows_per_slot_ = pool->rows_per_worker_ / env.groups();
  pool->last_incarnation_ = incarnation;
  pool->workers_.resize(env.num_workers());
  pool->steps_ = std::vector<std::atomic<int64_t>>(env.num_workers());
  for (int w = 0; w < env.num_workers(); ++w) {
    pool->workers_[w].id = first_worker_id + w;
    pool->workers_[w].incarnation = incarnation;
    pool->workers_[w].remote = w >= env.num_workers() - env.remote_workers();
    pool->BeginReplacement(&pool->workers_[w], absl::ZeroDuration());
    for (int g = 0; g < env.groups(); ++g) {
      Slot slot;
      slot.worker = w;
      slot.group = g;
      pool->slots_.push_back(std::move(slot));
    }
  }
  for (Worker& worker : pool->workers_) {
    if (worker.remote) {
      // Those of other hosts may come later, but for one to learn the spaces.
      if (pool->spec_.observation_size() > 0) continue;
      if (worker.replacement.wait_for(absl::ToChronoMilliseconds(
              options.remote_timeout)) != std::future_status::ready) {
        return absl::DeadlineExceededError(absl::StrCat(
            "no env server came in ",
            absl::FormatDuration(options.remote_timeout),
            ", and env.remote_workers leaves no local one; on a host with "
            "cores to spare, run: flotilla serve-envs --coordinator with this "
            "run's address",
            options.dial == nullptr ? ""
                                    : ", or have one dial in "
                                      "(flotilla_gym.dial)"));
      }
    }
    worker.replacement.wait();
    const absl::Status up = pool->TakeReplacement(&worker);
    if (stop.stop_requested()) return absl::CancelledError("told to stop");
    RETURN_IF_ERROR(up);
  }
  return pool;
}

EnvPool::~EnvPool() {
  closing_.request_stop();
  for (Worker& worker : workers_) {
    if (worker.replacement.valid()) {
      absl::StatusOr<EnvWorker> late = worker.replacement.get();
      if (late.ok()) worker.up = *std::move(late);
    }
    if (worker.up.stream != nullptr) worker.up.stream->Cancel();
    if (worker.up.process != nullptr) worker.up.process->Signal(SIGTERM);
    Release(&worker);
  }
}

void EnvPool::Record(const GameTapes::Options& recording) {
  tapes_ = std::make_unique<GameTapes>(recording, spec_, options_.seed,
                                       num_slots(), rows_per_slot_);
}

void EnvPool::SetGameSink(GameSink* sink) {
  if (tapes_ != nullptr) tapes_->set_sink(sink);
}

void EnvPool::Release(Worker* worker) {
  if (worker->up.remote_id.empty()) return;
  options_.coordinator->ReleaseEnvServers({worker->up.remote_id}).IgnoreError();
}

// Whether its server is another of our workers' by now, and not this one's to give
// back: a coordinator that had forgotten the lease gave it to both. The later one
// ends the earlier one's stream as ABORTED, and may not have shaken hands yet. But
// one that dials is ended so too, by itself.
bool EnvPool::IsTaken(const Worker& worker, const absl::Status& why) const {
  const std::string& server = worker.up.remote_id;
  if (absl::IsAborted(why) && options_.dial == nullptr) return true;
  return std::any_of(
      workers_.begin(), workers_.end(), [&](const Worker& other) {
        return other.id != worker.id && other.up.remote_id == server;
      });
}

bool EnvPool::HoldsBatch(int slot) const {
  const Slot& s = slots_[slot];
  return workers_[s.worker].up.stream != nullptr && !s.fresh;
}

absl::string_view EnvPool::Observation(int slot, int leaf) const {
  const Slot& s = slots_[slot];
  return workers_[s.worker].up.stream->Observation(s.batch, leaf);
}

void EnvPool::BeginReplacement(Worker* worker, absl::Duration delay,
                               std::optional<v1::Member> leased) {
  worker->replacement = std::async(
      std::launch::async,
      [options = options_, dropped = &dropped_, last = &last_incarnation_,
       id = worker->id, incarnation = worker->incarnation,
       remote = worker->remote, rows = rows_per_worker_,
       groups = options_.env.groups(), delay, leased,
       stop = closing_.get_token()]() -> absl::StatusOr<EnvWorker> {
        if (delay > absl::ZeroDuration()) SleepUnless(stop, delay);
        if (stop.stop_requested()) return absl::CancelledError("closing");
        if (remote) {
          bool first = true;
          const auto newer = [&] {
            return std::exchange(first, false) ? incarnation : ++*last;
          };
          return LeaseEnvWorker(options, dropped, id, newer, rows, groups, stop,
                                leased);
        }
        return StartEnvWorker(options, id, incarnation, rows, groups, stop);
      });
}

absl::Status EnvPool::TakeReplacement(Worker* worker) {
  absl::StatusOr<EnvWorker> up = worker->replacement.get();
  if (!up.ok()) return up.status();
  worker->up = *std::move(up);
  worker->incarnation = worker->up.incarnation;
  worker->refused_rows = 0;
  worker->refused.clear();
  const v1::EnvSpec& spec = worker->up.stream->spec();
  if (spec_.observation_size() == 0) {  // nobody has come yet
    spec_ = spec;
  } else if (!google::protobuf::util::MessageDifferencer::Equals(spec_, spec)) {
    return absl::FailedPreconditionError(
        absl::StrCat("env worker ", worker->id,
                     " serves another specification than before: ",
                     PrintableLine(spec.ShortDebugString()), " instead of ",
                     PrintableLine(spec_.ShortDebugString())));
  }
  worker->pid = worker->up.process != nullptr ? worker->up.process->pid() : 0;
  for (Slot& slot : slots_) {
    if (&workers_[slot.worker] != worker) continue;
    slot.fresh = true;
    slot.arrived = false;
  }
  NoteStatus();
  return absl::OkStatus();
}

absl::Status EnvPool::Fail(Worker* worker, const absl::Status& why) {
  std::string detail(why.message());
  // After its welcome, and by nothing that it said: a server whose gRPC has had
  // enough of our pings, or whatever lies between us.
  bool cut_off = worker->up.stream != nullptr && absl::IsUnavailable(why);
  if (worker->up.stream != nullptr) worker->up.stream->Cancel();
  if (worker->up.process != nullptr) {
    if (auto exit = worker->up.process->Wait(absl::Milliseconds(50))) {
      absl::StrAppend(&detail, " (", exit->ToString(), ")");
      cut_off = false;
    }
  }
  if ((absl::IsDataLoss(why) || absl::IsFailedPrecondition(why)) &&
      !worker->up.remote_id.empty()) {
    // Before it is given back: another worker may wait for one.
    dropped_.Drop(worker->up.remote_id, SteadyNow() + kBudgetWindow);
  }
  if (tapes_ != nullptr) {
    const int groups = options_.env.groups();
    tapes_->Lost(static_cast<int>(worker->id - workers_.front().id) * groups,
                 groups, detail);
  }
  std::optional<v1::Member> again;
  if (options_.dial != nullptr && absl::IsAborted(why) &&
      options_.dial->service()->Waits(worker->up.remote_id)) {
    again.emplace();
    again->set_id(worker->up.remote_id);
    again->set_host(worker->up.host);
    again->set_dials(true);
  } else if (!IsTaken(*worker, why)) {
    Release(worker);
  }
  worker->up = EnvWorker();  // kills what still runs
  worker->last_failure = detail;
  const int recent =
      static_cast<int>(CountRecent(&worker->failures, SteadyNow()));
  // Other hosts come and go as they like: they have no budget.
  const bool foreign = !worker->remote && !options_.env.server().empty();
  const std::string name = absl::StrCat(
      "env worker ", worker->id,
      foreign ? absl::StrCat(" of env.server \"", options_.env.server(), "\"")
              : "");
  if (foreign && !options_.log_folder.empty() && worker->pid != 0) {
    absl::StrAppend(&detail, "; its log is ", options_.log_folder, "/env_",
                    options_.name, "_", worker->id, ".log");
  }
  // A restart helps one that broke, not one that cannot.
  if (foreign && !cut_off && steps_[worker->id - workers_.front().id] == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(name, " has never played: ", detail));
  }
  if (!worker->remote && recent > options_.env.max_worker_restarts()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(name, " failed ", recent,
                     " times in 10 minutes (env.max_worker_restarts is ",
                     options_.env.max_worker_restarts(), "); last: ", detail));
  }
  LOG(WARNING) << name << " is lost: " << detail << "; "
               << (again ? "it is back"
                   : worker->remote
                       ? "another host's will take its place"
                       : absl::StrCat("restart ", recent, " of ",
                                      options_.env.max_worker_restarts(),
                                      " allowed"));
  ++worker->restarts;
  ++restarts_;
  worker->incarnation = ++last_incarnation_;
  NoteStatus();
  // The first restart comes at once; a crash loop slows down.
  BeginReplacement(worker,
                   recent == 1 ? absl::ZeroDuration()
                               : absl::Milliseconds(50 << std::min(recent, 7)),
                   std::move(again));
  return absl::OkStatus();
}

bool EnvPool::QuorumWithout() const {
  int alive = 0;
  for (const Worker& worker : workers_) alive += worker.up.stream != nullptr;
  return alive > 0 &&
         alive >= options_.env.quorum() * static_cast<double>(workers_.size());
}

absl::StatusOr<EnvPool::Event> EnvPool::Receive(
    int s, std::stop_token stop, absl::FunctionRef<bool()> give_up) {
  Slot& slot = slots_[s];
  Worker& worker = workers_[slot.worker];
  for (;;) {
    if (stop.stop_requested()) return absl::CancelledError("told to stop");
    if (worker.up.stream == nullptr) {
      const bool ready = worker.replacement.wait_for(std::chrono::seconds(0)) ==
                         std::future_status::ready;
      if (!ready) {
        if (QuorumWithout()) return Event::kAbsent;
        if (give_up()) return Event::kLate;
        worker.replacement.wait_for(std::chrono::milliseconds(20));
        continue;
      }
      absl::Status taken = TakeReplacement(&worker);
      if (!taken.ok()) {
        RETURN_IF_ERROR(Fail(&worker, taken));
        continue;
      }
    }
    const absl::StatusOr<bool> received =
        ReceiveFor(&worker, &slot, stop, give_up);
    if (received.ok() && !*received) {
      if (stop.stop_requested()) continue;
      return Event::kLate;
    }
    absl::Status status = received.status();
    if (status.ok()) status = NoteRows(&worker, slot);
    if (status.ok()) {
      slot.arrived = false;
      const bool fresh = std::exchange(slot.fresh, false);
      if (tapes_ != nullptr && fresh) {
        tapes_->Began(s, slot.group, worker.id, worker.incarnation, slot.batch);
      } else if (tapes_ != nullptr) {
        tapes_->Stepped(s, slot.batch);
      }
      return fresh ? Event::kReset : Event::kStep;
    }
    RETURN_IF_ERROR(Fail(&worker, status));
  }
}

absl::Status EnvPool::NoteRows(Worker* worker, const Slot& slot) {
  const absl::Time now = SteadyNow();
  failed_rows_->NoteBatch(rows_per_slot_, slot.batch.error_size(), now);
  for (const v1::RowError& error : slot.batch.error()) {
    if (error.message().empty()) continue;  // still pending: nothing new
    ++worker->failed_rows;
    failed_rows_->NoteFailure(
        PrintableLine(
            absl::StrCat("env worker ", worker->id,
                         worker->remote ? " at " + worker->up.address : "",
                         ": ", error.message())),
        error.traceback(), now);
  }
  const int64_t refused = worker->up.stream->refused_rows();
  if (!worker->remote || refused == worker->refused_rows) {
    return absl::OkStatus();
  }
  worker->refused_rows = refused;
  if (CountRecent(&worker->refused, now) <= kMaxRefused) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "env server ", worker->up.remote_id, " at ", worker->up.address,
      " goes on sending numbers that nobody can learn from (", refused,
      " rows); the newest: ", failed_rows_->newest()));
}

// Groups step independently: another one's batch may come first. False where
// nothing came before `stop` or `give_up`.
absl::StatusOr<bool> EnvPool::ReceiveFor(Worker* worker, Slot* slot,
                                         std::stop_token stop,
                                         absl::FunctionRef<bool()> give_up) {
  const int index = slot->worker;
  const int first = index * options_.env.groups();
  while (!slot->arrived) {
    while (!worker->up.stream->Ready(absl::Milliseconds(5))) {
      if (stop.stop_requested() || give_up()) return false;
    }
    RETURN_IF_ERROR(worker->up.stream->Receive(&incoming_));
    Slot& owner = slots_[first + incoming_.group()];
    if (owner.arrived) {
      return absl::InternalError(absl::StrCat(
          "the server answered twice for group ", incoming_.group()));
    }
    owner.batch.Swap(&incoming_);
    owner.arrived = true;
    if (!owner.fresh) steps_[index] += rows_per_slot_;
  }
  return true;
}

void EnvPool::Send(int s, std::span<const std::string> columns) {
  Slot& slot = slots_[s];
  EnvStream* stream = workers_[slot.worker].up.stream.get();
  // Decided for a worker that is gone: its replacement has begun anew.
  if (stream == nullptr || slot.fresh) return;
  slot.actions.set_group(slot.group);
  slot.actions.set_seq(slot.batch.seq());
  for (int i = 0; i < static_cast<int>(columns.size()); ++i) {
    if (slot.actions.action_size() == i) slot.actions.add_action();
    *slot.actions.mutable_action(i) = columns[i];
  }
  if (tapes_ != nullptr) tapes_->Acted(s, columns);
  stream->Send(slot.actions).IgnoreError();
}

std::vector<v1::EnvServerStatus> EnvPool::Describe() const {
  const absl::Time now = SteadyNow();
  MutexLock lock(&mu_);
  if (measured_.empty() || now - measured_at_ >= kRateWindow) {
    for (size_t w = 0; w < steps_.size(); ++w) {
      const int64_t steps = steps_[w];
      if (measured_.size() == w) {  // the first time
        measured_.push_back(steps);
        rates_.push_back(0);
        continue;
      }
      rates_[w] = static_cast<double>(steps - measured_[w]) /
                  absl::ToDoubleSeconds(now - measured_at_);
      measured_[w] = steps;
    }
    measured_at_ = now;
  }
  std::vector<v1::EnvServerStatus> all = status_;
  for (size_t w = 0; w < all.size(); ++w) {
    all[w].set_failed_rows(workers_[w].failed_rows);
    if (all[w].state() == "playing") all[w].set_steps_per_second(rates_[w]);
  }
  return all;
}

void EnvPool::NoteStatus() {
  std::vector<v1::EnvServerStatus> all;
  for (const Worker& worker : workers_) {
    v1::EnvServerStatus status;
    status.set_id(absl::StrCat("env worker ", worker.id));
    status.set_host(worker.up.host);
    status.set_num_envs(rows_per_worker_);
    status.set_restarts(worker.restarts);
    status.set_address(worker.up.address);
    status.set_server_id(worker.up.remote_id);
    status.set_pid(worker.pid);
    status.set_state(Word(worker.up.stream != nullptr ? EnvServerState::kPlaying
                          : worker.remote             ? EnvServerState::kWaiting
                                          : EnvServerState::kRestarting));
    all.push_back(std::move(status));
  }
  MutexLock lock(&mu_);
  status_ = std::move(all);
}

}  // namespace flotilla
