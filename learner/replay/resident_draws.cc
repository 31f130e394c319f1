#include "learner/replay/resident_draws.h"

#include <bit>
#include <cstring>

#include "learner/cuda/sum_tree.h"
#include "learner/device/host.h"
#include "learner/device/transfer.h"

namespace flotilla {
namespace {

// Of transitions_.
constexpr int64_t kNumbers = 2, kEnd = 2, kSlot = 3, kActions = 4;
// Of a message, before those.
constexpr int64_t kLeaf = 0, kMark = 1, kTransition = 2;

constexpr int8_t kUnchanged = -1;

// A tree's nodes where tensors are.
torch::Tensor Nodes(int64_t n, torch::Device device) {
  return torch::empty({n, 2}, torch::dtype(torch::kFloat64).device(device));
}

}  // namespace

ResidentDraws::ResidentDraws(int64_t leaves, const ActionSpace& action,
                             int64_t row_bytes, torch::Device device)
    : leaves_(leaves),
      K_(action.choices()),
      A_(action.continuous),
      row_bytes_(row_bytes),
      device_(device),
      mark_(leaves, kUnchanged) {
  const auto on = torch::TensorOptions().device(device);
  tree_.nodes = Nodes(
      2 * static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(leaves))),
      device);
  tree_.nodes.select(1, 0).fill_(SumNode().sum);
  tree_.nodes.select(1, 1).fill_(SumNode().least);
  tree_.largest = torch::ones({1}, on.dtype(torch::kFloat64));
  transitions_ =
      torch::zeros({kActions + K_ + A_, leaves}, on.dtype(torch::kInt32));
  finals_ = torch::empty({0, row_bytes}, on.dtype(torch::kUInt8));
}

int64_t ResidentDraws::bytes() const {
  int64_t sum = 0;
  for (const torch::Tensor& t : {tree_.nodes, transitions_, finals_}) {
    sum += static_cast<int64_t>(t.nbytes());
  }
  return sum;
}

void ResidentDraws::SetDrawable(int64_t leaf, bool drawable) {
  if (mark_[leaf] == kUnchanged) changed_.push_back(leaf);
  mark_[leaf] = drawable ? MarkLeavesArgs::kLargest : MarkLeavesArgs::kNothing;
}

void ResidentDraws::SetTransition(int64_t leaf) {
  if (mark_[leaf] != kUnchanged) return;
  changed_.push_back(leaf);
  mark_[leaf] = MarkLeavesArgs::kAsBefore;
}

