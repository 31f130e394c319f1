#include "learner/actor/lockstep_collector.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "learner/device/host.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

LockstepCollector::LockstepCollector(EnvPool* pool, const Spaces& spaces,
                                     const Options& options,
                                     Normalizer* normalizer)
    : Collector(pool, spaces, options, normalizer),
      rows_(int64_t{pool->num_slots()} * pool->rows_per_slot()),
      fresh_(pool->num_slots(), false),
      absent_(pool->num_slots(), false),
      in_flight_(pool->num_slots(), false),
      late_(pool->num_slots(), false),
      failed_(pool->rows_per_slot(), 0),
      columns_(spaces.action),
      carried_(spaces, /*steps=*/1, rows_) {
  final_row_.resize(carried_.row_bytes());
  ended_.resize(pool->rows_per_slot());
}

absl::Status LockstepCollector::Fill(const Task& task) {
  Policy* const policy = task.policy;
  const Preemption* const preemption = task.preemption;
  Rollout* const r = task.rollout;
  CollectStats* const stats = task.stats;
  const auto began = Clock::now();
  const int slots = pool_->num_slots();
  state_size_ = policy->state_size();
  state_.resize(rows_ * state_size_);  // 0: nothing is remembered yet
  if (options_.reset_state) std::fill(state_.begin(), state_.end(), 0.0f);
  r->valid.fill_(1);
  r->final_step.clear();
  r->final_observation.clear();
  r->observation.CopyStep(0, carried_, 0);
  const bool went_on = std::exchange(filled_, false);
  if (!went_on) std::fill(late_.begin(), late_.end(), false);
  acts_there_ = r->there != nullptr;
  if (acts_there_) {
    CHECK(policy->resident() != nullptr)
        << "Rollout::there is set, and nothing would be written there: "
           "Policy::resident of who collects is null; want a rollout of "
           "MakeRolloutFor";
    if (!resident_) {
      resident_.emplace(spaces_, rows_, r->there->valid.device());
    }
    resident_->Begin(policy->resident(), state_size_, options_.reset_state, r);
  }
  int64_t end = r->length;
  bool cut = false;
  std::optional<Clock::time_point> asked_at, waits_since;
  for (int64_t t = 0; t <= end; ++t) {
    const auto asked = [&] {
      if (preemption == nullptr || t < preemption->min_steps) return false;
      if (!asked_at && preemption->asked()) asked_at = Clock::now();
      return asked_at.has_value();
    };
    // Steps on their way get as long as two have taken so far, also those that were
    // sent after the question.
    const auto give_up = [&] {
      return asked() && Clock::now() - waits_since.value_or(*asked_at) >
                            2 * (*asked_at - began) / t;
    };
    if (asked()) {
      end = t;
      waits_since = Clock::now();
    }
    if (t > 0 && t < end && Alarmed()) {
      cut = true;
      end = t;
    }
    for (int slot = 0; slot < slots; ++slot) {
      // What came for the last step of a rollout that was not finished.
      const bool came =
          t == 0 && started_ && !went_on && !in_flight_[slot] && !absent_[slot];
      if (came && pool_->HoldsBatch(slot)) {
        r->observation.Restart(0, pool_->first_row(slot),
                               pool_->rows_per_slot());
        StoreObservation(slot, 0, r);
      } else if (t > 0 || !started_ || in_flight_[slot] || came) {
        ASSIGN_OR_RETURN(const EnvPool::Event event,
                         Take(slot, t, task, give_up));
        if (event == EnvPool::Event::kLate) end = t;
      }
      const Deciding deciding(this, stats);
      Decide(slot, t, end, policy, task.draws, r);
    }
    started_ = true;
  }
  stats->preempted = end < r->length && !cut;
  r->valid.narrow(0, end, r->length - end).zero_();
  // The last row opens the next rollout.
  carried_.CopyStep(0, r->observation, end);
  filled_ = true;
  r->played = end;
  if (acts_there_) resident_->End(end);
  const uint8_t* valid = Host<uint8_t>(r->valid);
  r->valid_steps = 0;
  for (int64_t i = 0; i < r->length * rows_; ++i) r->valid_steps += valid[i];
  return absl::OkStatus();
}

