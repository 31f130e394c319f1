#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"
#include "services/coordinator/limits.h"
#include "services/coordinator/ranks.h"
#include "services/coordinator/roster.h"

// How generations begin and end.

namespace flotilla {
namespace {

// A number no run reaches: whoever reports one is not to be believed.
constexpr uint64_t kAbsurdGeneration = uint64_t{1} << 48;

}  // namespace

absl::StatusOr<uint64_t> Roster::Join(const v1::JoinGenerationRequest& request,
                                      const std::string& key, absl::Time now) {
  MutexLock lock(&mu_);
  now_ = now;
  Seat* seat = Find(request.member_id());
  if (seat != nullptr) RETURN_IF_ERROR(CheckKey(*seat, key));
  if (seat != nullptr && seat->member.role() != v1::LEARNER) {
    return absl::InvalidArgumentError(absl::StrCat(
        request.member_id(), " is an env server: only learners join"));
  }
  if (request.after_generation() >= kAbsurdGeneration) {
    return absl::InvalidArgumentError(
        absl::StrCat("after_generation is ", request.after_generation(),
                     ", but there have only been ", generation_));
  }
  RETURN_IF_ERROR(CheckLayoutDigest(request.layout_digest()));
  RETURN_IF_ERROR(ResultOf(request).status());
  RETURN_IF_ERROR(CheckLayout(*seat, request.layout_digest()));
  if (request.after_generation() > generation_) {
    TakeNumber(request.after_generation());
  } else if (seat->rank >= 0 && request.after_generation() == generation_) {
    Fence(absl::StrCat(NameOf(*seat), " left generation ", generation_,
                       " to join the next"));
  }
  ASSIGN_OR_RETURN(const auto place, ResultOf(request));
  if (place.has_value()) return 0;

  const uint64_t ticket = next_ticket_++;
  const absl::Time since = seat->wish.has_value() ? seat->wish->since : now;
  seat->wish = Wish{ticket,
                    since,
                    absl::InfiniteFuture(),
                    request.last_committed_update(),
                    request.has_state(),
                    request.layout_digest()};
  Advance();
  ++status_version_;
  return ticket;
}

absl::StatusOr<std::optional<v1::Assignment>> Roster::JoinResult(
    const v1::JoinGenerationRequest& request) const {
  MutexLock lock(&mu_);
  ASSIGN_OR_RETURN(auto place, ResultOf(request));
  if (!place.has_value() && !Find(request.member_id())->wish.has_value()) {
    return absl::UnavailableError(absl::StrCat(
        request.member_id(), " does not wait any more: join again"));
  }
  return place;
}

absl::StatusOr<std::optional<v1::Assignment>> Roster::ResultOf(
    const v1::JoinGenerationRequest& request) const {
  const std::string& id = request.member_id();
  const Seat* seat = Find(id);
  if (seat == nullptr || seat->health != Health::kAlive ||
      seat->member.incarnation() < request.incarnation()) {
    return absl::NotFoundError(
        absl::StrCat("\"", id, "\" is not registered: register again"));
  }
  if (seat->member.incarnation() > request.incarnation()) {
    return absl::AlreadyExistsError(absl::StrCat(
        id, " was replaced by its incarnation ", seat->member.incarnation()));
  }
  if (closed_) return Over();
  // Also if it has been fenced meanwhile: the caller is told, and joins the
  // next.
  if (seat->rank >= 0 && !seat->wish.has_value() &&
      request.after_generation() < assignment_.generation()) {
    v1::Assignment assignment = assignment_;
    assignment.set_rank(seat->rank);
    assignment.set_local_rank(seat->member.local_rank());
    return assignment;
  }
  const bool may_save = request.has_state() &&
                        (state_ != v1::ACTIVE || seat->rank >= 0) &&
                        std::max(generation_, request.after_generation()) > 0;
  if (stop_ && !may_save) {
    return absl::AbortedError(
        absl::StrCat("the run was told to stop: ", stop_reason_));
  }
  if (state_ == v1::ACTIVE && seat->rank < 0 && !Recovering() &&
      assignment_.world_size() >= options_.max_learners) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the world is full: generation ", generation_, " has ",
                     assignment_.world_size(), " of at most ",
                     options_.max_learners, " learners, without ", id));
  }
  return std::nullopt;
}

