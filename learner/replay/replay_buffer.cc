#include "learner/replay/replay_buffer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace flotilla {
namespace {

// Keeps a transition that was learned perfectly within reach.
constexpr double kLeastPriority = 1e-6;

// T without the steps at the end that were lost in every row, as where a
// straggler's rollout was ended short: the next rollout goes on before them.
int64_t LengthPlayed(const Rollout& r) {
  const uint8_t* valid = r.valid.data_ptr<uint8_t>();
  int64_t steps = r.length * r.rows;
  while (steps > 0 && !valid[steps - 1]) --steps;
  return (steps + r.rows - 1) / r.rows;
}

}  // namespace

ReplayBuffer::ReplayBuffer(const Spaces& spaces, int64_t rows,
                           const v1::DqnConfig& config)
    : spaces_(spaces),
      config_(config),
      rows_(rows),
      stack_(spaces.frames ? spaces.stack : 1),
      bytes_(spaces.features * (spaces.frames ? 1 : sizeof(float))),
      capacity_((config.replay_capacity() + rows - 1) / rows),
      length_(capacity_ + stack_),
      open_(rows, 0),
      observations_(torch::empty({length_, rows, bytes_}, torch::kUInt8)),
      steps_(length_ * rows),
      priorities_(length_ * rows) {
  CHECK_GE(capacity_, config.n_step());
}

int64_t ReplayBuffer::size() const {
  return std::min(count_, capacity_) * rows_;
}

int64_t ReplayBuffer::bytes() const {
  int64_t finals = 0;
  for (const auto& [leaf, observation] : finals_) finals += observation.size();
  return observations_.numel() + finals +
         static_cast<int64_t>(steps_.size() * sizeof(Step)) +
         priorities_.bytes();
}

void ReplayBuffer::Add(const Rollout& r) {
  CHECK_EQ(r.rows, rows_);
  const int64_t length = LengthPlayed(r);
  if (length == 0) return;
  if (count_ > 0) CutWhereNotContinued(r);
  StoreObservation(r, 0);
  size_t final = 0;
  for (int64_t t = 0; t < length; ++t) {
    StoreOutcome(r, t);
    for (; final < r.final_step.size() && r.final_step[final] < (t + 1) * rows_;
         ++final) {
      const uint8_t* from = r.final_observation.data() + final * bytes_;
      finals_[Leaf(count_, r.final_step[final] % rows_)].assign(from,
                                                                from + bytes_);
    }
    ++count_;
    StoreObservation(r, t + 1);
    CloseWindows();
  }
}

// Where the observation that opens `r` is not the one that the last rollout
// led to, the last transition leads nowhere.
void ReplayBuffer::CutWhereNotContinued(const Rollout& r) {
  const int64_t last = count_ - 1;
  const uint8_t* opening =
      static_cast<const uint8_t*>(r.observation.data_ptr()) +
      (stack_ - 1) * rows_ * bytes_;
  const uint8_t* newest =
      observations_.data_ptr<uint8_t>() + Leaf(count_, 0) * bytes_;
  for (int64_t b = 0; b < rows_; ++b) {
    const int64_t age = spaces_.frames ? r.age.data_ptr<uint8_t>()[b] : 0;
    if (std::memcmp(opening + b * bytes_, newest + b * bytes_, bytes_) == 0 &&
        std::min(age, count_) == steps_[Leaf(count_, b)].age) {
      continue;
    }
    Step& step = steps_[Leaf(last, b)];
    if (!step.valid || step.terminated || step.truncated) continue;
    step.valid = false;
    priorities_.Set(Leaf(last, b), 0);
    MakeReady(count_ - open_[b], last - 1, b);
    open_[b] = 0;
  }
}

// Row t's observation as that of step `count_`, over the oldest one.
void ReplayBuffer::StoreObservation(const Rollout& r, int64_t t) {
  const uint8_t* from = static_cast<const uint8_t*>(r.observation.data_ptr()) +
                        (t + stack_ - 1) * rows_ * bytes_;
  std::memcpy(observations_.data_ptr<uint8_t>() + Leaf(count_, 0) * bytes_,
              from, rows_ * bytes_);
  const int64_t expired = count_ - capacity_ - 1;
  for (int64_t b = 0; b < rows_; ++b) {
    Step& step = steps_[Leaf(count_, b)];
    step = Step();
    if (spaces_.frames) {
      // Nothing is older than the first frame ever.
      step.age = static_cast<uint8_t>(
          std::min<int64_t>(r.age.data_ptr<uint8_t>()[t * rows_ + b], count_));
    }
    if (expired < 0) continue;
    priorities_.Set(Leaf(expired, b), 0);
    finals_.erase(Leaf(expired, b));
  }
}

void ReplayBuffer::StoreOutcome(const Rollout& r, int64_t t) {
  const int64_t at = t * rows_;
  for (int64_t b = 0; b < rows_; ++b) {
    Step& step = steps_[Leaf(count_, b)];
    step.reward = r.reward.data_ptr<float>()[at + b];
    step.action = static_cast<int32_t>(r.action.data_ptr<int64_t>()[at + b]);
    step.valid = r.valid.data_ptr<uint8_t>()[at + b];
    step.terminated = r.terminated.data_ptr<uint8_t>()[at + b];
    step.truncated =
        !step.terminated && r.truncated.data_ptr<uint8_t>()[at + b];
  }
}

