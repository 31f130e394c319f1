#include "learner/actor/agent_collector.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "learner/device/host.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/env/group_layout.h"

namespace flotilla {
namespace {

// Nobody has decided yet.
void Empty(Rollout* r) {
  r->valid.zero_();
  r->reward.zero_();
  r->terminated.zero_();
  r->truncated.zero_();
  r->value.zero_();
  r->final_step.clear();
  r->final_observation.clear();
}

template <typename T>
void CopyRow(const torch::Tensor& from, int64_t from_index,
             const torch::Tensor& to, int64_t to_index, int64_t width = 1) {
  if (width == 0) return;
  std::copy_n(Host<T>(from) + from_index * width, width,
              Host<T>(to) + to_index * width);
}

// Everything but the observation that is known of a decision before its outcome.
void CopyDecision(const Rollout& from, int64_t from_index, Rollout* to,
                  int64_t to_index, const ActionSpace& space) {
  CopyRow<int64_t>(from.action.discrete, from_index, to->action.discrete,
                   to_index, space.choices());
  CopyRow<float>(from.action.continuous, from_index, to->action.continuous,
                 to_index, space.continuous);
  CopyRow<float>(from.log_prob, from_index, to->log_prob, to_index);
  CopyRow<float>(from.value, from_index, to->value, to_index);
  CopyRow<float>(from.reward, from_index, to->reward, to_index);
}

}  // namespace

AgentCollector::AgentCollector(EnvPool* pool, const Spaces& spaces,
                               const Options& options, Normalizer* normalizer)
    : Collector(pool, spaces, options, normalizer),
      agents_(pool->spec().agents()),
      started_(pool->num_slots(), false),
      in_flight_(pool->num_slots(), false),
      columns_(spaces.action) {
  const int64_t all = int64_t{pool->num_slots()} * pool->rows_per_slot();
  int64_t theirs = 0;
  for (int64_t i = 0; i < all; ++i) {
    Seat seat;
    seat.learns = LearnsOf(i, agents_, options.opponent_slots);
    seat.row = seat.learns ? rows_++ : theirs++;
    seats_.push_back(seat);
  }
  games_.resize(all / agents_);
  carried_ = MakeRollout(spaces, /*length=*/1, rows_, /*pinned=*/false);
  aside_ = ObservationStore(spaces, spaces.max_stack() + 1,
                            std::max<int64_t>(1, theirs), /*pinned=*/false,
                            ObservationStore::Form::kRing);
  final_row_.resize(carried_.observation.row_bytes());
  sent_discrete_.resize(pool->rows_per_slot() * spaces.action.choices());
  sent_continuous_.resize(pool->rows_per_slot() * spaces.action.continuous);
}

absl::Status AgentCollector::Fill(const Task& task) {
  Rollout* const r = task.rollout;
  const Preemption* const preemption = task.preemption;
  const absl::Time began = SteadyNow();
  Begin(task);
  filled_ = false;
  bool preempted = false, cut = false, full = false;
  std::optional<absl::Time> asked_at, waits_since;
  // Slots may stand still for long; an environment's slots hardly all at once.
  const int64_t most = 4 * r->length * agents_;
  for (int64_t pass = 0; !preempted && !cut && !full; ++pass) {
    const auto asked = [&] {
      if (preemption == nullptr || pass < preemption->min_steps) return false;
      if (!asked_at && preemption->asked()) asked_at = SteadyNow();
      return asked_at.has_value();
    };
    // Steps on their way get as long as two have taken so far, also those that were
    // sent after the question.
    const auto give_up = [&] {
      return asked() && SteadyNow() - waits_since.value_or(*asked_at) >
                            2 * (*asked_at - began) / pass;
    };
    preempted = asked();
    if (preempted) waits_since = SteadyNow();
    cut = pass > 0 && Alarmed();
    for (int slot = 0; slot < pool_->num_slots(); ++slot) {
      if (pass > 0 || in_flight_[slot] || !started_[slot]) {
        ASSIGN_OR_RETURN(const EnvPool::Event event, Take(slot, task, give_up));
        preempted |= event == EnvPool::Event::kLate;
        if (event == EnvPool::Event::kLate ||
            event == EnvPool::Event::kAbsent) {
          continue;
        }
      }
      const Deciding deciding(this, task.stats);
      full |= Full(slot, r->length) || pass >= most;
      if (preempted || cut || Full(slot, r->length)) {
        Value(slot, task);
        Carry(slot, *r);
      } else {
        Decide(slot, task);
      }
    }
  }
  task.stats->preempted = preempted && !cut && !full;
  for (int slot = 0; slot < pool_->num_slots(); ++slot) {
    if (in_flight_[slot]) Carry(slot, *r);
  }
  r->played = 0;
  for (const Seat& seat : seats_) {
    if (seat.learns) r->played = std::max(r->played, seat.at);
  }
  const uint8_t* valid = Host<uint8_t>(r->valid);
  r->valid_steps = std::accumulate(valid, valid + r->length * rows_, int64_t{});
  filled_ = true;
  return absl::OkStatus();
}

// What was begun before opens the rollout.
void AgentCollector::Begin(const Task& task) {
  Rollout* const r = task.rollout;
  Empty(r);
  if (state_size_ != task.policy->state_size()) {
    state_size_ = task.policy->state_size();
    state_.assign(seats_.size() * state_size_, 0.0f);
    before_.assign(rows_ * state_size_, 0.0f);
  }
  for (int64_t i = 0; i < static_cast<int64_t>(seats_.size()); ++i) {
    Seat& seat = seats_[i];
    // What was decided in a rollout that was not finished is gone.
    if (!filled_ && in_flight_[i / pool_->rows_per_slot()]) {
      if (seat.pending && seat.learns) normalizer_->Forget(seat.row, 1);
      seat.fresh |= seat.pending;
      seat.pending = false;
    }
    // A pending decision's own is what an update begins with, and the next follows.
    if (options_.reset_state && !seat.pending) {
      std::ranges::fill(StateOf(i), 0.0f);
    }
    if (!seat.learns) continue;
    seat.at = 0;
    if (state_size_ > 0) {
      const float* at_first =
          seat.pending ? &before_[seat.row * state_size_] : StateOf(i).data();
      std::copy_n(at_first, state_size_,
                  Host<float>(r->initial_state) + seat.row * state_size_);
    }
    if (!seat.due && !seat.pending) continue;
    r->observation.CopyRowStep(0, carried_.observation, 0, seat.row);
    if (seat.pending) {
      CopyDecision(carried_, seat.row, r, seat.row, spaces_.action);
    }
  }
}

// What the slot's seats see, or have decided, opens the next rollout.
void AgentCollector::Carry(int slot, const Rollout& r) {
  const int64_t first = pool_->first_row(slot);
  for (int64_t i = first; i < first + pool_->rows_per_slot(); ++i) {
    const Seat& seat = seats_[i];
    if (!seat.learns || (!seat.due && !seat.pending)) continue;
    carried_.observation.CopyRowStep(0, r.observation, seat.at, seat.row);
    if (seat.pending) {
      CopyDecision(r, seat.at * rows_ + seat.row, &carried_, seat.row,
                   spaces_.action);
    }
  }
}

absl::StatusOr<EnvPool::Event> AgentCollector::Take(
    int slot, const Task& task, absl::FunctionRef<bool()> give_up) {
  Rollout* const r = task.rollout;
  const int64_t first = pool_->first_row(slot);
  const absl::StatusOr<EnvPool::Event> event = Receive(slot, task, give_up);
  RETURN_IF_ERROR(event.status());
  if (*event == EnvPool::Event::kLate) return event;
  in_flight_[slot] = false;
  started_[slot] = true;
  if (*event != EnvPool::Event::kStep) {  // a worker is lost, or a new one here
    for (int i = 0; i < pool_->rows_per_slot(); ++i) {
      Lose(&seats_[first + i], first + i, r);
      games_[(first + i) / agents_] = Game();
    }
    if (*event == EnvPool::Event::kAbsent) return event;
  } else {
    for (int i = 0; i < pool_->rows_per_slot(); ++i) TakeOutcome(slot, i, task);
    TakeEpisodes(slot, task);
  }
  for (int i = 0; i < pool_->rows_per_slot(); ++i) TakeObservation(slot, i, r);
  return event;
}

void AgentCollector::TakeEpisodes(int slot, const Task& task) {
  const int64_t first = pool_->first_row(slot);
  const v1::StepBatch& batch = pool_->batch(slot);
  for (const v1::EpisodeEnd& end : batch.episode_end()) {
    const Seat& seat = seats_[first + end.row()];
    Game& game = games_[(first + end.row()) / agents_];
    (seat.learns ? game.learners : game.opponents) += end.raw_return();
    if (seat.learns) {
      task.stats->episodes.push_back(EpisodeOf(seat.row, end));
      task.stats->episodes.back().agent =
          static_cast<int>((first + end.row()) % agents_);
    }
  }
  // Its slots' ends may be many; the game has one.
  std::vector<bool> ended(batch.reward().size() / sizeof(float) / agents_);
  for (const v1::EpisodeEnd& end : batch.episode_end()) {
    if (!end.others_play_on()) ended[end.row() / agents_] = true;
  }
  for (const v1::RowError& error : batch.error()) {
    games_[(first + error.row()) / agents_] = Game();
  }
  const int theirs = options_.opponent_slots;
  for (size_t g = 0; g < ended.size(); ++g) {
    if (!ended[g]) continue;
    Game& game = games_[first / agents_ + g];
    if (game.opponent.policy != nullptr) {
      const double mine = game.learners / (agents_ - theirs);
      const double other = game.opponents / theirs;
      task.stats->games.push_back({game.opponent.snapshot, mine > other ? 1.0
                                                           : mine < other
                                                               ? 0
                                                               : 0.5});
    }
    game = Game();
  }
}

// What the last action of the slot's row `i` has brought so far.
void AgentCollector::TakeOutcome(int slot, int i, const Task& task) {
  const v1::StepBatch& batch = pool_->batch(slot);
  const int64_t index = pool_->first_row(slot) + i;
  Seat& seat = seats_[index];
  const auto failed = [&](const v1::RowError& e) { return e.row() == i; };
  if (std::ranges::any_of(batch.error(), failed)) {
    return Lose(&seat, index, task.rollout);
  }
  const bool active = IsActive(batch, i);
  const bool terminated = batch.terminated()[i],
             truncated = batch.truncated()[i];
  const bool ended = terminated || truncated;
  if (seat.pending && seat.learns) {
    Rollout* const r = task.rollout;
    const int64_t at = seat.at * rows_ + seat.row;
    float reward;
    std::memcpy(&reward, batch.reward().data() + i * sizeof(float),
                sizeof(float));
    const auto clamp = static_cast<float>(pool_->env().reward_clamp());
    Host<float>(r->reward)[at] +=
        clamp > 0 ? std::clamp(reward, -clamp, clamp) : reward;
    Host<uint8_t>(r->terminated)[at] = terminated;
    Host<uint8_t>(r->truncated)[at] = truncated;
    if (truncated && !terminated && options_.bootstrap_truncation) {
      Bootstrap(slot, i, task);
    }
  }
  if (seat.pending && (ended || active)) {
    Complete(&seat, /*valid=*/true, ended, task.rollout);
  }
  if (ended) {
    seat.fresh = true;
    std::ranges::fill(StateOf(index), 0.0f);
  }
}

void AgentCollector::Complete(Seat* seat, bool valid, bool ended, Rollout* r) {
  if (seat->learns) {
    const int64_t at = seat->at * rows_ + seat->row;
    const uint8_t is_valid = valid, over = ended || !valid;
    Host<uint8_t>(r->valid)[at] = is_valid;
    normalizer_->Reward(seat->row, 1, &over, &is_valid,
                        Host<float>(r->reward) + at);
  }
  seat->pending = false;
  ++seat->at;
}

void AgentCollector::Lose(Seat* seat, int64_t index, Rollout* r) {
  if (seat->pending) {
    if (seat->learns) {
      const int64_t at = seat->at * rows_ + seat->row;
      Host<float>(r->reward)[at] = 0;
      Host<uint8_t>(r->terminated)[at] = 0;
      Host<uint8_t>(r->truncated)[at] = 0;
    }
    Complete(seat, /*valid=*/false, /*ended=*/true, r);
  }
  seat->due = false;
  seat->fresh = true;
  std::ranges::fill(StateOf(index), 0.0f);
}

void AgentCollector::TakeObservation(int slot, int i, Rollout* r) {
  const v1::StepBatch& batch = pool_->batch(slot);
  Seat& seat = seats_[pool_->first_row(slot) + i];
  seat.due = IsActive(batch, i);
  if (!seat.due) return;
  ObservationStore* store = StoreOf(seat, r);
  store->WriteRow(
      seat.at, seat.row,
      [&](int leaf) { return pool_->Observation(slot, leaf); }, i);
  if (seat.fresh) {
    store->Restart(seat.at, seat.row, 1);
  } else {
    const uint8_t goes_on = 0;
    store->Continue(seat.at, seat.row, 1, &goes_on);
  }
  seat.fresh = false;
  if (!normalizer_->observations()) return;
  float* numbers = store->Numbers(seat.at, seat.row);
  const auto failed = [&](const v1::RowError& e) { return e.row() == i; };
  // What opponents see is theirs, and whoever failed may see nothing yet.
  if (seat.learns && std::ranges::none_of(batch.error(), failed)) {
    normalizer_->Observe(numbers, 1, store->stride());
  } else {
    normalizer_->Scale(numbers, 1, store->stride());
  }
}

void AgentCollector::Bootstrap(int slot, int i, const Task& task) {
  const v1::StepBatch& batch = pool_->batch(slot);
  const int64_t index = pool_->first_row(slot) + i;
  const Seat& seat = seats_[index];
  Rollout* const r = task.rollout;
  const auto found = std::ranges::find(batch.final_row(), i);
  if (found == batch.final_row().end()) return;
  r->observation.EncodeRow(
      [&](int leaf) -> absl::string_view {
        return batch.final_observation().leaf(leaf);
      },
      found - batch.final_row().begin(), final_row_.data());
  if (normalizer_->observations()) {
    normalizer_->Scale(ObservationStore::NumbersOf(final_row_.data()), 1,
                       r->observation.stride());
  }
  const int64_t at = seat.at * rows_ + seat.row;
  r->final_step.push_back(at);
  r->final_observation.insert(r->final_observation.end(), final_row_.begin(),
                              final_row_.end());
  Observations seen;
  seen.state = StateOf(index).data();
  r->observation.ViewFinal(seat.at, seat.row, final_row_.data(), &scratch_,
                           &seen);
  task.policy->Value(seen, Host<float>(r->bootstrap_value) + at);
}

bool AgentCollector::Full(int slot, int64_t T) const {
  const Seat* seat = &seats_[pool_->first_row(slot)];
  return std::any_of(seat, seat + pool_->rows_per_slot(), [&](const Seat& s) {
    return s.learns && s.due && s.at >= T;
  });
}

Policy* AgentCollector::PlayerOf(int64_t seat, const Task& task) {
  Game& game = games_[seat / agents_];
  if (!game.chosen && task.opponents != nullptr) {
    game.opponent = task.opponents->Choose(task.draws);
    game.chosen = true;
  }
  if (seats_[seat].learns || game.opponent.policy == nullptr) {
    return task.policy;
  }
  return game.opponent.policy.get();
}

void AgentCollector::Decide(int slot, const Task& task) {
  const ActionSpace& space = spaces_.action;
  const int64_t first = pool_->first_row(slot), rows = pool_->rows_per_slot();
  // Whoever does not decide is sent what is allowed and means nothing.
  std::ranges::fill(sent_discrete_, 0);
  std::ranges::fill(sent_continuous_, 0.0f);
  std::vector<Policy*> players(rows, nullptr);
  for (int64_t i = 0; i < rows; ++i) {
    if (seats_[first + i].due) players[i] = PlayerOf(first + i, task);
  }
  for (int64_t i = 0; i < rows; ++i) {
    Policy* const player = players[i];
    if (player == nullptr) continue;
    deciding_seats_.clear();
    for (int64_t j = i; j < rows; ++j) {
      if (players[j] != player) continue;
      deciding_seats_.push_back(first + j);
      players[j] = nullptr;
    }
    DecideFor(deciding_seats_, player, task);
  }
  in_flight_[slot] = true;
  pool_->Send(
      slot,
      columns_.Write(space.choices() > 0 ? sent_discrete_.data() : nullptr,
                     space.continuous > 0 ? sent_continuous_.data() : nullptr,
                     rows));
}

void AgentCollector::Gather(std::span<const int64_t> seats, int64_t state_size,
                            Rollout* r) {
  const auto m = static_cast<int64_t>(seats.size());
  seen_ = r->observation.EmptyBatch(m);
  row_state_.resize(m * state_size);
  for (int64_t i = 0; i < m; ++i) {
    const Seat& seat = seats_[seats[i]];
    StoreOf(seat, r)->CopyRow(seat.at, seat.row, i, &seen_);
    std::copy_n(StateOf(seats[i]).data(), state_size,
                row_state_.data() + i * state_size);
  }
  pointers_.clear();
  for (const torch::Tensor& leaf : seen_.leaf) {
    pointers_.push_back(HostBytes(leaf));
  }
  see_.leaf = pointers_.data();
  see_.rows = m;
  see_.state = row_state_.data();
}

void AgentCollector::DecideFor(std::span<const int64_t> seats, Policy* policy,
                               const Task& task) {
  Rollout* const r = task.rollout;
  const int64_t K = spaces_.action.choices(), A = spaces_.action.continuous;
  const auto m = static_cast<int64_t>(seats.size());
  Gather(seats, state_size_, r);
  discrete_.resize(m * K);
  continuous_.resize(m * A);
  log_prob_.resize(m);
  value_.resize(m);
  next_state_.resize(m * state_size_);
  DecisionOutput out;
  out.discrete = K > 0 ? discrete_.data() : nullptr;
  out.continuous = A > 0 ? continuous_.data() : nullptr;
  out.log_prob = log_prob_.data();
  out.value = value_.data();
  out.state = next_state_.data();
  policy->Decide(see_, /*greedy=*/false, task.draws, out);
  for (int64_t i = 0; i < m; ++i) {
    Seat& seat = seats_[seats[i]];
    const int64_t sent = seats[i] % pool_->rows_per_slot();
    std::copy_n(discrete_.data() + i * K, K, sent_discrete_.data() + sent * K);
    std::copy_n(continuous_.data() + i * A, A,
                sent_continuous_.data() + sent * A);
    if (seat.learns) {
      const int64_t at = seat.at * rows_ + seat.row;
      if (K > 0) {
        std::copy_n(discrete_.data() + i * K, K,
                    Host<int64_t>(r->action.discrete) + at * K);
      }
      if (A > 0) {
        std::copy_n(continuous_.data() + i * A, A,
                    Host<float>(r->action.continuous) + at * A);
      }
      Host<float>(r->log_prob)[at] = log_prob_[i];
      Host<float>(r->value)[at] = value_[i];
      std::copy_n(row_state_.data() + i * state_size_, state_size_,
                  before_.data() + seat.row * state_size_);
      // What was in flight when a collection failed may have ended the game since
      // Begin.
      if (seat.at == 0 && state_size_ > 0) {
        std::copy_n(row_state_.data() + i * state_size_, state_size_,
                    Host<float>(r->initial_state) + seat.row * state_size_);
      }
    }
    std::copy_n(next_state_.data() + i * state_size_, state_size_,
                StateOf(seats[i]).data());
    seat.due = false;
    seat.pending = true;
  }
}

void AgentCollector::Value(int slot, const Task& task) {
  const int64_t first = pool_->first_row(slot);
  deciding_seats_.clear();
  for (int64_t i = first; i < first + pool_->rows_per_slot(); ++i) {
    if (seats_[i].learns && seats_[i].due) deciding_seats_.push_back(i);
  }
  if (deciding_seats_.empty()) return;
  Gather(deciding_seats_, state_size_, task.rollout);
  value_.resize(deciding_seats_.size());
  task.policy->Value(see_, value_.data());
  for (size_t i = 0; i < deciding_seats_.size(); ++i) {
    const Seat& seat = seats_[deciding_seats_[i]];
    Host<float>(task.rollout->value)[seat.at * rows_ + seat.row] = value_[i];
  }
}

}  // namespace flotilla
