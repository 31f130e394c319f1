#include "learner/collective/rendezvous.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"

namespace flotilla {
namespace {

std::string KeyOf(const std::string& topic, int rank) {
  return absl::StrCat("collective/", topic, "/", rank);
}

// "rank 1 (learner/0/1 on host-b, process 17)"
std::string Name(const v1::Assignment& assignment, int rank) {
  if (rank >= assignment.learner_size()) return absl::StrCat("rank ", rank);
  const v1::Member& member = assignment.learner(rank);
  return absl::StrCat("rank ", rank, " (", member.id(), " on ", member.host(),
                      ", process ", member.pid(), ")");
}

absl::Status NameTheMissing(const v1::Assignment& assignment,
                            CoordinatorClient* coordinator,
                            const std::string& topic, absl::Duration timeout) {
  std::vector<std::string> missing;
  for (int rank = 0; rank < assignment.world_size(); ++rank) {
    const auto here =
        coordinator->Check(assignment.generation(), {KeyOf(topic, rank)});
    if (here.ok() && !*here) missing.push_back(Name(assignment, rank));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "generation ", assignment.generation(), ": after ",
      absl::FormatDuration(timeout), " these learners have not come to ", topic,
      ": ", absl::StrJoin(missing, ", ")));
}

absl::Status Tell(const v1::Assignment& assignment,
                  CoordinatorClient* coordinator, const std::string& topic,
                  const std::string& value) {
  return coordinator->Set(assignment.generation(),
                          KeyOf(topic, assignment.rank()), value);
}

absl::StatusOr<std::vector<std::string>> Hear(const v1::Assignment& assignment,
                                              CoordinatorClient* coordinator,
                                              const std::string& topic,
                                              absl::Duration timeout) {
  std::vector<std::string> keys, values;
  for (int rank = 0; rank < assignment.world_size(); ++rank) {
    keys.push_back(KeyOf(topic, rank));
  }
  const uint64_t generation = assignment.generation();
  RETURN_IF_ERROR(coordinator->Wait(generation, keys, timeout));
  for (const std::string& key : keys) {
    ASSIGN_OR_RETURN(std::string theirs,
                     coordinator->Get(generation, key, timeout));
    values.push_back(std::move(theirs));
  }
  return values;
}

}  // namespace

absl::Status MeetAll(const v1::Assignment& assignment,
                     CoordinatorClient* coordinator, const std::string& topic,
                     absl::Duration timeout) {
  return ExchangeAll(assignment, coordinator, topic, "here", timeout).status();
}

absl::StatusOr<std::vector<std::string>> ExchangeAll(
    const v1::Assignment& assignment, CoordinatorClient* coordinator,
    const std::string& topic, const std::string& value, absl::Duration timeout,
    Told* told) {
  Told just_this;
  if (told == nullptr) told = &just_this;
  told->emplace_back(topic, value);
  const absl::Time deadline = SteadyNow() + timeout;
  RETURN_IF_ERROR(Tell(assignment, coordinator, topic, value));
  while (true) {
    const absl::Duration left = deadline - SteadyNow();
    auto values =
        Hear(assignment, coordinator, topic, std::min(left, kTellAgain));
    if (!absl::IsDeadlineExceeded(values.status())) return values;
    if (left <= kTellAgain) {
      return NameTheMissing(assignment, coordinator, topic, timeout);
    }
    RETURN_IF_ERROR(TellAgain(assignment, coordinator, *told));
  }
}

absl::Status TellAgain(const v1::Assignment& assignment,
                       CoordinatorClient* coordinator, const Told& told) {
  for (const auto& [topic, value] : told) {
    const absl::Status status = Tell(assignment, coordinator, topic, value);
    if (absl::IsUnavailable(status)) break;
    RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

bool OnSameHost(const v1::Member& a, const v1::Member& b) {
  // Learners of before say nothing of networks.
  return a.host() == b.host() && (a.network() == b.network() ||
                                  a.network().empty() || b.network().empty());
}

bool OnOneHost(const v1::Assignment& assignment) {
  return std::ranges::all_of(assignment.learner(),
                             [&](const v1::Member& member) {
                               return OnSameHost(member, assignment.learner(0));
                             });
}

}  // namespace flotilla