// After step count_ - 1 was stored.
void ReplayBuffer::CloseWindows() {
  const int64_t last = count_ - 1;
  for (int64_t b = 0; b < rows_; ++b) {
    Step& step = steps_[Leaf(last, b)];
    // Without its final observation a time limit's transition is lost.
    if (step.truncated && !finals_.count(Leaf(last, b))) step.valid = false;
    if (!step.valid) {
      MakeReady(last - open_[b], last - 1, b);
      open_[b] = 0;
    } else if (step.terminated || step.truncated) {
      MakeReady(last - open_[b], last, b);
      open_[b] = 0;
    } else if (++open_[b] == config_.n_step()) {
      MakeReady(count_ - open_[b], count_ - open_[b], b);
      --open_[b];
    }
  }
}

void ReplayBuffer::MakeReady(int64_t first, int64_t last, int64_t row) {
  for (int64_t step = first; step <= last; ++step) {
    priorities_.Set(Leaf(step, row), largest_);
  }
}

int64_t ReplayBuffer::StepOf(int64_t leaf) const {
  const int64_t back = (count_ - leaf / rows_) % length_;
  return count_ - (back + length_) % length_;
}

void ReplayBuffer::CopyStack(int64_t step, int64_t row, uint8_t* out) const {
  const uint8_t* observations = observations_.data_ptr<uint8_t>();
  const int64_t age = steps_[Leaf(step, row)].age;
  for (int64_t back = stack_ - 1; back >= 0; --back, out += bytes_) {
    const int64_t from = step - std::min(back, age);
    std::memcpy(out, observations + Leaf(from, row) * bytes_, bytes_);
  }
}

// What followed `step`, whose episode a time limit ended.
void ReplayBuffer::CopyFinalStack(int64_t step, int64_t row,
                                  uint8_t* out) const {
  const uint8_t* observations = observations_.data_ptr<uint8_t>();
  const int64_t age = steps_[Leaf(step, row)].age;
  for (int64_t back = stack_ - 2; back >= 0; --back, out += bytes_) {
    const int64_t from = step - std::min(back, age);
    std::memcpy(out, observations + Leaf(from, row) * bytes_, bytes_);
  }
  std::memcpy(out, finals_.at(Leaf(step, row)).data(), bytes_);
}

torch::Tensor ReplayBuffer::EmptyObservations(int64_t n) const {
  return spaces_.frames
             ? torch::empty({n, stack_, spaces_.height, spaces_.width},
                            torch::kUInt8)
             : torch::empty({n, spaces_.features}, torch::kFloat32);
}

bool ReplayBuffer::Sample(int64_t n, double beta, Random* rng,
                          ReplayBatch* batch) const {
  if (priorities_.total() <= 0) return false;
  batch->observation = EmptyObservations(n);
  batch->next_observation = EmptyObservations(n);
  batch->action = torch::empty({n}, torch::kInt64);
  for (torch::Tensor* t :
       {&batch->n_step_return, &batch->discount, &batch->weight}) {
    *t = torch::empty({n}, torch::kFloat32);
  }
  batch->id.resize(n);
  auto* observation = static_cast<uint8_t*>(batch->observation.data_ptr());
  auto* next = static_cast<uint8_t*>(batch->next_observation.data_ptr());
  for (int64_t i = 0; i < n; ++i) {
    const int64_t leaf = priorities_.Find(rng->Uniform() * priorities_.total());
    const int64_t first = StepOf(leaf), row = leaf % rows_;
    // Walks the window to its end.
    double sum = 0, discount = 1;
    int64_t step = first;
    const Step* at = &steps_[leaf];
    for (;;) {
      sum += discount * at->reward;
      discount *= config_.discount();
      if (at->terminated || at->truncated) break;
      if (++step - first == config_.n_step()) break;
      const Step* follower = &steps_[Leaf(step, row)];
      if (!follower->valid) break;
      at = follower;
    }
    uint8_t* to = next + i * stack_ * bytes_;
    if (at->truncated) {
      CopyFinalStack(step, row, to);
    } else {
      CopyStack(step, row, to);
    }
    CopyStack(first, row, observation + i * stack_ * bytes_);
    batch->id[i] = leaf;
    batch->action.data_ptr<int64_t>()[i] = steps_[leaf].action;
    batch->n_step_return.data_ptr<float>()[i] = static_cast<float>(sum);
    batch->discount.data_ptr<float>()[i] =
        at->terminated ? 0.0f : static_cast<float>(discount);
    batch->weight.data_ptr<float>()[i] = static_cast<float>(
        std::pow(priorities_.least() / priorities_.Get(leaf), beta));
  }
  return true;
}

void ReplayBuffer::SetErrors(std::span<const int64_t> id,
                             const float* td_error) {
  if (config_.priority_alpha() == 0) return;
  for (size_t i = 0; i < id.size(); ++i) {
    const double priority = std::pow(std::abs(td_error[i]) + kLeastPriority,
                                     config_.priority_alpha());
    largest_ = std::max(largest_, priority);
    priorities_.Set(id[i], priority);
  }
}

}  // namespace flotilla
