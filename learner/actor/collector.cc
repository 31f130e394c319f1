#include "learner/actor/collector.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "learner/rollout/gather.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using Clock = std::chrono::steady_clock;

class Stopwatch {
 public:
  explicit Stopwatch(double* total) : total_(total) {}
  ~Stopwatch() {
    *total_ += std::chrono::duration<double>(Clock::now() - begin_).count();
  }

 private:
  double* const total_;
  const Clock::time_point begin_ = Clock::now();
};

int64_t LeafElements(const v1::Leaf& leaf) {
  int64_t n = 1;
  for (int64_t d : leaf.shape()) n *= d;
  return n;
}

// Writes one leaf's R rows, of any dtype, as float32 columns [column, column +
// n) of R rows `stride` apart.
template <typename T>
void WriteLeaf(const char* from, int64_t rows, int64_t n, float* to,
               int64_t stride) {
  const T* values = reinterpret_cast<const T*>(from);
  for (int64_t r = 0; r < rows; ++r, to += stride) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(*values++);
  }
}

void WriteLeafAs(v1::DType dtype, const char* from, int64_t rows, int64_t n,
                 float* to, int64_t stride) {
  switch (dtype) {
    case v1::UINT8:
      return WriteLeaf<uint8_t>(from, rows, n, to, stride);
    case v1::INT64:
      return WriteLeaf<int64_t>(from, rows, n, to, stride);
    default:
      return WriteLeaf<float>(from, rows, n, to, stride);
  }
}

std::vector<double> TaskMetrics(const v1::EnvSpec& spec,
                                const v1::EpisodeEnd& end) {
  std::vector<double> values;
  for (const std::string& name : spec.episode_metric()) {
    const auto found = end.metric().find(name);
    values.push_back(found == end.metric().end() ? 0 : found->second);
  }
  return values;
}

// Adds one final observation.
void Append(const void* observation, size_t bytes, Rollout* r) {
  const uint8_t* from = static_cast<const uint8_t*>(observation);
  r->final_observation.insert(r->final_observation.end(), from, from + bytes);
}

}  // namespace

Collector::Collector(EnvPool* pool, const Spaces& spaces, int64_t rows,
                     const Options& options, Normalizer* normalizer)
    : pool_(pool),
      normalizer_(normalizer),
      spaces_(spaces),
      rows_(rows),
      options_(options),
      absent_(pool->num_slots(), false),
      in_flight_(pool->num_slots(), false),
      failed_(pool->rows_per_slot(), 0) {
  if (spaces_.frames) {
    const int64_t bytes = spaces_.stack * spaces_.features;
    stack_.resize(pool->rows_per_slot() * bytes);
    final_stack_.resize(bytes);
    carried_observation_ = torch::zeros(
        {spaces_.stack, rows, spaces_.height, spaces_.width}, torch::kUInt8);
    carried_age_ = torch::zeros({rows}, torch::kUInt8);
  } else {
    final_vector_.resize(spaces_.features);
    carried_observation_ = torch::zeros({1, rows, spaces_.features});
  }
  clipped_action_.resize(pool->rows_per_slot() * spaces_.actions);
  ended_.resize(pool->rows_per_slot());
}

absl::Status Collector::Collect(Policy* policy, Random* rng,
                                std::stop_token stop,
                                const Preemption* preemption, Rollout* r,
                                CollectStats* stats) {
  Stopwatch all(&stats->seconds);
  // What nobody can learn from is not worth an update, for a while.
  const absl::Time began = absl::Now();
  do {
    RETURN_IF_ERROR(Fill(policy, rng, stop, preemption, r, stats));
  } while (r->valid_steps == 0 && !stats->preempted && cut_at_ < began &&
           absl::Now() - began < pool_->failed_rows().window() &&
           !(options_.hurry && options_.hurry()));
  return absl::OkStatus();
}

