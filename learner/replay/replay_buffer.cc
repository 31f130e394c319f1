#include "learner/replay/replay_buffer.h"

#include <algorithm>
#include <cmath>

#include "learner/device/host.h"
#include "learner/device/transfer.h"

namespace flotilla {
namespace {

// Keeps a transition that was learned perfectly within reach.
constexpr double kLeastPriority = 1e-6;

// T without the steps at the end that were lost in every row, as where a
// straggler's rollout was ended short: the next rollout goes on before them.
int64_t LengthPlayed(const Rollout& r) {
  const uint8_t* valid = Host<uint8_t>(r.valid);
  int64_t steps = r.length * r.rows;
  while (steps > 0 && !valid[steps - 1]) --steps;
  return (steps + r.rows - 1) / r.rows;
}

}  // namespace

ReplayBuffer::ReplayBuffer(const Spaces& spaces, int64_t rows,
                           const Options& options)
    : action_(spaces.action),
      options_(options),
      rows_(rows),
      capacity_((options.capacity + rows - 1) / rows),
      length_(capacity_ + spaces.max_stack()),
      open_(rows, 0),
      observations_(options.memory.is_cpu()
                        ? ObservationStore(spaces, length_, rows,
                                           /*pinned=*/false,
                                           ObservationStore::Form::kRing)
                        : ObservationStore::OnDevice(
                              spaces, length_, rows, options.memory,
                              ObservationStore::Form::kRing)),
      discrete_(length_ * rows * action_.choices()),
      continuous_(length_ * rows * action_.continuous),
      steps_(length_ * rows),
      priorities_(length_ * rows) {
  CHECK_GE(capacity_, options.n_step);
}

int64_t ReplayBuffer::size() const {
  return std::min(count_, capacity_) * rows_;
}

int64_t ReplayBuffer::bytes() const {
  int64_t finals = 0;
  for (const auto& [leaf, observation] : finals_) finals += observation.size();
  return observations_.bytes() + finals +
         static_cast<int64_t>(discrete_.size() * sizeof(int32_t) +
                              continuous_.size() * sizeof(float)) +
         static_cast<int64_t>(steps_.size() * sizeof(Step)) +
         priorities_.bytes();
}

void ReplayBuffer::Add(const Rollout& r) {
  CHECK_EQ(r.rows, rows_);
  const int64_t length = LengthPlayed(r);
  if (length == 0) return;
  if (count_ > 0) CutWhereNotContinued(r);
  restored_ = false;
  observations_.CopyNewest(
      count_, r.observation, 0, length + 1,
      r.there != nullptr ? &r.there->observation : nullptr);
  ExpireOldest();
  size_t final = 0;
  for (int64_t t = 0; t < length; ++t) {
    StoreOutcome(r, t);
    StoreAction(r, t);
    for (; final < r.final_step.size() && r.final_step[final] < (t + 1) * rows_;
         ++final) {
      const int64_t bytes = observations_.row_bytes();
      const uint8_t* from = r.final_observation.data() + final * bytes;
      finals_[Leaf(count_, r.final_step[final] % rows_)].assign(from,
                                                                from + bytes);
    }
    ++count_;
    ExpireOldest();
    CloseWindows();
  }
}

// Where the observation that opens `r` is not the one that the last rollout
// led to, the last transition leads nowhere.
void ReplayBuffer::CutWhereNotContinued(const Rollout& r) {
  const int64_t last = count_ - 1;
  for (int64_t b = 0; b < rows_; ++b) {
    if (!restored_ && observations_.SameNewest(count_, b, r.observation, 0)) {
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

// The observation of step `count_` is written, over the oldest one.
void ReplayBuffer::ExpireOldest() {
  const int64_t expired = count_ - capacity_ - 1;
  for (int64_t b = 0; b < rows_; ++b) {
    steps_[Leaf(count_, b)] = Step();
    if (expired < 0) continue;
    priorities_.Set(Leaf(expired, b), 0);
    finals_.erase(Leaf(expired, b));
  }
}

void ReplayBuffer::StoreOutcome(const Rollout& r, int64_t t) {
  const int64_t at = t * rows_;
  const float* reward = Host<float>(r.reward) + at;
  const uint8_t* valid = Host<uint8_t>(r.valid) + at;
  const uint8_t* terminated = Host<uint8_t>(r.terminated) + at;
  const uint8_t* truncated = Host<uint8_t>(r.truncated) + at;
  for (int64_t b = 0; b < rows_; ++b) {
    Step& step = steps_[Leaf(count_, b)];
    step.reward = reward[b];
    step.valid = valid[b];
    step.terminated = terminated[b];
    step.truncated = !step.terminated && truncated[b];
  }
}

void ReplayBuffer::StoreAction(const Rollout& r, int64_t t) {
  if (const int64_t n = rows_ * action_.choices(); n > 0) {
    const int64_t* from = Host<int64_t>(r.action.discrete) + t * n;
    std::copy_n(from, n,
                discrete_.begin() + Leaf(count_, 0) * action_.choices());
  }
  if (const int64_t n = rows_ * action_.continuous; n > 0) {
    const float* from = Host<float>(r.action.continuous) + t * n;
    std::copy_n(from, n,
                continuous_.begin() + Leaf(count_, 0) * action_.continuous);
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
    } else if (++open_[b] == options_.n_step) {
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

bool ReplayBuffer::Sample(int64_t n, double beta, Random* rng,
                          ReplayBatch* batch) const {
  if (priorities_.total() <= 0) return false;
  const torch::Tensor numbers =
      Staging({3, n}, torch::kFloat32, options_.device);
  float* n_step_return = Host<float>(numbers);
  float* discounts = n_step_return + n;
  float* weights = discounts + n;
  batch->action = MakeActions(action_, {n}, !options_.device.is_cpu());
  batch->id.resize(n);
  const int64_t K = action_.choices(), A = action_.continuous;
  std::vector<ObservationStore::Place> seen(2 * n);  // and what followed
  for (int64_t i = 0; i < n; ++i) {
    const int64_t leaf = priorities_.Find(rng->Uniform() * priorities_.total());
    const int64_t first = StepOf(leaf), row = leaf % rows_;
    // Walks the window to its end.
    double sum = 0, discount = 1;
    int64_t step = first;
    const Step* at = &steps_[leaf];
    for (;;) {
      sum += discount * at->reward;
      discount *= options_.discount;
      if (at->terminated || at->truncated) break;
      if (++step - first == options_.n_step) break;
      const Step* follower = &steps_[Leaf(step, row)];
      if (!follower->valid) break;
      at = follower;
    }
    seen[i] = {first, row};
    seen[n + i] = {step, row};
    if (at->truncated) {
      seen[n + i].final_row = finals_.at(Leaf(step, row)).data();
    }
    batch->id[i] = leaf;
    if (K > 0) {
      std::copy_n(discrete_.begin() + leaf * K, K,
                  Host<int64_t>(batch->action.discrete) + i * K);
    }
    if (A > 0) {
      std::copy_n(continuous_.begin() + leaf * A, A,
                  Host<float>(batch->action.continuous) + i * A);
    }
    n_step_return[i] = static_cast<float>(sum);
    discounts[i] = at->terminated ? 0.0f : static_cast<float>(discount);
    weights[i] = static_cast<float>(
        std::pow(priorities_.least() / priorities_.Get(leaf), beta));
  }
  const Batch both = observations_.Gather(seen, options_.device);
  batch->observation = both.Narrow(0, n);
  batch->next_observation = both.Narrow(n, n);
  batch->action = batch->action.Map(
      [this](const torch::Tensor& t) { return ToDevice(t, options_.device); });
  const torch::Tensor there = ToDevice(numbers, options_.device);
  batch->n_step_return = there[0];
  batch->discount = there[1];
  batch->weight = there[2];
  return true;
}

void ReplayBuffer::SetErrors(std::span<const int64_t> id,
                             const float* td_error) {
  if (options_.priority_alpha == 0) return;
  for (size_t i = 0; i < id.size(); ++i) {
    const double priority = std::pow(std::abs(td_error[i]) + kLeastPriority,
                                     options_.priority_alpha);
    largest_ = std::max(largest_, priority);
    priorities_.Set(id[i], priority);
  }
}

}  // namespace flotilla
