#include "learner/replay/replay_buffer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "learner/device/host.h"
#include "learner/device/transfer.h"

namespace flotilla {
namespace {

// T without the steps at the end that were lost in every row, as where a
// straggler's rollout was ended short: the next rollout goes on before them. If they
// were played, the first of them stays: it holds what the step before led to, which is
// not what opens the next rollout.
int64_t LengthPlayed(const Rollout& r) {
  const uint8_t* valid = Host<uint8_t>(r.valid);
  int64_t steps = r.length * r.rows;
  while (steps > 0 && !valid[steps - 1]) --steps;
  const int64_t length = (steps + r.rows - 1) / r.rows;
  return std::max(length, std::min(r.played, length + 1));
}

// Its final observations by step: agents come to their ends in turns of their own.
std::vector<size_t> FinalsByStep(const Rollout& r) {
  std::vector<size_t> finals(r.final_step.size());
  std::iota(finals.begin(), finals.end(), size_t{0});
  std::ranges::stable_sort(finals, {},
                           [&](size_t f) { return r.final_step[f]; });
  return finals;
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
      there_(options.memory.is_cpu()
                 ? nullptr
                 : std::make_unique<ResidentDraws>(length_ * rows, action_,
                                                   observations_.row_bytes(),
                                                   options.memory)),
      weights_(there_ == nullptr ? length_ * rows : 0) {
  CHECK_GE(capacity_, options.n_step);
  CHECK_LE(length_ * rows, std::numeric_limits<int32_t>::max());
}

int64_t ReplayBuffer::size() const {
  return std::min(count_, capacity_) * rows_;
}

int64_t ReplayBuffer::bytes() const {
  int64_t finals = 0;
  for (const auto& [leaf, final] : finals_) finals += final.row.size();
  return observations_.bytes() + finals +
         static_cast<int64_t>(discrete_.size() * sizeof(int32_t) +
                              continuous_.size() * sizeof(float)) +
         static_cast<int64_t>(steps_.size() * sizeof(Step)) + weights_.bytes() +
         (there_ == nullptr ? 0 : there_->bytes());
}

void ReplayBuffer::set_discount(double discount) {
  if (discount == options_.discount) return;
  options_.discount = discount;
  SendEverything();
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
  const std::vector<size_t> finals = FinalsByStep(r);
  auto final = finals.begin();
  for (int64_t t = 0; t < length; ++t) {
    StoreOutcome(r, t);
    StoreAction(r, t);
    for (; final != finals.end() && r.final_step[*final] < (t + 1) * rows_;
         ++final) {
      const int64_t bytes = observations_.row_bytes();
      KeepFinal(Leaf(count_, r.final_step[*final] % rows_),
                r.final_observation.data() + *final * bytes);
    }
    ++count_;
    ExpireOldest();
    CloseWindows();
  }
  for (int64_t b = 0; b < rows_; ++b) {
    // Between what was seen before and what opens the next rollout there may be
    // steps that pad this one, and what they show is of no use.
    if (!steps_[Leaf(count_ - 1, b)].valid) observations_.Cut(count_, b);
  }
  SendChanges();
}

void ReplayBuffer::KeepFinal(int64_t leaf, const uint8_t* row) {
  DropFinal(leaf);
  Final& final = finals_[leaf];
  final.row.assign(row, row + observations_.row_bytes());
  if (there_ != nullptr) final.slot = there_->KeepFinal(final.row.data());
}

void ReplayBuffer::DropFinal(int64_t leaf) {
  const auto found = finals_.find(leaf);
  if (found == finals_.end()) return;
  if (there_ != nullptr) there_->DropFinal(found->second.slot);
  finals_.erase(found);
}

void ReplayBuffer::SetDrawable(int64_t leaf, bool drawable) {
  Step& step = steps_[leaf];
  drawable_ += int64_t{drawable} - int64_t{step.drawable};
  step.drawable = drawable;
  if (there_ != nullptr) {
    there_->SetDrawable(leaf, drawable);
  } else {
    weights_.Set(leaf, drawable ? largest_ : 0);
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
    observations_.Cut(count_, b);
    Step& step = steps_[Leaf(last, b)];
    if (!step.valid || step.terminated || step.truncated) continue;
    step.valid = false;
    SetDrawable(Leaf(last, b), false);
    MakeReady(count_ - open_[b], last - 1, b);
    open_[b] = 0;
    // What was closed by that step after n is shorter now.
    const int64_t first = std::max<int64_t>(0, count_ - options_.n_step);
    if (there_ != nullptr && steps_[Leaf(first, b)].drawable) {
      there_->SetTransition(Leaf(first, b));
    }
  }
}

// The observation of step `count_` is written, over the oldest one.
void ReplayBuffer::ExpireOldest() {
  const int64_t expired = count_ - capacity_ - 1;
  for (int64_t b = 0; b < rows_; ++b) {
    if (expired >= 0) {
      SetDrawable(Leaf(expired, b), false);
      DropFinal(Leaf(expired, b));
    }
    steps_[Leaf(count_, b)] = Step();
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
    SetDrawable(Leaf(step, row), true);
  }
}

int64_t ReplayBuffer::StepOf(int64_t leaf) const {
  const int64_t back = (count_ - leaf / rows_) % length_;
  return count_ - (back + length_) % length_;
}

ReplayBuffer::Window ReplayBuffer::WindowOf(int64_t leaf) const {
  const int64_t first = StepOf(leaf), row = leaf % rows_;
  Window window;
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
  window.n_step_return = static_cast<float>(sum);
  window.discount = at->terminated ? 0.0f : static_cast<float>(discount);
  window.end = step;
  if (at->truncated) window.final = &finals_.at(Leaf(step, row));
  return window;
}

void ReplayBuffer::SendChanges() {
  if (there_ == nullptr) return;
  there_->Send([this](int64_t leaf) {
    const Window window = WindowOf(leaf);
    return ResidentDraws::Transition{
        .n_step_return = window.n_step_return,
        .discount = window.discount,
        .end = Leaf(window.end, leaf % rows_),
        .slot = window.final == nullptr ? -1 : window.final->slot,
        .discrete = discrete_.data() + leaf * action_.choices(),
        .continuous = continuous_.data() + leaf * action_.continuous};
  });
}

void ReplayBuffer::SendEverything() {
  if (there_ == nullptr) return;
  for (int64_t leaf = 0; leaf < length_ * rows_; ++leaf) {
    if (steps_[leaf].drawable) there_->SetTransition(leaf);
  }
  SendChanges();
}

void ReplayBuffer::SampleThere(int64_t n, double beta, Draws* draws,
                               ReplayBatch* batch) const {
  ResidentDraws::Drawn drawn = there_->Draw(n, beta, draws);
  const Batch both =
      observations_.GatherThere(drawn.place, drawn.slot, there_->finals());
  *batch = {.observation = both.Narrow(0, n),
            .action = std::move(drawn.action),
            .n_step_return = drawn.n_step_return,
            .discount = drawn.discount,
            .next_observation = both.Narrow(n, n),
            .weight = drawn.weight,
            .id = drawn.leaf};
}

bool ReplayBuffer::Sample(int64_t n, double beta, Draws* draws,
                          ReplayBatch* batch) const {
  if (drawable_ == 0) return false;
  if (there_ != nullptr) {
    SampleThere(n, beta, draws, batch);
    return true;
  }
  const bool again = batch->numbers.defined() && batch->numbers.size(1) == n;
  if (!again) MakeRoom(n, batch);
  float* n_step_return = Host<float>(batch->numbers);
  float* discounts = n_step_return + n;
  float* weights = discounts + n;
  const int64_t K = action_.choices(), A = action_.continuous;
  std::vector<double> at(n);
  for (double& one : at) one = draws->Uniform() * weights_.total();
  std::vector<int64_t> leaves(n);
  weights_.FindEach(at, leaves.data());
  std::vector<ObservationStore::Place> seen(2 * n);  // and what followed
  for (int64_t i = 0; i < n; ++i) {
    const int64_t leaf = leaves[i];
    const int64_t row = leaf % rows_;
    const Window window = WindowOf(leaf);
    seen[i] = {StepOf(leaf), row};
    seen[n + i] = {window.end, row};
    if (window.final != nullptr) {
      seen[n + i].final_row = window.final->row.data();
    }
    Host<int32_t>(batch->id)[i] = static_cast<int32_t>(leaf);
    if (K > 0) {
      std::copy_n(discrete_.begin() + leaf * K, K,
                  Host<int64_t>(batch->action.discrete) + i * K);
    }
    if (A > 0) {
      std::copy_n(continuous_.begin() + leaf * A, A,
                  Host<float>(batch->action.continuous) + i * A);
    }
    n_step_return[i] = window.n_step_return;
    discounts[i] = window.discount;
    weights[i] = ImportanceOf(weights_.least(), weights_.Get(leaf), beta);
  }
  observations_.Gather(seen, &batch->seen);
  if (!again) Hand(n, batch);
  return true;
}

void ReplayBuffer::MakeRoom(int64_t n, ReplayBatch* batch) const {
  batch->seen = observations_.EmptyBatch(2 * n, options_.device);
  batch->numbers = Staging({3, n}, torch::kFloat32, options_.device);
  batch->action = MakeActions(action_, {n}, !options_.device.is_cpu());
  batch->id = torch::empty({n}, torch::kInt32);
}

void ReplayBuffer::Hand(int64_t n, ReplayBatch* batch) const {
  const Batch both = batch->seen.To(options_.device);
  batch->observation = both.Narrow(0, n);
  batch->next_observation = both.Narrow(n, n);
  batch->action = batch->action.Map(
      [this](const torch::Tensor& t) { return ToDevice(t, options_.device); });
  const torch::Tensor there = ToDevice(batch->numbers, options_.device);
  batch->n_step_return = there[0];
  batch->discount = there[1];
  batch->weight = there[2];
  if (options_.device.is_cpu()) return;
  // Pinned memory may still be read.
  batch->seen = {};
  batch->numbers.reset();
}

void ReplayBuffer::SetErrors(const torch::Tensor& id,
                             const torch::Tensor& td_error) {
  if (options_.priority_alpha == 0) return;
  if (there_ != nullptr) {
    return there_->SetErrors(id, td_error, options_.priority_alpha);
  }
  const torch::Tensor here = ToHost(td_error);
  const float* error = Host<float>(here);
  for (int64_t i = 0; i < id.numel(); ++i) {
    const double weight = WeightOf(error[i], options_.priority_alpha);
    largest_ = std::max(largest_, weight);
    weights_.Set(Host<int32_t>(id)[i], weight);
  }
}

}  // namespace flotilla
