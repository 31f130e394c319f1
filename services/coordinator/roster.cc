#include "services/coordinator/roster.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/status_macros.h"
#include "services/coordinator/limits.h"

// Members, and what is said among them. Who may speak for whom is in
// roster_identity.cc, generations are in roster_generations.cc, the status in
// roster_status.cc.

namespace flotilla {
namespace {

// How long status still shows who died or left.
constexpr absl::Duration kForgetAfter = absl::Minutes(1);

absl::Status Differs(const std::string& id, const char* what,
                     const std::string& mine, const std::string& theirs,
                     const std::string& their_id, const char* remedy) {
  return absl::FailedPreconditionError(absl::StrCat(
      id, " has ", what, " \"", mine, "\", but ", their_id, " has \"", theirs,
      "\": all learners of a run need the same; ", remedy));
}

}  // namespace

Roster::Roster(const RosterOptions& options, absl::Time now)
    : options_(options),
      started_(now),
      run_id_(options.run_id),
      now_(now),
      last_tick_(now) {}

void Roster::Restore(const RosterState& state, absl::Time now) {
  MutexLock lock(&mu_);
  now_ = last_tick_ = now;
  if (run_id_.empty()) run_id_ = state.run.run_id();
  const v1::Command& command = state.command;
  assignment_ = state.world;
  assignment_.set_epoch(options_.epoch);
  generation_ = std::max(state.world.generation(), command.generation());
  fenced_ = command.fenced_generation();
  fence_reason_ = command.fence_reason();
  stop_ = command.stop();
  stop_reason_ = command.stop_reason();
  preempted_ = command.preempted();
  closed_ = command.closed();
  failure_ = command.failure();
  if (closed_) {  // with what status is in no journal
    close_status_ =
        failure_.empty() ? "closed before this coordinator began" : "failed";
  }
  if (command.has_evaluation()) evaluation_ = command.evaluation();
  changes_.Restore(command.change());
  if (closed_) {
    state_ = v1::CLOSED;
  } else if (command.state() == v1::ACTIVE) {
    state_ = v1::ACTIVE;
  } else if (generation_ > 0) {
    state_ = v1::FENCED;
    fenced_ = generation_;
  }
  learner_restarts_.insert(state.keys.restarts().begin(),
                           state.keys.restarts().end());
  retired_learner_restarts_ = state.keys.retired_restarts();
  for (int rank = 0; rank < assignment_.learner_size(); ++rank) {
    const v1::Member& member = assignment_.learner(rank);
    const auto key = state.keys.sha256().find(member.id());
    if (key == state.keys.sha256().end()) continue;  // long gone
    Seat& seat = seats_[member.id()];
    Welcome(member, key->second, &seat);
    seat.rank = rank;
    seat.awaited = true;
  }
  for (const auto& [id, key] : state.keys.sha256()) {
    if (Find(id) == nullptr) earlier_keys_[id] = key;
  }
  recovering_until_ = now + 2 * options_.dead_after;
  Changed();
}

absl::StatusOr<v1::RegisterResponse> Roster::Register(const v1::Member& member,
                                                      const std::string& key,
                                                      absl::Time now) {
  MutexLock lock(&mu_);
  now_ = now;
  RETURN_IF_ERROR(CheckMember(member));
  RETURN_IF_ERROR(CheckClaim(member, key));
  RETURN_IF_ERROR(CheckFits(member));
  if (run_id_.empty()) {
    run_id_ = member.run_id().empty() ? absl::StrCat("run-", options_.epoch)
                                      : member.run_id();
    Changed();
  }
  Seat* seat = Find(member.id());
  // Who claims what another gave up inherits nothing.
  if (seat != nullptr && seat->key != key) EndLease(seat);
  if (seat == nullptr) {
    Welcome(member, key, &seats_[member.id()]);
  } else if (member.incarnation() > seat->member.incarnation()) {
    if (seat->health == Health::kAlive) {
      Retire(seat, Health::kDead,
             absl::StrCat("was replaced by its incarnation ",
                          member.incarnation()));
    }
    // Who said goodbye may have been replaced all the same: its launcher knows.
    if (member.role() == v1::LEARNER &&
        (seat->health != Health::kLeft ||
         member.restarts() > seat->member.restarts())) {
      ++learner_restarts_[member.id()];
      ++claims_;
    }
    retired_env_restarts_ += seat->last.env_worker_restarts();
    said_ -= seat->said;
    retired_failed_rows_ += seat->last.failed_rows();
    Seat next;
    next.key = seat->key;
    if (member.dials()) {
      next.lessee = seat->lessee;
      next.lease_id = seat->lease_id;
      next.reported = seat->reported;
      next.dial = seat->dial;
    }
    *seat = std::move(next);
    Welcome(member, key, seat);
  } else {
    // The same process: again after a lost answer or a lost coordinator, or
    // back from the dead. Whose death did not fence its generation had finished
    // in it, and has its place still; who had left has none.
    const bool gave_up = seat->health == Health::kLeft;
    Welcome(member, key, seat);
    if (gave_up && generation_ != fenced_) seat->rank = -1;
  }
  if (member.role() == v1::LEARNER) Advance();
  ++status_version_;
  return Response();
}

absl::Status Roster::CheckFits(const v1::Member& member) const {
  const std::string& id = member.id();
  const Seat* seat = Find(id);
  if (seat == nullptr && seats_.size() >= kMaxMembers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", seats_.size(), " members already"));
  }
  const size_t said = said_ - (seat == nullptr ? 0 : seat->said);
  if (said + member.ByteSizeLong() > kMaxSaidBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(id, ": member has ", member.ByteSizeLong(), " bytes; the ",
                     seats_.size(), " others say ", said, " of ", kMaxSaidBytes,
                     " bytes already"));
  }
  if (seat != nullptr && member.incarnation() < seat->member.incarnation()) {
    return absl::AlreadyExistsError(
        absl::StrCat(id, " is registered with incarnation ",
                     seat->member.incarnation(), "; this is incarnation ",
                     member.incarnation(), " and has been replaced"));
  }
  if (!run_id_.empty() && !member.run_id().empty() &&
      member.run_id() != run_id_) {
    return absl::FailedPreconditionError(
        absl::StrCat(id, " belongs to run \"", member.run_id(),
                     "\", but this coordinator serves run \"", run_id_, "\""));
  }
  if (member.role() != v1::LEARNER) return absl::OkStatus();