// Those of the newest generation, who hold the run's state if anybody does, would lose it
// to a joiner that cannot take that. Where none of them is known to live, nobody can say
// whose layout is the right one: all may have begun anew.
absl::Status Roster::CheckLayout(const Seat& joiner,
                                 const std::string& digest) const {
  const std::string& theirs = assignment_.layout_digest();
  if (digest.empty() || theirs.empty() || digest == theirs ||
      joiner.rank >= 0) {
    return absl::OkStatus();
  }
  for (const v1::Member& learner : assignment_.learner()) {
    const Seat* seat = Find(learner.id());
    const bool holds = seat != nullptr && seat->rank >= 0 && IsThere(*seat) &&
                       seat->member.incarnation() == learner.incarnation();
    if (!holds) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        joiner.member.id(), " on ", joiner.member.host(),
        " has another network or other episode metrics than ", NameOf(*seat),
        " on ", seat->member.host(), " (layout digest \"", digest,
        "\", want \"", theirs,
        "\") and cannot join the run: its environments must have the same "
        "observations, actions, agents and episode metrics; install the same "
        "environments on all hosts"));
  }
  return absl::OkStatus();
}

// Not only believed to live.
bool Roster::IsThere(const Seat& seat) {
  return seat.health == Health::kAlive && !seat.suspect && !seat.awaited;
}

// Of those who joined while whom they do not fit was away. They are told as they ask
// again.
void Roster::EndWishesThatDoNotFit() {
  for (auto& [id, seat] : seats_) {
    if (!seat.wish.has_value() ||
        CheckLayout(seat, seat.wish->layout_digest).ok()) {
      continue;
    }
    seat.wish.reset();
    ++status_version_;
  }
}

void Roster::GiveUpJoin(const std::string& id, uint64_t ticket,
                        absl::Time lapses, absl::Time now) {
  MutexLock lock(&mu_);
  now_ = now;
  Seat* seat = Find(id);
  if (seat == nullptr || !seat->wish.has_value() ||
      seat->wish->ticket != ticket) {
    return;
  }
  seat->wish->lapses = lapses;
  EndLapsedWishes();
  Advance();
}

void Roster::EndLapsedWishes() {
  for (auto& [id, seat] : seats_) {
    if (!seat.wish.has_value() || now_ < seat.wish->lapses) continue;
    seat.wish.reset();
    ++status_version_;
  }
}

absl::Status Roster::ReportFailure(const v1::ReportFailureRequest& request,
                                   const std::string& key, absl::Time now) {
  MutexLock lock(&mu_);
  now_ = now;
  const uint64_t generation = request.generation();
  const Seat* seat = Find(request.member_id());
  if (seat != nullptr) RETURN_IF_ERROR(CheckKey(*seat, key));
  if (generation != 0 && generation <= fenced_) return absl::OkStatus();
  RETURN_IF_ERROR(CheckCurrent(generation));
  if (seat == nullptr || seat->rank < 0) {
    return absl::NotFoundError(absl::StrCat(
        "\"", request.member_id(), "\" is not in generation ", generation));
  }
  Fence(
      absl::StrCat(NameOf(*seat), " reported: ", Shortened(request.reason())));
  Advance();
  return absl::OkStatus();
}

absl::Status Roster::CheckGeneration(uint64_t generation) const {
  MutexLock lock(&mu_);
  return CheckCurrent(generation);
}