int64_t ResidentDraws::KeepFinal(const uint8_t* row) {
  int64_t slot = slots_;
  if (free_.empty()) {
    ++slots_;
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  new_finals_[slot] = row;
  return slot;
}

void ResidentDraws::DropFinal(int64_t slot) {
  new_finals_.erase(slot);
  free_.push_back(slot);
}

void ResidentDraws::Send(absl::FunctionRef<Transition(int64_t leaf)> of) {
  SendFinals();
  const auto n = static_cast<int64_t>(changed_.size());
  if (n == 0) return;
  const int64_t C = transitions_.size(0);
  const torch::Tensor message =
      Staging({kTransition + C, n}, torch::kInt32, device_);
  int32_t* const leaf = Host<int32_t>(message) + kLeaf * n;
  int32_t* const mark = Host<int32_t>(message) + kMark * n;
  int32_t* const columns = Host<int32_t>(message) + kTransition * n;
  for (int64_t i = 0; i < n; ++i) {
    leaf[i] = static_cast<int32_t>(changed_[i]);
    mark[i] = mark_[changed_[i]];
    int32_t* to = columns + i;  // n apart
    const auto put = [&](int32_t bits) {
      *to = bits;
      to += n;
    };
    if (mark[i] == MarkLeavesArgs::kNothing) {
      for (int64_t c = 0; c < C; ++c) put(0);
    } else {
      const Transition t = of(changed_[i]);
      put(std::bit_cast<int32_t>(t.n_step_return));
      put(std::bit_cast<int32_t>(t.discount));
      put(static_cast<int32_t>(t.end));
      put(static_cast<int32_t>(t.slot));
      for (int64_t k = 0; k < K_; ++k) put(t.discrete[k]);
      for (int64_t a = 0; a < A_; ++a) {
        put(std::bit_cast<int32_t>(t.continuous[a]));
      }
    }
    mark_[changed_[i]] = kUnchanged;
  }
  changed_.clear();
  const torch::Tensor there = ToDevice(message, device_);
  transitions_.index_copy_(1, there[kLeaf].to(torch::kInt64),
                           there.narrow(0, kTransition, C));
  MarkLeaves(tree_, there[kLeaf], there[kMark]);
}

// Of each its slot and then its row.
void ResidentDraws::SendFinals() {
  const auto n = static_cast<int64_t>(new_finals_.size());
  if (n == 0) return;
  constexpr int64_t kBytes = sizeof(int64_t);
  const torch::Tensor message =
      Staging({n, kBytes + row_bytes_}, torch::kUInt8, device_);
  uint8_t* to = HostBytes(message);
  for (const auto& [slot, row] : new_finals_) {
    std::memcpy(to, &slot, kBytes);
    std::memcpy(to + kBytes, row, row_bytes_);
    to += kBytes + row_bytes_;
  }
  new_finals_.clear();
  if (slots_ > finals_.size(0)) {
    const torch::Tensor before = finals_;
    finals_ = torch::zeros({2 * slots_, row_bytes_}, before.options());
    finals_.narrow(0, 0, before.size(0)).copy_(before);
  }
  const torch::Tensor there = ToDevice(message, device_);
  finals_.index_copy_(
      0, there.narrow(1, 0, kBytes).contiguous().view(torch::kInt64).view({n}),
      there.narrow(1, kBytes, row_bytes_));
}

ResidentDraws::Drawn ResidentDraws::Draw(int64_t n, double beta,
                                         Draws* draws) const {
  const auto [leaf, importance] =
      FindLeaves(tree_, draws->seed(), draws->place(), beta, n);
  draws->Skip(static_cast<uint64_t>(n));
  const torch::Tensor columns = transitions_.index_select(1, leaf);  // [C, N]
  const torch::Tensor numbers =
      columns.narrow(0, 0, kNumbers).view(torch::kFloat32);
  Drawn drawn;
  drawn.leaf = leaf;
  drawn.n_step_return = numbers[0];
  drawn.discount = numbers[1];
  drawn.weight = importance;
  drawn.place = torch::cat({leaf, columns[kEnd]});
  drawn.slot = columns[kSlot];
  if (K_ > 0) {
    drawn.action.discrete =
        columns.narrow(0, kActions, K_).t().to(torch::kInt64);
  }
  if (A_ > 0) {
    drawn.action.continuous =
        columns.narrow(0, kActions + K_, A_).view(torch::kFloat32).t();
  }
  return drawn;
}

ResidentDraws::Weights ResidentDraws::ReadWeights() const {
  torch::Tensor leaf =
      tree_.nodes.narrow(0, tree_.nodes.size(0) / 2, leaves_).select(1, 0);
  torch::Tensor largest = tree_.largest;
  ToHost({&leaf, &largest});
  return {leaf, *Host<double>(largest)};
}

void ResidentDraws::WriteWeights(const SumTree& tree, double largest) {
  const torch::Tensor nodes = Nodes(tree_.nodes.size(0), torch::kCPU);
  CHECK_EQ(nodes.nbytes(), tree.nodes().size_bytes());
  std::memcpy(HostBytes(nodes), tree.nodes().data(), nodes.nbytes());
  tree_.nodes.copy_(nodes);
  tree_.largest.fill_(largest);
}

}  // namespace flotilla
