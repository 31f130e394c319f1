#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/member_state.h"
#include "services/base/version.h"
#include "services/coordinator/roster.h"

// What people are told.

namespace flotilla {
namespace {

// A heartbeat that is this many intervals late makes a member suspect.
constexpr double kSuspectAfter = 2.5;

}  // namespace

v1::Status Roster::GetStatus(absl::Time now) const {
  MutexLock lock(&mu_);
  v1::Status status;
  status.set_run_id(run_id_);
  status.set_state(state_);
  status.set_generation(generation_);
  status.set_world_size(assignment_.world_size());
  AddLearners(now, &status);
  AddEnvServers(&status);
  if (evaluation_.has_value()) *status.mutable_evaluation() = *evaluation_;
  status.set_stop(stop_);
  status.set_stop_reason(stop_reason_);
  status.set_preempted(preempted_);
  status.set_version(Version());
  status.set_uptime_seconds(absl::ToDoubleSeconds(now - started_));
  status.set_epoch(options_.epoch);
  status.set_learner_restarts(LearnerRestarts());
  status.set_fence_reason(fence_reason_);
  status.set_min_learners(options_.min_learners);
  status.set_max_learners(options_.max_learners);
  status.set_waiting_for(WaitingFor(now));
  *status.mutable_change() = changes_.All();
  return status;
}

void Roster::AddLearners(absl::Time now, v1::Status* status) const {
  std::vector<const Seat*> seats;
  int64_t env_restarts = retired_env_restarts_;
  int64_t failed_rows = retired_failed_rows_;
  for (const auto& [id, seat] : seats_) {
    if (seat.member.role() != v1::LEARNER) continue;
    seats.push_back(&seat);
    const v1::Heartbeat& last = seat.last;
    env_restarts += last.env_worker_restarts();
    failed_rows += last.failed_rows();
    status->set_global_step(std::max(status->global_step(), last.env_steps()));
    status->set_update(std::max(status->update(), last.update()));
    if (seat.health == Health::kAlive) {
      status->set_steps_per_second(status->steps_per_second() +
                                   last.steps_per_second());
    }
    if (seat.rank == 0) status->set_mean_return(last.mean_return());
    if (!last.started_over().empty()) {
      status->set_started_over(last.started_over());
    }
    status->set_config_digest(seat.member.config_digest());
  }
  status->set_env_worker_restarts(env_restarts);
  status->set_failed_rows(failed_rows);
  // By rank; who has none comes last.
  std::stable_sort(
      seats.begin(), seats.end(), [](const auto* a, const auto* b) {
        return static_cast<unsigned>(a->rank) < static_cast<unsigned>(b->rank);
      });
  for (const Seat* seat : seats) {
    *status->add_learner() = StatusOf(*seat, now);
  }
}

v1::LearnerStatus Roster::StatusOf(const Seat& seat, absl::Time now) const {
  const absl::Duration silence = now - seat.last_beat;
  v1::LearnerStatus status;
  status.set_rank(seat.rank);
  status.set_local_rank(seat.member.local_rank());
  status.set_node_rank(seat.member.node_rank());
  status.set_id(seat.member.id());
  status.set_host(seat.member.host());
  status.set_pid(seat.member.pid());
  status.set_device(seat.member.device());
  if (seat.health == Health::kDead) {
    status.set_state(Word(LearnerState::kDead));
  } else if (seat.health == Health::kLeft) {
    status.set_state(Word(LearnerState::kLeft));
  } else if (seat.suspect || silence > kSuspectAfter * options_.heartbeat) {
    status.set_state(Word(LearnerState::kSuspect));
  } else if (!closed_ && (seat.wish.has_value() || seat.rank < 0)) {
    status.set_state(Word(LearnerState::kJoining));
  } else {
    status.set_state(Word(LearnerState::kAlive));
  }
  status.set_phase(seat.last.phase());
  status.set_phase_seconds(seat.last.phase_seconds());
  status.set_update(seat.last.update());
  status.set_steps_per_second(seat.last.steps_per_second());
  status.set_last_heartbeat_seconds(absl::ToDoubleSeconds(silence));
  status.set_waits_for(seat.last.waits_for());
  status.set_trouble(seat.last.trouble());
  status.set_failed_rows(seat.last.failed_rows());
  for (const auto& [id, worker] : seat.env_workers) {
    v1::EnvServerStatus* added = status.add_env_worker();
    *added = worker;
    // Its own workers are where it is; a leased one says where that is.
    if (added->host().empty()) added->set_host(seat.member.host());
    added->set_assigned_rank(seat.rank);
  }
  status.set_restarts(learner_restarts_.at(seat.member.id()));
  status.set_incarnation(seat.member.incarnation());
  return status;
}

void Roster::AddEnvServers(v1::Status* status) const {
  for (const auto& [id, seat] : seats_) {
    if (seat.member.role() != v1::ENV_SERVER) continue;
    const Seat* lessee = seat.lessee.empty() ? nullptr : Find(seat.lessee);
    v1::EnvServerStatus* server = status->add_env_server();
    server->set_id(id);
    server->set_host(seat.member.host());
    server->set_address(seat.member.address());
    server->set_num_envs(seat.member.num_envs());
    server->set_assigned_rank(lessee == nullptr ? -1 : lessee->rank);
    server->set_restarts(seat.member.restarts());
    server->set_pid(seat.member.pid());
    if (seat.health != Health::kAlive) {
      server->set_state(Word(EnvServerState::kDead));
      continue;
    }
    server->set_steps_per_second(seat.last.steps_per_second());
    const bool plays = lessee != nullptr || seat.last.steps_per_second() > 0;
    server->set_state(
        Word(plays ? EnvServerState::kPlaying : EnvServerState::kIdle));
  }
}

std::string Roster::WaitingFor(absl::Time now) const {
  switch (state_) {
    case v1::CLOSED:
      return "";
    case v1::ACTIVE:
      return SlowestRank(now);
    default:
      return stop_ ? "" : Missing();
  }
}

// The one that keeps the others waiting: silent, or busy while somebody is in
// the collective already; of several, the one that has been at it longest.
std::string Roster::SlowestRank(absl::Time now) const {
  const Seat* slowest = nullptr;
  double slowest_seconds = 0;
  bool somebody_waits = false;
  for (const auto& [id, seat] : seats_) {
    if (seat.rank < 0 || seat.last.phase() == v1::FINISHED) continue;
    const double silence = absl::ToDoubleSeconds(now - seat.last_beat);
    if (seat.health == Health::kAlive &&
        silence > kSuspectAfter * absl::ToDoubleSeconds(options_.heartbeat)) {
      return absl::StrFormat("%s: no heartbeat for %.1f s", NameOf(seat),
                             silence);
    }
    if (seat.last.phase() == v1::COLLECTIVE) {
      somebody_waits = true;
      continue;
    }
    const double seconds = seat.last.phase_seconds() + silence;
    if (slowest == nullptr || seconds > slowest_seconds) {
      slowest = &seat;
      slowest_seconds = seconds;
    }
  }
  if (slowest == nullptr || !somebody_waits) return "";
  std::string result =
      absl::StrFormat("%s in %s for %.1f s", NameOf(*slowest),
                      v1::Phase_Name(slowest->last.phase()), slowest_seconds);
  if (!slowest->last.waits_for().empty()) {
    absl::StrAppend(&result, ", waiting for ", slowest->last.waits_for());
  }
  return result;
}

}  // namespace flotilla