  if (closed_ && seat == nullptr) {
    if (!failure_.empty()) return Over();
    // It has to hear that the run goes on later, which its seat alone tells it.
    if (!preempted_) {
      return absl::AbortedError(absl::StrCat(
          id, " comes too late: the run is over (", close_status_, ")"));
    }
  }
  RETURN_IF_ERROR(CheckRank(member));
  // Any learner will do: each was compared with another. Before there is a
  // generation, only those that are there count.
  for (const auto& [other_id, other] : seats_) {
    const bool counts =
        generation_ > 0 || (other_id != id && other.health == Health::kAlive);
    if (other.member.role() != v1::LEARNER || !counts) continue;
    if (member.version() != other.member.version()) {
      return Differs(id, "build", member.version(), other.member.version(),
                     other_id, "install one build on all hosts");
    }
    if (member.config_digest() != other.member.config_digest()) {
      return Differs(id, "configuration digest", member.config_digest(),
                     other.member.config_digest(), other_id,
                     "compare what `flotilla train --dry-run` prints on both "
                     "hosts. PRECISION_AUTO is decided by each: where their "
                     "CPUs or GPUs differ, name runtime.precision");
    }
    break;
  }
  return absl::OkStatus();
}

absl::Status Roster::CheckRank(const v1::Member& member) const {
  if (member.requested_rank() == 0) return absl::OkStatus();
  const int64_t rank = int64_t{member.requested_rank()} - 1;
  if (rank < 0 || rank >= options_.max_learners) {
    return absl::InvalidArgumentError(
        absl::StrCat(member.id(), " asks for rank ", rank,
                     "; ranks go from 0 to ", options_.max_learners - 1,
                     " in a run of up to ", options_.max_learners));
  }
  for (const auto& [id, seat] : seats_) {
    if (id != member.id() && seat.health == Health::kAlive &&
        seat.member.requested_rank() == member.requested_rank()) {
      return absl::FailedPreconditionError(
          absl::StrCat(member.id(), " asks for rank ", rank, ", which is ", id,
                       "'s: were two processes started with the same RANK?"));
    }
  }
  return absl::OkStatus();
}