absl::StatusOr<EnvPool::Event> LockstepCollector::Take(
    int slot, int64_t t, const Task& task, absl::FunctionRef<bool()> give_up) {
  Policy* const policy = task.policy;
  Rollout* const r = task.rollout;
  const absl::StatusOr<EnvPool::Event> event = Receive(slot, task, give_up);
  RETURN_IF_ERROR(event.status());
  const bool late = *event == EnvPool::Event::kLate;
  if (!late) in_flight_[slot] = false;
  const bool was_late = late_[slot];
  late_[slot] = late && (t > 0 || was_late);
  absent_[slot] = late || *event == EnvPool::Event::kAbsent;
  // A rollout that ends before its first step leaves what opened it to the next.
  if (late && t == 0) return event;
  if (*event == EnvPool::Event::kStep) {
    for (const v1::EpisodeEnd& end : pool_->batch(slot).episode_end()) {
      task.stats->episodes.push_back(
          EpisodeOf(pool_->first_row(slot) + end.row(), end));
    }
  }
  if (*event == EnvPool::Event::kStep && t > 0) {
    StoreOutcome(slot, t, policy, r);
    StoreObservation(slot, t, r);
    return event;
  }
  // The transition into t was lost, or there was none.
  const int64_t first = pool_->first_row(slot), rows = pool_->rows_per_slot();
  if (late) {
    std::fill(ended_.begin(), ended_.end(), 0);
  } else if (*event == EnvPool::Event::kStep) {
    FindEnded(slot);
  } else {
    std::fill(ended_.begin(), ended_.end(), 1);
  }
  Forget(slot);
  if (t > 0) {
    const int64_t at = (t - 1) * rows_ + first;
    std::memset(Host<uint8_t>(r->valid) + at, 0, rows);
    std::memset(Host<uint8_t>(r->terminated) + at, 0, rows);
    std::memset(Host<uint8_t>(r->truncated) + at, 0, rows);
    std::fill_n(Host<float>(r->reward) + at, rows, 0.0f);
  }
  // What comes late goes on where its rows were: the frames before are there.
  if (late) {
    r->observation.Continue(t, first, rows, ended_.data());
  } else if (was_late) {
    for (int64_t i = 0; i < rows; ++i) {
      if (ended_[i]) r->observation.Restart(t, first + i, 1);
    }
  } else {
    r->observation.Restart(t, first, rows);
  }
  if (!absent_[slot]) StoreObservation(slot, t, r);
  return event;
}

void LockstepCollector::StoreObservation(int slot, int64_t t, Rollout* r) {
  const int64_t first = pool_->first_row(slot), rows = pool_->rows_per_slot();
  r->observation.Write(
      t, first, rows, [&](int leaf) { return pool_->Observation(slot, leaf); });
  fresh_[slot] = true;
  if (!normalizer_->observations()) return;
  const int64_t stride = r->observation.stride();
  float* to = r->observation.Numbers(t, first);
  std::fill(failed_.begin(), failed_.end(), 0);
  for (const v1::RowError& error : pool_->batch(slot).error()) {
    failed_[error.row()] = 1;
  }
  for (int64_t i = 0; i < rows;) {
    int64_t next = i;
    while (next < rows && !failed_[next]) ++next;
    if (next > i) normalizer_->Observe(to + i * stride, next - i, stride);
    // Whoever failed may see nothing yet, which belongs to no mean, or be back.
    if (next < rows) normalizer_->Scale(to + next * stride, 1, stride);
    i = next + 1;
  }
}

// Row `row`'s transition into t is none.
void LockstepCollector::Lose(int64_t t, int64_t row, Rollout* r) const {
  const int64_t at = (t - 1) * rows_ + row;
  Host<uint8_t>(r->valid)[at] = 0;
  Host<uint8_t>(r->terminated)[at] = 0;
  Host<uint8_t>(r->truncated)[at] = 0;
  Host<float>(r->reward)[at] = 0;
}

// Row t - 1's rewards and ends, from the batch that answered it.
void LockstepCollector::StoreOutcome(int slot, int64_t t, Policy* policy,
                                     Rollout* r) {
  const v1::StepBatch& batch = pool_->batch(slot);
  const int64_t first = pool_->first_row(slot), rows = pool_->rows_per_slot();
  const int64_t at = (t - 1) * rows_ + first;
  std::memcpy(Host<float>(r->reward) + at, batch.reward().data(),
              rows * sizeof(float));
  uint8_t* terminated = Host<uint8_t>(r->terminated) + at;
  uint8_t* truncated = Host<uint8_t>(r->truncated) + at;
  std::memcpy(terminated, batch.terminated().data(), rows);
  std::memcpy(truncated, batch.truncated().data(), rows);
  for (const v1::RowError& error : batch.error()) {
    Lose(t, first + error.row(), r);
  }
  for (int64_t i = 0; i < rows; ++i) {
    ended_[i] = terminated[i] | truncated[i];
    ended_[i] |= !Host<uint8_t>(r->valid)[at + i];
  }
  const float clamp = static_cast<float>(pool_->env().reward_clamp());
  float* reward = Host<float>(r->reward) + at;
  for (int64_t i = 0; clamp > 0 && i < rows; ++i) {
    reward[i] = std::clamp(reward[i], -clamp, clamp);
  }
  normalizer_->Reward(first, rows, ended_.data(), Host<uint8_t>(r->valid) + at,
                      reward);
  r->observation.Continue(t, first, rows, ended_.data());
  if (options_.bootstrap_truncation && batch.final_row_size() > 0) {
    Bootstrap(slot, t, policy, r);
  }
  Forget(slot);
}