absl::Status Roster::CheckCurrent(uint64_t generation) const {
  if (generation == 0) {
    return absl::InvalidArgumentError(
        "generation is 0: name the one that JoinGeneration gave");
  }
  if (generation <= fenced_) {
    const std::string newest =
        generation_ > fenced_
            ? absl::StrCat("the current one is ", generation_)
            : absl::StrCat("generation ", fenced_ + 1, " is gathering");
    return absl::AbortedError(absl::StrCat("generation ", generation,
                                           " is fenced: ", fence_reason_, "; ",
                                           newest));
  }
  if (generation <= generation_) return absl::OkStatus();
  if (!formed_here_) {
    return absl::UnavailableError(
        absl::StrCat("this coordinator does not know generation ", generation,
                     " yet: it has just started"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "there is no generation ", generation, "; the newest is ", generation_));
}

void Roster::SetState(v1::GenerationState state) {
  if (state == state_) return;
  state_ = state;
  Changed();
}

void Roster::Fence(const std::string& reason) {
  if (state_ != v1::ACTIVE) return;
  fenced_ = generation_;
  fence_reason_ = reason;
  SetState(v1::FENCED);
}

// Somebody has been in a generation that this coordinator never heard of: all
// up to it are over.
void Roster::TakeNumber(uint64_t generation) {
  const std::string reason = absl::StrCat(
      "generation ", generation, " was numbered by another coordinator");
  Fence(reason);
  generation_ = fenced_ = generation;
  fence_reason_ = reason;
  Changed();
}

// A learner says that it is in `generation`. Without a journal that is how a
// restarted coordinator learns of it; it lets it be.
void Roster::Adopt(uint64_t generation, Seat* seat) {
  if (closed_ || generation >= kAbsurdGeneration) return;
  if (generation > generation_ && formed_here_) {
    TakeNumber(generation);
    return;
  }
  if (generation > generation_) {
    generation_ = generation;
    fenced_ = generation - 1;
    fence_reason_ = "the coordinator restarted since";
    for (auto& [id, other] : seats_) other.rank = -1;
    assignment_.Clear();
    assignment_.set_generation(generation);
    assignment_.set_epoch(options_.epoch);
    adopted_ = true;
    recovering_until_ = now_ + 2 * options_.dead_after;
    SetState(v1::ACTIVE);
  }
  const bool belongs = adopted_ && state_ == v1::ACTIVE && generation > 0 &&
                       generation == generation_ && seat->rank < 0;
  if (!belongs) return;
  for (const v1::Member& learner : assignment_.learner()) {
    if (learner.id() == seat->member.id()) return;
  }
  *assignment_.add_learner() = seat->member;
  assignment_.set_world_size(assignment_.learner_size());
  std::sort(assignment_.mutable_learner()->begin(),
            assignment_.mutable_learner()->end(), ComesBefore);
  for (int rank = 0; rank < assignment_.learner_size(); ++rank) {
    Seat* learner = Find(assignment_.learner(rank).id());
    if (learner != nullptr) learner->rank = rank;
  }
  Changed();
}

// Does what may now be possible: forms a generation, begins its last call, or
// ends one that has to let others in.
void Roster::Advance() {
  if (closed_) return;
  EndWishesThatDoNotFit();
  if (stop_) return AdvanceToStop();
  if (state_ == v1::ACTIVE) AdmitJoiners();
  if (state_ == v1::ACTIVE) return;

  const int wishes = CountWishes();
  const bool recovering = Recovering();
  if (wishes >= options_.max_learners) {
    Form();
  } else if (wishes < options_.min_learners || recovering) {
    forming_since_.reset();
    SetState(wishes == 0 && generation_ > 0 ? v1::FENCED : v1::GATHERING);
  } else if (generation_ > 0 && AllLearnersWish()) {
    Form();
  } else if (!forming_since_.has_value()) {
    forming_since_ = now_;
    SetState(v1::FORMING);
  } else if (now_ - *forming_since_ >= options_.last_call) {
    Form();
  }
}

// The last generation has all that hold the run's state and live. Those that do
// not, and those that replace them, have nothing to save.
void Roster::AdvanceToStop() {
  if (state_ == v1::ACTIVE || Recovering()) return;
  for (auto& [id, seat] : seats_) {
    if (seat.wish.has_value() && !(seat.wish->has_state && generation_ > 0)) {
      seat.wish.reset();
      ++status_version_;
    }
    const bool survivor = seat.health == Health::kAlive && seat.rank >= 0;
    if (survivor && !seat.wish.has_value()) return;
  }
  if (CountWishes() > 0) Form();
}

// An elastic generation ends to let joiners in: when they fill the world, or
// the first has waited for a last call. One that lost learners while the
// coordinator was away ends too. One that writes what the run came to does not: who
// formed the next would write it once more, into the same folder.
void Roster::AdmitJoiners() {
  if (Recovering()) return;
  const int world = assignment_.world_size();
  if (adopted_ && world < options_.min_learners) {
    Fence(absl::StrCat("only ", world, " of ", options_.min_learners,
                       " learners came back after the coordinator's restart"));
    return;
  }
  if (Concluding()) return;
  std::vector<std::string> joiners;
  absl::Time first = absl::InfiniteFuture();
  for (const auto& [id, seat] : seats_) {
    if (!seat.wish.has_value()) continue;
    joiners.push_back(id);
    first = std::min(first, seat.wish->since);
  }
  const int grown = world + static_cast<int>(joiners.size());
  if (joiners.empty() || world >= options_.max_learners) return;
  if (grown < options_.max_learners && now_ - first < options_.last_call) {
    return;
  }
  Fence(absl::StrCat(absl::StrJoin(joiners, ", "), " to join: the world grows ",
                     "from ", world, " to ",
                     std::min(grown, options_.max_learners)));
}

// Whether the run is at its end, as far as heartbeats say: rank 0 writes it, or
// evaluates for the last time, which alone names no update that waits for that. Of
// those who came back to a coordinator without a journal it is not known who leads.
bool Roster::Concluding() const {
  if (adopted_) return false;
  return std::any_of(seats_.begin(), seats_.end(), [](const auto& entry) {
    const Seat& seat = entry.second;
    const v1::Phase phase = seat.last.phase();
    return seat.rank >= 0 && seat.health == Health::kAlive &&
           (phase == v1::SAVING || phase == v1::FINISHED ||
            (phase == v1::EVALUATING && seat.rank == 0 &&
             seat.last.waits_for().empty()));
  });
}

void Roster::Form() {
  std::vector<PreviousPlace> previous;
  for (const v1::Member& member : assignment_.learner()) {
    const Seat* seat = Find(member.id());
    previous.push_back({member.id(), seat != nullptr && seat->rank >= 0 &&
                                         seat->wish.has_value()});
  }
  std::vector<Seat*> chosen;
  for (auto& [id, seat] : seats_) {
    if (seat.wish.has_value()) chosen.push_back(&seat);
  }
  // If there are too many: survivors first.
  std::sort(chosen.begin(), chosen.end(), [](const Seat* a, const Seat* b) {
    if ((a->rank >= 0) != (b->rank >= 0)) return a->rank >= 0;
    if (a->rank != b->rank) return a->rank < b->rank;
    return ComesBefore(a->member, b->member);
  });
  if (chosen.size() > static_cast<size_t>(options_.max_learners)) {
    chosen.resize(options_.max_learners);
  }
  std::vector<v1::Member> learners;
  for (const Seat* seat : chosen) learners.push_back(seat->member);

  ++generation_;
  assignment_.Clear();
  assignment_.set_generation(generation_);
  assignment_.set_epoch(options_.epoch);
  assignment_.set_world_size(static_cast<int>(chosen.size()));
  assignment_.set_stopping(stop_);
  assignment_.set_learner_restarts(LearnerRestarts());
  for (auto& [id, seat] : seats_) seat.rank = -1;
  std::vector<Seat*> by_rank;
  for (v1::Member& learner : RankLearners(std::move(learners), previous)) {
    Seat* seat = Find(learner.id());
    seat->rank = static_cast<int>(by_rank.size());
    by_rank.push_back(seat);
    *assignment_.add_learner() = std::move(learner);
  }
  ChooseSource(by_rank);
  for (Seat* seat : by_rank) seat->wish.reset();

  collected_.clear();
  collected_update_ = preempt_update_ = 0;
  forming_since_.reset();
  recovering_until_ = absl::InfinitePast();
  formed_here_ = true;
  adopted_ = false;
  SetState(v1::ACTIVE);
  Changed();
}

// Everybody takes the state of whoever has the most updates; of the lowest rank
// among equals.
void Roster::ChooseSource(const std::vector<Seat*>& seats) {
  const Wish* best = nullptr;
  for (size_t rank = 0; rank < seats.size(); ++rank) {
    const Wish& wish = *seats[rank]->wish;
    if (!wish.has_state) continue;
    if (best != nullptr &&
        wish.last_committed_update <= best->last_committed_update) {
      continue;
    }
    best = &wish;
    assignment_.set_source_rank(static_cast<int>(rank));
    assignment_.set_last_committed_update(wish.last_committed_update);
  }
  assignment_.set_layout_digest(
      seats[assignment_.source_rank()]->wish->layout_digest);
}

bool Roster::Recovering() const {
  if (now_ >= recovering_until_) return false;
  if (adopted_) return assignment_.world_size() < options_.max_learners;
  for (const auto& [id, seat] : seats_) {
    if (seat.awaited) return true;
  }
  return false;
}

int Roster::CountWishes() const {
  return static_cast<int>(std::count_if(
      seats_.begin(), seats_.end(),
      [](const auto& entry) { return entry.second.wish.has_value(); }));
}

bool Roster::AllLearnersWish() const {
  return std::all_of(seats_.begin(), seats_.end(), [](const auto& entry) {
    const Seat& seat = entry.second;
    return seat.member.role() != v1::LEARNER || seat.health != Health::kAlive ||
           seat.wish.has_value();
  });
}

std::string Roster::WhyNotFormed() const {
  MutexLock lock(&mu_);
  return Missing();
}

std::string Roster::Missing() const {
  constexpr size_t kNamed = 8;
  std::vector<std::string> there, absent;
  for (const auto& [id, seat] : seats_) {
    if (seat.member.role() != v1::LEARNER) continue;
    if (seat.wish.has_value()) {
      there.push_back(id);
    } else if (seat.health == Health::kAlive) {
      absent.push_back(id);
    } else if (seat.rank >= 0) {
      absent.push_back(absl::StrCat(
          id, seat.health == Health::kLeft ? " (left)" : " (dead)"));
    }
  }
  const auto names = [](std::vector<std::string>* ids) {
    if (ids->size() > kNamed) {
      const size_t more = ids->size() - kNamed;
      ids->resize(kNamed);
      ids->push_back(absl::StrCat("and ", more, " more"));
    }
    return absl::StrJoin(*ids, ", ");
  };
  std::string result = absl::StrCat(there.size(), " of ", options_.min_learners,
                                    " learners have joined");
  if (!there.empty()) absl::StrAppend(&result, " (", names(&there), ")");
  if (forming_since_.has_value()) {
    absl::StrAppendFormat(
        &result, "; last call for up to %d more, %.1f s left",
        options_.max_learners - CountWishes(),
        std::max(0.0, absl::ToDoubleSeconds(*forming_since_ +
                                            options_.last_call - now_)));
  }
  if (!absent.empty()) {
    absl::StrAppend(&result, "; not joined: ", names(&absent));
  } else if (!forming_since_.has_value()) {
    absl::StrAppend(&result, "; the others have not registered");
  }
  return result;
}

}  // namespace flotilla