void Roster::Welcome(const v1::Member& member, const std::string& key,
                     Seat* seat) {
  if (seat->key != key && member.role() == v1::LEARNER) ++claims_;
  seat->key = key;
  earlier_keys_.erase(member.id());
  seat->member = member;
  seat->health = Health::kAlive;
  seat->suspect = false;
  seat->awaited = false;
  seat->last_beat = now_;
  Weigh(seat);
  if (member.role() == v1::LEARNER) {
    int64_t& restarts = learner_restarts_[member.id()];
    restarts = std::max(restarts, member.restarts());
  }
}

absl::StatusOr<v1::Command> Roster::Beat(const v1::Heartbeat& heartbeat,
                                         const std::string& key,
                                         absl::Time now) {
  RETURN_IF_ERROR(CheckHeartbeat(heartbeat));
  MutexLock lock(&mu_);
  now_ = now;
  Seat* seat = Find(heartbeat.member_id());
  if (seat != nullptr) RETURN_IF_ERROR(CheckKey(*seat, key));
  if (seat != nullptr && heartbeat.incarnation() < seat->member.incarnation()) {
    return absl::AlreadyExistsError(
        absl::StrCat(heartbeat.member_id(), " was replaced by its incarnation ",
                     seat->member.incarnation()));
  }
  if (seat == nullptr || seat->health == Health::kDead ||
      heartbeat.incarnation() > seat->member.incarnation()) {
    v1::Command command = MakeCommand();
    command.set_register_again(true);
    return command;
  }
  if (seat->health == Health::kLeft) return MakeCommand();

  if (seat->suspect || seat->awaited) ++status_version_;
  seat->suspect = false;
  seat->awaited = false;
  seat->last_beat = now;
  TakeEnvWorkers(heartbeat, seat);
  seat->last = heartbeat;
  seat->last.clear_env_worker();
  seat->last.clear_change();
  seat->last.DiscardUnknownFields();
  seat->last.set_waits_for(Shortened(heartbeat.waits_for()));
  seat->last.set_trouble(Shortened(heartbeat.trouble()));
  seat->last.set_started_over(Shortened(heartbeat.started_over()));
  Weigh(seat);
  if (said_ > kMaxReportedBytes) {  // numbers only
    seat->env_workers.clear();
    seat->last.clear_waits_for();
    seat->last.clear_trouble();
    seat->last.clear_started_over();
    Weigh(seat);
  }
  if (seat->member.role() == v1::LEARNER) {
    Adopt(heartbeat.generation(), seat);
    // What was agreed on last may be told behind the run's end.
    const bool trains = seat->rank >= 0 && (state_ == v1::ACTIVE || closed_) &&
                        heartbeat.generation() == generation_;
    if (trains && changes_.Take(heartbeat.change())) Changed();
  }
  return MakeCommand();
}

void Roster::Weigh(Seat* seat) {
  size_t said = seat->member.ByteSizeLong() + seat->last.ByteSizeLong();
  for (const auto& [id, worker] : seat->env_workers) {
    said += worker.ByteSizeLong();
    if (worker.host().empty()) said += seat->member.host().size();  // in status
  }
  said_ += said - seat->said;
  seat->said = said;
}

void Roster::SessionBroken(const std::string& id, uint64_t incarnation) {
  MutexLock lock(&mu_);
  Seat* seat = Find(id);
  if (seat == nullptr || seat->member.incarnation() != incarnation ||
      seat->health != Health::kAlive) {
    return;
  }
  seat->suspect = true;
  ++status_version_;
}

absl::Status Roster::Leave(const v1::LeaveRequest& request,
                           const std::string& key, absl::Time now) {
  MutexLock lock(&mu_);
  now_ = now;
  Seat* seat = Find(request.member_id());
  if (seat != nullptr) RETURN_IF_ERROR(CheckKey(*seat, key));
  if (seat == nullptr || seat->health != Health::kAlive ||
      seat->member.incarnation() != request.incarnation()) {
    return absl::OkStatus();
  }
  std::string how = "left";
  if (!request.reason().empty()) {
    absl::StrAppend(&how, ": ", Shortened(request.reason()));
  }
  Retire(seat, Health::kLeft, how);
  Advance();
  return absl::OkStatus();
}