// Of the slot's rows, those whose episode its batch has ended, or that failed.
void LockstepCollector::FindEnded(int slot) {
  const v1::StepBatch& batch = pool_->batch(slot);
  for (int64_t i = 0; i < pool_->rows_per_slot(); ++i) {
    ended_[i] = batch.terminated()[i] || batch.truncated()[i];
  }
  for (const v1::RowError& error : batch.error()) ended_[error.row()] = 1;
}

// What was of episodes that have ended.
void LockstepCollector::Forget(int slot) {
  const int64_t S = state_size_;
  for (int64_t i = 0; i < pool_->rows_per_slot(); ++i) {
    if (!ended_[i]) continue;
    const int64_t row = pool_->first_row(slot) + i;
    normalizer_->Forget(row, 1);
    std::fill_n(state_.data() + row * S, S, 0.0f);
    if (acts_there_) resident_->Forget(row);
  }
}

// Each final observation whose episode a time limit ended, and its value.
void LockstepCollector::Bootstrap(int slot, int64_t t, Policy* policy,
                                  Rollout* r) {
  const v1::StepBatch& batch = pool_->batch(slot);
  const int64_t first = pool_->first_row(slot);
  for (int f = 0; f < batch.final_row_size(); ++f) {
    const int64_t b = first + batch.final_row(f);
    const int64_t at = (t - 1) * rows_ + b;
    if (!Host<uint8_t>(r->truncated)[at] || Host<uint8_t>(r->terminated)[at]) {
      continue;
    }
    r->observation.EncodeRow(
        [&](int leaf) -> absl::string_view {
          return batch.final_observation().leaf(leaf);
        },
        f, final_row_.data());
    if (normalizer_->observations()) {
      normalizer_->Scale(ObservationStore::NumbersOf(final_row_.data()), 1,
                         r->observation.stride());
    }
    r->final_step.push_back(at);
    r->final_observation.insert(r->final_observation.end(), final_row_.begin(),
                                final_row_.end());
    if (acts_there_) {
      resident_->AddFinal(at, final_row_);
      continue;
    }
    Observations seen;
    seen.state = state_.data() + b * state_size_;
    r->observation.ViewFinal(t - 1, b, final_row_.data(), &scratch_, &seen);
    policy->Value(seen, Host<float>(r->bootstrap_value) + at);
  }
}

// At the end only the value is wanted, and no random number is drawn.
void LockstepCollector::Decide(int slot, int64_t t, int64_t end, Policy* policy,
                               Draws* draws, Rollout* r) {
  const int64_t at = t * rows_ + pool_->first_row(slot);
  const int64_t first = pool_->first_row(slot), rows = pool_->rows_per_slot();
  if (acts_there_ && !absent_[slot]) {
    const bool fresh = fresh_[slot];
    fresh_[slot] = false;
    if (t == end) return resident_->Value(t, first, rows, fresh);
    resident_->Decide(t, first, rows, fresh, draws);
    return SendActions(slot, t, *r);
  }
  float* value = Host<float>(r->value) + at;
  float* state = state_.data() + pool_->first_row(slot) * state_size_;
  if (t == 0 && state_size_ > 0) {
    std::copy_n(
        state, rows * state_size_,
        Host<float>(r->initial_state) + pool_->first_row(slot) * state_size_);
  }
  if (absent_[slot]) {
    std::fill_n(value, rows, 0.0f);
    if (acts_there_) resident_->Skip(t, first, rows);
    if (t < r->length) {
      std::memset(Host<uint8_t>(r->valid) + at, 0, rows);
    }
    return;
  }
  Observations seen;
  seen.state = state;
  r->observation.View(t, pool_->first_row(slot), rows, &scratch_, &seen);
  if (t == end) return policy->Value(seen, value);
  DecisionOutput out;
  out.value = value;
  out.state = state;
  out.log_prob = Host<float>(r->log_prob) + at;
  const ActionSpace& space = spaces_.action;
  if (space.choices() > 0) {
    out.discrete = Host<int64_t>(r->action.discrete) + at * space.choices();
  }
  if (space.continuous > 0) {
    out.continuous = Host<float>(r->action.continuous) + at * space.continuous;
  }
  policy->Decide(seen, /*greedy=*/false, draws, out);
  SendActions(slot, t, *r);
}

void LockstepCollector::SendActions(int slot, int64_t t, const Rollout& r) {
  const int64_t at = t * rows_ + pool_->first_row(slot);
  const int64_t K = spaces_.action.choices(), A = spaces_.action.continuous;
  in_flight_[slot] = true;
  pool_->Send(slot,
              columns_.Write(
                  K > 0 ? Host<int64_t>(r.action.discrete) + at * K : nullptr,
                  A > 0 ? Host<float>(r.action.continuous) + at * A : nullptr,
                  pool_->rows_per_slot()));
}

}  // namespace flotilla
