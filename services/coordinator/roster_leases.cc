#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/coordinator/limits.h"
#include "services/coordinator/roster.h"

// Which learner plays on which env server.

namespace flotilla {

absl::StatusOr<std::vector<v1::Member>> Roster::LeaseEnvServers(
    const v1::LeaseEnvServersRequest& request, const std::string& key) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(CheckLearner(request.member_id(), key));
  if (request.count() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("count is ", request.count(), ", want 1 or more"));
  }
  RETURN_IF_ERROR(CheckDialAddress(request.dial_address()));
  RETURN_IF_ERROR(CheckLeaseId(request.lease_id()));
  std::vector<v1::Member> result;
  std::vector<Seat*> free;
  for (auto& [id, seat] : seats_) {
    const bool given = !request.lease_id().empty() &&
                       seat.lease_id == request.lease_id() &&
                       seat.lessee == request.member_id();
    if (given) {  // and the answer was lost
      result.push_back(seat.member);
    } else if (seat.member.role() == v1::ENV_SERVER &&
               seat.health == Health::kAlive && !seat.suspect &&
               seat.lessee.empty() &&
               (!seat.member.dials() || !request.dial_address().empty())) {
      free.push_back(&seat);
    }
  }
  // The learner's own host first.
  const std::string& host = Find(request.member_id())->member.host();
  std::stable_partition(free.begin(), free.end(), [&](const Seat* seat) {
    return seat->member.host() == host;
  });
  const size_t count = static_cast<size_t>(request.count());
  const size_t missing = count - std::min(count, result.size());
  if (free.size() > missing) free.resize(missing);
  for (Seat* seat : free) {
    seat->lessee = request.member_id();
    seat->lease_id = request.lease_id();
    seat->given_back_by.clear();
    if (seat->member.dials()) seat->dial = request.dial_address();
    result.push_back(seat->member);
  }
  if (!free.empty()) ++status_version_;
  return result;
}

absl::Status Roster::ReleaseEnvServers(
    const v1::ReleaseEnvServersRequest& request, const std::string& key) {
  MutexLock lock(&mu_);
  const Seat* lessee = Find(request.member_id());
  if (lessee == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(CheckKey(*lessee, key));
  for (const std::string& id : request.env_server_id()) {
    Seat* seat = Find(id);
    if (seat == nullptr || seat->lessee != request.member_id()) continue;
    EndLease(seat);
    seat->given_back_by = request.member_id();
    ++status_version_;
  }
  return absl::OkStatus();
}

void Roster::EndLease(Seat* seat) {
  seat->lessee.clear();
  seat->lease_id.clear();
  seat->reported = false;
  seat->dial.clear();
}

void Roster::TakeEnvWorkers(const v1::Heartbeat& heartbeat, Seat* seat) {
  // Workers that came and went over a long run: those that are left report
  // again.
  if (seat->env_workers.size() + heartbeat.env_worker_size() > kMaxEnvWorkers) {
    seat->env_workers.clear();
  }
  for (const v1::EnvServerStatus& worker : heartbeat.env_worker()) {
    v1::EnvServerStatus& known = seat->env_workers[worker.id()];
    TakeServer(known.server_id(), worker.server_id(), seat->member.id());
    known = worker;
  }
}

// Where a worker of `learner` plays, and did by its last report. Leases are not in
// the journal: what was leased by another coordinator, or to a learner that was
// taken for dead, is known by that alone, and ends when a report says otherwise. A
// report from before a release does not undo it.
void Roster::TakeServer(const std::string& before, const std::string& now,
                        const std::string& learner) {
  if (before != now) {
    Seat* left = Find(before);
    if (left != nullptr && left->reported && left->lessee == learner) {
      EndLease(left);
      ++status_version_;
    }
  }
  Seat* server = Find(now);
  if (server == nullptr || server->member.role() != v1::ENV_SERVER ||
      server->health != Health::kAlive || !server->lessee.empty() ||
      server->given_back_by == learner) {
    return;
  }
  server->lessee = learner;
  server->reported = true;
  ++status_version_;
}

}  // namespace flotilla