void Roster::Retire(Seat* seat, Health health, const std::string& how) {
  // Whoever has finished, or has nothing to do with the generation, ends
  // nothing by going.
  const bool matters = seat->member.role() == v1::LEARNER && seat->rank >= 0 &&
                       seat->last.phase() != v1::FINISHED;
  if (matters) Fence(absl::StrCat(NameOf(*seat), " ", how));
  seat->health = health;
  seat->gone_since = now_;
  seat->awaited = false;
  seat->wish.reset();
  if (!seat->member.dials() || health == Health::kLeft) EndLease(seat);
  if (seat->member.role() == v1::LEARNER) {
    for (auto& [id, other] : seats_) {
      if (other.lessee == seat->member.id()) EndLease(&other);
    }
  }
  ++status_version_;
}

void Roster::Tick(absl::Time now) {
  MutexLock lock(&mu_);
  now_ = now;
  if (now - last_tick_ > options_.dead_after / 2) AwaitEverybody();
  last_tick_ = now;
  const bool recovering = Recovering();
  if (recovering_ != recovering) Changed();
  recovering_ = recovering;
  if (!recovering) Expire();
  Forget();
  EndLapsedWishes();
  Advance();
}

// This process stood still, and so did what it heard: that says nothing about
// anyone else.
void Roster::AwaitEverybody() {
  for (auto& [id, seat] : seats_) {
    if (seat.health != Health::kAlive) continue;
    seat.awaited = true;
    seat.last_beat = now_;
  }
  recovering_until_ = std::max(recovering_until_, now_ + options_.dead_after);
  Changed();
}

void Roster::Expire() {
  for (auto& [id, seat] : seats_) {
    const absl::Duration silence = now_ - seat.last_beat;
    if (seat.health != Health::kAlive || silence < options_.dead_after) {
      continue;
    }
    Retire(&seat, Health::kDead,
           absl::StrFormat("sent no heartbeat for %.1f s",
                           absl::ToDoubleSeconds(silence)));
  }
}

void Roster::Forget() {
  for (auto it = seats_.begin(); it != seats_.end();) {
    const Seat& seat = it->second;
    const bool gone =
        seat.health != Health::kAlive && now_ - seat.gone_since >= kForgetAfter;
    const bool has_place = seat.rank >= 0 && !closed_;
    if (gone && !has_place) {
      retired_env_restarts_ += seat.last.env_worker_restarts();
      retired_failed_rows_ += seat.last.failed_rows();
      ForgetRestarts(it->first);
      said_ -= seat.said;
      it = seats_.erase(it);
      ++status_version_;
    } else {
      ++it;
    }
  }
}

int64_t Roster::LearnerRestarts() const {
  int64_t restarts = retired_learner_restarts_;
  for (const auto& [id, count] : learner_restarts_) restarts += count;
  return restarts;
}

// Who comes back goes on from its own count, unless there have been absurdly
// many.
void Roster::ForgetRestarts(const std::string& id) {
  const auto found = learner_restarts_.find(id);
  if (found == learner_restarts_.end()) return;
  if (found->second > 0 && learner_restarts_.size() <= kMaxMembers) return;
  retired_learner_restarts_ += found->second;
  learner_restarts_.erase(found);
}

absl::StatusOr<v1::Evaluation> Roster::ReportEvaluation(
    const v1::ReportEvaluationRequest& request, const std::string& key) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(CheckLearner(request.member_id(), key));
  const v1::Evaluation& evaluation = request.evaluation();
  RETURN_IF_ERROR(CheckEvaluation(evaluation));
  if (!evaluation_.has_value() || evaluation.round() > evaluation_->round()) {
    evaluation_ = evaluation;
    Changed();
  }
  return *evaluation_;
}