absl::Status Collector::Fill(Policy* policy, Random* rng, std::stop_token stop,
                             const Preemption* preemption, Rollout* r,
                             CollectStats* stats) {
  const auto began = Clock::now();
  const int slots = pool_->num_slots();
  state_size_ = policy->state_size();
  state_.resize(rows_ * state_size_);  // 0: nothing is remembered yet
  if (options_.reset_state) std::fill(state_.begin(), state_.end(), 0.0f);
  r->valid.fill_(1);
  r->final_step.clear();
  r->final_observation.clear();
  CarryOver(r);
  int64_t end = r->length;
  bool cut = false;
  std::optional<Clock::time_point> asked_at;
  for (int64_t t = 0; t <= end; ++t) {
    const auto asked = [&] {
      if (preemption == nullptr || t < preemption->min_steps) return false;
      if (!asked_at && preemption->asked()) asked_at = Clock::now();
      return asked_at.has_value();
    };
    // Steps on their way get as long as two have taken so far.
    const auto give_up = [&] {
      return asked() && Clock::now() - *asked_at > 2 * (*asked_at - began) / t;
    };
    if (asked()) end = t;
    if (t > 0 && t < end && Alarmed()) {
      cut = true;
      end = t;
    }
    for (int slot = 0; slot < slots; ++slot) {
      if (t > 0 || !started_ || in_flight_[slot]) {
        ASSIGN_OR_RETURN(const EnvPool::Event event,
                         Receive(slot, t, policy, stop, give_up, r, stats));
        if (event == EnvPool::Event::kLate) end = t;
      }
      Stopwatch inference(&stats->inference_seconds);
      deciding_.store(true, std::memory_order_relaxed);
      Decide(slot, t, end, policy, rng, r);
      deciding_.store(false, std::memory_order_relaxed);
    }
    started_ = true;
  }
  stats->preempted = end < r->length && !cut;
  r->valid.narrow(0, end, r->length - end).zero_();
  // The last row opens the next rollout.
  if (spaces_.frames) {
    carried_observation_.copy_(r->observation.narrow(0, end, spaces_.stack));
    carried_age_.copy_(r->age[end]);
  } else {
    carried_observation_.copy_(r->observation.narrow(0, end, 1));
  }
  const uint8_t* valid = r->valid.data_ptr<uint8_t>();
  r->valid_steps = 0;
  for (int64_t i = 0; i < r->length * rows_; ++i) r->valid_steps += valid[i];
  return absl::OkStatus();
}

// True once in a while, as long as it is so.
bool Collector::Alarmed() {
  const absl::Time now = absl::Now();
  if (now - cut_at_ < pool_->failed_rows().window() ||
      !pool_->failed_rows().Alarming()) {
    return false;
  }
  cut_at_ = now;
  return true;
}

void Collector::CarryOver(Rollout* r) {
  r->observation.narrow(0, 0, carried_observation_.size(0))
      .copy_(carried_observation_);
  if (spaces_.frames) r->age[0].copy_(carried_age_);
}

absl::StatusOr<EnvPool::Event> Collector::Receive(
    int slot, int64_t t, Policy* policy, std::stop_token stop,
    absl::FunctionRef<bool()> give_up, Rollout* r, CollectStats* stats) {
  absl::StatusOr<EnvPool::Event> event = [&] {
    Stopwatch waiting(&stats->env_seconds);
    return pool_->Receive(slot, stop, give_up);
  }();
  RETURN_IF_ERROR(event.status());
  const bool late = *event == EnvPool::Event::kLate;
  if (!late) in_flight_[slot] = false;
  absent_[slot] = late || *event == EnvPool::Event::kAbsent;
  if (*event == EnvPool::Event::kStep) {
    for (const v1::EpisodeEnd& end : pool_->batch(slot).episode_end()) {
      stats->episodes.push_back({pool_->first_row(slot) + end.row(),
                                 end.raw_return(), end.length(),
                                 TaskMetrics(pool_->spec(), end)});
    }
  }
  if (*event == EnvPool::Event::kStep && t > 0) {
    StoreOutcome(slot, t, policy, r);
    StoreObservation(slot, t, r);
    return event;
  }
  // The transition into t was lost, or there was none.
  const int64_t first = pool_->first_row(slot), rows = pool_->rows_per_slot();
  // What comes late goes on where its rows were.
  if (!late) Forget(slot, /*all=*/*event != EnvPool::Event::kStep);
  if (t > 0) {
    const int64_t at = (t - 1) * rows_ + first;
    std::memset(r->valid.data_ptr<uint8_t>() + at, 0, rows);
    std::memset(r->terminated.data_ptr<uint8_t>() + at, 0, rows);
    std::memset(r->truncated.data_ptr<uint8_t>() + at, 0, rows);
    std::fill_n(r->reward.data_ptr<float>() + at, rows, 0.0f);
  }
  if (spaces_.frames) {
    std::memset(r->age.data_ptr<uint8_t>() + t * rows_ + first, 0, rows);
  }
  if (!absent_[slot]) StoreObservation(slot, t, r);
  return event;
}

