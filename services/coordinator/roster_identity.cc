#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/base/secret.h"
#include "services/base/status_macros.h"
#include "services/coordinator/limits.h"
#include "services/coordinator/roster.h"

// Who may speak for whom.

namespace flotilla {
namespace {

absl::Status NotYours(const std::string& id) {
  return absl::PermissionDeniedError(absl::StrCat(
      "\"", id,
      "\" is another's: this call does not show the secret that it registered "
      "with (metadata flotilla-secret; launchers keep those of their learners "
      "in RUN/secrets)"));
}

}  // namespace

// Whether it may have the id at all.
absl::Status Roster::CheckClaim(const v1::Member& member,
                                const std::string& key) const {
  const std::string& id = member.id();
  if (key.empty()) {
    return absl::UnauthenticatedError(absl::StrCat(
        id,
        " shows no secret: registering takes metadata flotilla-secret, 32 "
        "to 256 characters that its member alone knows"));
  }
  const uint64_t incarnation = member.incarnation();
  const Seat* seat = Find(id);
  if (seat == nullptr) {
    const auto earlier = earlier_keys_.find(id);
    if (earlier != earlier_keys_.end() &&
        !EqualInConstantTime(earlier->second, key)) {
      return NotYours(id);
    }
    if (incarnation <= kMaxFirstIncarnation) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(id, ": member.incarnation is ", incarnation,
                     ", want at most ", kMaxFirstIncarnation));
  }
  if (member.role() != seat->member.role()) {
    return absl::InvalidArgumentError(absl::StrCat(
        id, ": member.role is ", v1::Role_Name(member.role()),
        ", but it is registered as ", v1::Role_Name(seat->member.role())));
  }
  const bool given_up =
      seat->health == Health::kLeft ||
      (seat->health == Health::kDead && seat->member.role() == v1::ENV_SERVER);
  if (!given_up) RETURN_IF_ERROR(CheckKey(*seat, key));
  const uint64_t before = seat->member.incarnation();
  if (incarnation <= before || incarnation - before <= kMaxIncarnationStep) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(id, ": member.incarnation jumps from ", before, " to ",
                   incarnation, ", want at most ", kMaxIncarnationStep,
                   " further: it counts its starts"));
}

absl::Status Roster::CheckKey(const Seat& seat, const std::string& key) {
  if (EqualInConstantTime(seat.key, key)) return absl::OkStatus();
  return NotYours(seat.member.id());
}

absl::Status Roster::CheckLearner(const std::string& id,
                                  const std::string& key) const {
  const Seat* seat = Find(id);
  if (seat != nullptr) RETURN_IF_ERROR(CheckKey(*seat, key));
  if (seat != nullptr && seat->member.role() == v1::LEARNER &&
      seat->health == Health::kAlive) {
    return absl::OkStatus();
  }
  return absl::NotFoundError(
      absl::StrCat("\"", id, "\" is no registered learner"));
}

absl::Status Roster::CheckInGeneration(uint64_t generation,
                                       const std::string& id,
                                       const std::string& key) const {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(CheckCurrent(generation));
  const Seat* seat = Find(id);
  if (seat != nullptr) RETURN_IF_ERROR(CheckKey(*seat, key));
  if (seat != nullptr && seat->rank >= 0) return absl::OkStatus();
  if (adopted_) {
    return absl::UnavailableError(absl::StrCat(
        "this coordinator does not know \"", id, "\" as one of generation ",
        generation, " yet: it has just started"));
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "\"", id, "\" is not in generation ", generation,
      ": its values are its members' (metadata flotilla-member and "
      "flotilla-secret say who calls)"));
}

}  // namespace flotilla