absl::Status Roster::ReportCollected(const v1::ReportCollectedRequest& request,
                                     const std::string& key) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(CheckCurrent(request.generation()));
  const Seat* seat = Find(request.member_id());
  if (seat != nullptr) RETURN_IF_ERROR(CheckKey(*seat, key));
  if (seat == nullptr || seat->rank < 0) {
    return absl::NotFoundError(absl::StrCat(
        request.member_id(), " is not in generation ", request.generation()));
  }
  const double fraction = request.fraction();
  if (!(fraction > 0 && fraction <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("fraction is ", fraction, ", want more than 0, up to 1"));
  }
  if (request.update() < collected_update_) return absl::OkStatus();
  if (request.update() > collected_update_) collected_.clear();
  collected_update_ = request.update();
  collected_.insert(request.member_id());

  const int world = assignment_.world_size();
  if (world < 2 || preempt_update_ == collected_update_) {
    return absl::OkStatus();
  }
  const int enough =
      std::clamp(static_cast<int>(std::ceil(fraction * world)), 1, world - 1);
  if (static_cast<int>(collected_.size()) >= enough) {
    preempt_update_ = collected_update_;
    Changed();
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Roster::Set(const v1::SetRequest& request) {
  MutexLock lock(&mu_);
  if (closed_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "nobody trains any more: the run is over (", close_status_, ")"));
  }
  if (stop_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the run was told to stop: ", stop_reason_));
  }
  if (generation_ == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("nobody trains yet: ", Missing()));
  }
  v1::Change wanted;
  *wanted.mutable_override() = request.override();
  ASSIGN_OR_RETURN(const uint64_t ticket, changes_.Add(wanted));
  Changed();
  return ticket;
}

std::optional<v1::Change> Roster::FindChange(uint64_t ticket) const {
  MutexLock lock(&mu_);
  return changes_.Find(ticket);
}

v1::Command Roster::Command() const {
  MutexLock lock(&mu_);
  return MakeCommand();
}

v1::Command Roster::CommandFor(const std::string& member_id) const {
  MutexLock lock(&mu_);
  v1::Command command = MakeCommand();
  const Seat* seat = Find(member_id);
  if (seat != nullptr && seat->health == Health::kAlive) {
    command.set_dial(seat->dial);
    if (!seat->dial.empty()) command.set_dial_learner(seat->lessee);
  }
  return command;
}

v1::Command Roster::MakeCommand() const {
  v1::Command command;
  command.set_fenced_generation(fenced_);
  command.set_fence_reason(fence_reason_);
  command.set_stop(stop_);
  command.set_stop_reason(stop_reason_);
  command.set_preempted(preempted_);
  if (evaluation_.has_value()) *command.mutable_evaluation() = *evaluation_;
  if (preempt_update_ != 0) {
    command.set_preempt_update(preempt_update_);
    command.set_preempt_generation(generation_);
  }
  command.set_generation(generation_);
  command.set_state(state_);
  command.set_closed(closed_);
  command.set_failure(failure_);
  *command.mutable_change() = changes_.All();
  return command;
}

v1::RegisterResponse Roster::Response() const {
  v1::RegisterResponse response;
  response.set_heartbeat_ms(absl::ToInt64Milliseconds(options_.heartbeat));
  response.set_dead_after_ms(absl::ToInt64Milliseconds(options_.dead_after));
  response.set_epoch(options_.epoch);
  response.set_run_id(run_id_);
  return response;
}

RosterState Roster::State() const {
  MutexLock lock(&mu_);
  RosterState state = {Response(), assignment_, MakeCommand(), {}};
  auto& keys = *state.keys.mutable_sha256();
  for (const auto& [id, seat] : seats_) {
    if (seat.member.role() == v1::LEARNER) keys[id] = seat.key;
  }
  for (const auto& [id, key] : earlier_keys_) keys[id] = key;
  for (const auto& [id, restarts] : learner_restarts_) {
    if (restarts > 0) (*state.keys.mutable_restarts())[id] = restarts;
  }
  state.keys.set_retired_restarts(retired_learner_restarts_);
  return state;
}

uint64_t Roster::command_version() const {
  MutexLock lock(&mu_);
  return command_version_;
}

uint64_t Roster::state_version() const {
  MutexLock lock(&mu_);
  return command_version_ + claims_;
}

uint64_t Roster::status_version() const {
  MutexLock lock(&mu_);
  return status_version_;
}

Roster::Seat* Roster::Find(const std::string& id) {
  const auto found = seats_.find(id);
  return found == seats_.end() ? nullptr : &found->second;
}

const Roster::Seat* Roster::Find(const std::string& id) const {
  const auto found = seats_.find(id);
  return found == seats_.end() ? nullptr : &found->second;
}

std::string Roster::NameOf(const Seat& seat) const {
  const std::string& id = seat.member.id();
  return seat.rank < 0 ? id : absl::StrCat("rank ", seat.rank, " (", id, ")");
}

void Roster::Changed() {
  ++command_version_;
  ++status_version_;
}

}  // namespace flotilla