void Collector::StoreObservation(int slot, int64_t t, Rollout* r) {
  const int64_t first = pool_->first_row(slot), rows = pool_->rows_per_slot();
  const v1::EnvSpec& spec = pool_->spec();
  if (spaces_.frames) {
    const absl::string_view frames = pool_->Observation(slot, 0);
    uint8_t* to =
        r->observation.data_ptr<uint8_t>() +
        ((t + FrameOffset(spaces_)) * rows_ + first) * spaces_.features;
    std::memcpy(to, frames.data(), frames.size());
    return;
  }
  const int64_t D = spaces_.features;
  float* to = r->observation.data_ptr<float>() + (t * rows_ + first) * D;
  int64_t column = 0;
  for (int leaf = 0; leaf < spec.observation_size(); ++leaf) {
    const int64_t n = LeafElements(spec.observation(leaf));
    WriteLeafAs(spec.observation(leaf).dtype(),
                pool_->Observation(slot, leaf).data(), rows, n, to + column, D);
    column += n;
  }
  std::fill(failed_.begin(), failed_.end(), 0);
  for (const v1::RowError& error : pool_->batch(slot).error()) {
    failed_[error.row()] = 1;
  }
  for (int64_t i = 0; i < rows;) {
    int64_t next = i;
    while (next < rows && !failed_[next]) ++next;
    if (next > i) normalizer_->Observe(to + i * D, next - i);
    // Whoever failed may see nothing yet, which belongs to no mean, or be back.
    if (next < rows) normalizer_->Scale(to + next * D, 1);
    i = next + 1;
  }
}

// Row `row`'s transition into t is none.
void Collector::Lose(int64_t t, int64_t row, Rollout* r) const {
  const int64_t at = (t - 1) * rows_ + row;
  r->valid.data_ptr<uint8_t>()[at] = 0;
  r->terminated.data_ptr<uint8_t>()[at] = 0;
  r->truncated.data_ptr<uint8_t>()[at] = 0;
  r->reward.data_ptr<float>()[at] = 0;
}

// Row t - 1's rewards and ends, from the batch that answered it.
void Collector::StoreOutcome(int slot, int64_t t, Policy* policy, Rollout* r) {
  const v1::StepBatch& batch = pool_->batch(slot);
  const int64_t first = pool_->first_row(slot), rows = pool_->rows_per_slot();
  const int64_t at = (t - 1) * rows_ + first;
  std::memcpy(r->reward.data_ptr<float>() + at, batch.reward().data(),
              rows * sizeof(float));
  uint8_t* terminated = r->terminated.data_ptr<uint8_t>() + at;
  uint8_t* truncated = r->truncated.data_ptr<uint8_t>() + at;
  std::memcpy(terminated, batch.terminated().data(), rows);
  std::memcpy(truncated, batch.truncated().data(), rows);
  for (const v1::RowError& error : batch.error()) {
    Lose(t, first + error.row(), r);
  }
  for (int64_t i = 0; i < rows; ++i) {
    ended_[i] = terminated[i] | truncated[i];
    ended_[i] |= !r->valid.data_ptr<uint8_t>()[at + i];
  }
  const float clamp = static_cast<float>(pool_->env().reward_clamp());
  float* reward = r->reward.data_ptr<float>() + at;
  for (int64_t i = 0; clamp > 0 && i < rows; ++i) {
    reward[i] = std::clamp(reward[i], -clamp, clamp);
  }
  normalizer_->Reward(first, rows, ended_.data(),
                      r->valid.data_ptr<uint8_t>() + at, reward);
  if (spaces_.frames) {
    const uint8_t* before = r->age.data_ptr<uint8_t>() + at;
    uint8_t* now = r->age.data_ptr<uint8_t>() + t * rows_ + first;
    for (int64_t i = 0; i < rows; ++i) {
      now[i] =
          ended_[i] ? 0 : std::min<int64_t>(before[i] + 1, spaces_.stack - 1);
    }
  }
  if (options_.bootstrap_truncation && batch.final_row_size() > 0) {
    Bootstrap(slot, t, policy, r);
  }
  Forget(slot, /*all=*/false);
}

// Of the slot's rows, those whose episode has ended or failed, or all.
void Collector::Forget(int slot, bool all) {
  const v1::StepBatch& batch = pool_->batch(slot);
  const int64_t S = state_size_;
  float* state = state_.data() + pool_->first_row(slot) * S;
  for (int64_t i = 0; S > 0 && i < pool_->rows_per_slot(); ++i) {
    if (all || batch.terminated()[i] || batch.truncated()[i]) {
      std::fill_n(state + i * S, S, 0.0f);
    }
  }
  for (const v1::RowError& error : batch.error()) {
    std::fill_n(state + error.row() * S, S, 0.0f);
  }
}

// Each final observation whose episode a time limit ended, and its value.
void Collector::Bootstrap(int slot, int64_t t, Policy* policy, Rollout* r) {
  const v1::StepBatch& batch = pool_->batch(slot);
  const int64_t first = pool_->first_row(slot);
  for (int f = 0; f < batch.final_row_size(); ++f) {
    const int64_t b = first + batch.final_row(f);
    const int64_t at = (t - 1) * rows_ + b;
    if (!r->truncated.data_ptr<uint8_t>()[at] ||
        r->terminated.data_ptr<uint8_t>()[at]) {
      continue;
    }
    Observations seen;
    seen.rows = 1;
    seen.state = state_.data() + b * state_size_;
    r->final_step.push_back(at);
    if (spaces_.frames) {
      // The old episode's newest k - 1 frames, then the final one.
      const int64_t bytes = spaces_.features;
      std::vector<uint8_t>& stack = final_stack_;
      std::vector<uint8_t> before(stack.size());
      StackRows(*r, spaces_, t - 1, b, 1, before.data());
      std::memcpy(stack.data(), before.data() + bytes, stack.size() - bytes);
      std::memcpy(stack.data() + stack.size() - bytes,
                  batch.final_observation().leaf(0).data() + f * bytes, bytes);
      seen.frames = stack.data();
      Append(stack.data() + stack.size() - bytes, bytes, r);
    } else {
      int64_t column = 0;
      for (int leaf = 0; leaf < batch.final_observation().leaf_size(); ++leaf) {
        const v1::Leaf& shape = pool_->spec().observation(leaf);
        const int64_t n = LeafElements(shape);
        const std::string& bytes = batch.final_observation().leaf(leaf);
        const size_t row_bytes = bytes.size() / batch.final_row_size();
        WriteLeafAs(shape.dtype(), bytes.data() + f * row_bytes, 1, n,
                    final_vector_.data() + column, n);
        column += n;
      }
      normalizer_->Scale(final_vector_.data(), 1);
      seen.vector = final_vector_.data();
      Append(final_vector_.data(), final_vector_.size() * sizeof(float), r);
    }
    policy->Value(seen, r->bootstrap_value.data_ptr<float>() + at);
  }
}

Observations Collector::Observe(int slot, int64_t t, const Rollout& r) {
  Observations seen;
  seen.rows = pool_->rows_per_slot();
  const int64_t first = pool_->first_row(slot);
  seen.state = state_.data() + first * state_size_;
  if (spaces_.frames) {
    StackRows(r, spaces_, t, first, seen.rows, stack_.data());
    seen.frames = stack_.data();
  } else {
    seen.vector = r.observation.data_ptr<float>() +
                  (t * rows_ + first) * spaces_.features;
  }
  return seen;
}

// At the end only the value is wanted, and no random number is drawn.
void Collector::Decide(int slot, int64_t t, int64_t end, Policy* policy,
                       Random* rng, Rollout* r) {
  const int64_t at = t * rows_ + pool_->first_row(slot);
  const int64_t rows = pool_->rows_per_slot();
  float* value = r->value.data_ptr<float>() + at;
  float* state = state_.data() + pool_->first_row(slot) * state_size_;
  if (t == 0 && state_size_ > 0) {
    std::copy_n(state, rows * state_size_,
                r->initial_state.data_ptr<float>() +
                    pool_->first_row(slot) * state_size_);
  }
  if (absent_[slot]) {
    std::fill_n(value, rows, 0.0f);
    if (t < r->length) {
      std::memset(r->valid.data_ptr<uint8_t>() + at, 0, rows);
    }
    return;
  }
  const Observations seen = Observe(slot, t, *r);
  if (t == end) return policy->Value(seen, value);
  DecisionOutput out;
  out.value = value;
  out.state = state;
  out.log_prob = r->log_prob.data_ptr<float>() + at;
  if (spaces_.continuous) {
    out.continuous = r->action.data_ptr<float>() + at * spaces_.actions;
  } else {
    out.discrete = r->action.data_ptr<int64_t>() + at;
  }
  policy->Decide(seen, /*greedy=*/false, rng, out);
  SendActions(slot, t, *r);
}

// Continuous actions are clipped to their bounds on the way out; the rollout
// keeps what was sampled, as CleanRL's ClipAction wrapper has it.
void Collector::SendActions(int slot, int64_t t, const Rollout& r) {
  const int64_t at = t * rows_ + pool_->first_row(slot);
  const int64_t rows = pool_->rows_per_slot(), A = spaces_.actions;
  in_flight_[slot] = true;
  if (!spaces_.continuous) {
    pool_->Send(slot, r.action.data_ptr<int64_t>() + at,
                rows * sizeof(int64_t));
    return;
  }
  const float* sampled = r.action.data_ptr<float>() + at * A;
  for (int64_t i = 0; i < rows * A; ++i) {
    clipped_action_[i] = std::clamp(sampled[i], spaces_.action_low[i % A],
                                    spaces_.action_high[i % A]);
  }
  pool_->Send(slot, clipped_action_.data(), rows * A * sizeof(float));
}

}  // namespace flotilla
