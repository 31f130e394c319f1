#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "learner/device/host.h"
#include "learner/replay/replay_buffer.h"
#include "services/base/status_macros.h"

// A replay as tensors, for n written steps of the ring of B rows:
//
//   sizes          [6] int64     format, steps ever, B, capacity, ring, n_step
//   numbers        [2] float64   alpha, the largest priority
//   open           [B] int64
//   observation.i  [n, B, ...]   of leaf i
//   age            [n, B] uint8
//   discrete       [n, B, K] int32, continuous [n, B, A] float32
//   reward         [n, B] float32
//   end            [n, B] uint8  1 valid, 2 terminated, 4 truncated
//   priority       [n, B] float64
//   final_leaf     [F] int64     ascending; final_row [F, row_bytes] uint8

namespace flotilla {
namespace {

constexpr int64_t kFormat = 1;
constexpr uint8_t kValid = 1, kTerminated = 2, kTruncated = 4;
constexpr const char* kSizes[] = {
    "format",   "count of steps",      "rows (env.num_envs)",
    "capacity", "ring (frame stacks)", "n_step"};
constexpr int kCount = 1;  // which of them may differ

using Contents = ReplayBuffer::Contents;

absl::Status Differs(const std::string& what, const std::string& theirs,
                     const std::string& ours) {
  return absl::FailedPreconditionError(
      absl::StrCat("its ", what, " is ", theirs, ", and here ", ours));
}

absl::Status Nonsense(const std::string& name) {
  return absl::DataLossError(
      absl::StrCat("tensor \"", name, "\" holds what no replay does"));
}

std::string Shape(const torch::Tensor& t) {
  return absl::StrCat(c10::toString(t.scalar_type()), " ", c10::str(t.sizes()));
}

absl::Status CheckTensor(const Contents& contents, const std::string& name,
                         torch::Dtype dtype,
                         const std::vector<int64_t>& sizes) {
  const auto found = contents.find(name);
  const std::string want =
      absl::StrCat(c10::toString(dtype), " ", c10::str(sizes));
  if (found == contents.end()) return Differs(name, "missing", want);
  const torch::Tensor& t = found->second;
  if (t.scalar_type() == dtype && t.sizes() == sizes && t.is_contiguous()) {
    return absl::OkStatus();
  }
  return Differs(name, Shape(t), want);
}

// Of a leaf of the store, the sizes of `steps` steps.
std::vector<int64_t> SizesOf(const torch::Tensor& ring, int64_t steps) {
  std::vector<int64_t> sizes = ring.sizes().vec();
  sizes[0] = steps;
  return sizes;
}

std::string LeafName(int i) { return absl::StrCat("observation.", i); }

template <typename T>
torch::Tensor TensorOf(const std::vector<T>& values, torch::Dtype dtype) {
  torch::Tensor t = torch::empty({static_cast<int64_t>(values.size())}, dtype);
  std::copy(values.begin(), values.end(), Host<T>(t));
  return t;
}

}  // namespace

Contents ReplayBuffer::Copy() const {
  const int64_t n = written(), K = action_.choices(), A = action_.continuous;
  Contents contents;
  contents["sizes"] = TensorOf<int64_t>(
      {kFormat, count_, rows_, capacity_, length_, options_.n_step},
      torch::kInt64);
  const ResidentDraws::Weights weights = ReadWeights();
  contents["numbers"] = TensorOf<double>(
      {options_.priority_alpha, weights.largest}, torch::kFloat64);
  contents["open"] = TensorOf(open_, torch::kInt64);
  for (int i = 0; i < observations_.num_leaves(); ++i) {
    const torch::Tensor held = observations_.leaf(i).narrow(0, 0, n);
    contents[LeafName(i)] = held.is_cpu() ? held.clone() : held.cpu();
  }
  contents["age"] = observations_.age().narrow(0, 0, n).clone();
  if (K > 0) {
    torch::Tensor& to = contents["discrete"];
    to = torch::empty({n, rows_, K}, torch::kInt32);
    std::copy_n(discrete_.begin(), to.numel(), Host<int32_t>(to));
  }
  if (A > 0) {
    torch::Tensor& to = contents["continuous"];
    to = torch::empty({n, rows_, A}, torch::kFloat32);
    std::copy_n(continuous_.begin(), to.numel(), Host<float>(to));
  }
  torch::Tensor reward = torch::empty({n, rows_}, torch::kFloat32);
  torch::Tensor end = torch::empty({n, rows_}, torch::kUInt8);
  for (int64_t leaf = 0; leaf < n * rows_; ++leaf) {
    const Step& step = steps_[leaf];
    Host<float>(reward)[leaf] = step.reward;
    Host<uint8_t>(end)[leaf] = (step.valid ? kValid : 0) |
                               (step.terminated ? kTerminated : 0) |
                               (step.truncated ? kTruncated : 0);
  }
  contents["reward"] = reward;
  contents["end"] = end;
  contents["priority"] =
      weights.leaf.narrow(0, 0, n * rows_).view({n, rows_}).clone();

  std::vector<int64_t> leaves;
  for (const auto& [leaf, final] : finals_) leaves.push_back(leaf);
  std::sort(leaves.begin(), leaves.end());
  const int64_t bytes = observations_.row_bytes();
  torch::Tensor rows =
      torch::empty({static_cast<int64_t>(leaves.size()), bytes}, torch::kUInt8);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const std::vector<uint8_t>& row = finals_.at(leaves[i]).row;
    std::copy(row.begin(), row.end(), Host<uint8_t>(rows) + i * bytes);
  }
  contents["final_leaf"] = TensorOf(leaves, torch::kInt64);
  contents["final_row"] = rows;
  return contents;
}

ResidentDraws::Weights ReplayBuffer::ReadWeights() const {
  if (there_ != nullptr) return there_->ReadWeights();
  ResidentDraws::Weights weights = {
      torch::empty({length_ * rows_}, torch::kFloat64), largest_};
  for (int64_t leaf = 0; leaf < length_ * rows_; ++leaf) {
    Host<double>(weights.leaf)[leaf] = weights_.Get(leaf);
  }
  return weights;
}

absl::Status ReplayBuffer::CheckSizes(const Contents& contents) const {
  RETURN_IF_ERROR(CheckTensor(contents, "sizes", torch::kInt64, {6}));
  RETURN_IF_ERROR(CheckTensor(contents, "numbers", torch::kFloat64, {2}));
  const int64_t* sizes = Host<int64_t>(contents.at("sizes"));
  const int64_t ours[] = {kFormat,   sizes[kCount], rows_,
                          capacity_, length_,       options_.n_step};
  for (int i = 0; i < 6; ++i) {
    if (sizes[i] == ours[i]) continue;
    return Differs(kSizes[i], absl::StrCat(sizes[i]), absl::StrCat(ours[i]));
  }
  const double* numbers = Host<double>(contents.at("numbers"));
  if (numbers[0] != options_.priority_alpha) {
    return Differs("priority_alpha", absl::StrCat(numbers[0]),
                   absl::StrCat(options_.priority_alpha));
  }
  const int64_t count = sizes[kCount];
  if (count < 0 || !(numbers[1] > 0) || !std::isfinite(numbers[1])) {
    return Nonsense("sizes");
  }
  const int64_t n = count < length_ ? count + 1 : length_;
  const int64_t K = action_.choices(), A = action_.continuous;
  for (int i = 0; i < observations_.num_leaves(); ++i) {
    const torch::Tensor& leaf = observations_.leaf(i);
    RETURN_IF_ERROR(CheckTensor(contents, LeafName(i), leaf.scalar_type(),
                                SizesOf(leaf, n)));
  }
  using Tensors =
      std::vector<std::tuple<const char*, torch::Dtype, std::vector<int64_t>>>;
  Tensors wanted = {{"open", torch::kInt64, {rows_}},
                    {"age", torch::kUInt8, {n, rows_}},
                    {"reward", torch::kFloat32, {n, rows_}},
                    {"end", torch::kUInt8, {n, rows_}},
                    {"priority", torch::kFloat64, {n, rows_}}};
  if (K > 0) wanted.push_back({"discrete", torch::kInt32, {n, rows_, K}});
  if (A > 0) wanted.push_back({"continuous", torch::kFloat32, {n, rows_, A}});
  const auto finals = contents.find("final_leaf");
  const int64_t F = finals == contents.end() ? 0 : finals->second.numel();
  wanted.push_back({"final_leaf", torch::kInt64, {F}});
  wanted.push_back(
      {"final_row", torch::kUInt8, {F, observations_.row_bytes()}});
  for (const auto& [name, dtype, shape] : wanted) {
    RETURN_IF_ERROR(CheckTensor(contents, name, dtype, shape));
  }
  return absl::OkStatus();
}

// That nothing in it leads out of the ring, or to what is not there.
absl::Status ReplayBuffer::CheckValues(const Contents& contents) const {
  const int64_t count = Host<int64_t>(contents.at("sizes"))[kCount];
  const int64_t n = count < length_ ? count + 1 : length_;
  const int64_t K = action_.choices();
  const torch::Tensor& open = contents.at("open");
  for (int64_t b = 0; b < rows_; ++b) {
    const int64_t steps = Host<int64_t>(open)[b];
    if (steps < 0 || steps > std::min<int64_t>(count, options_.n_step)) {
      return Nonsense("open");
    }
  }
  std::vector<bool> has_final(n * rows_);
  int64_t before = -1;
  const torch::Tensor& finals = contents.at("final_leaf");
  for (int64_t i = 0; i < finals.numel(); ++i) {
    const int64_t leaf = Host<int64_t>(finals)[i];
    if (leaf <= before || leaf >= n * rows_) return Nonsense("final_leaf");
    has_final[leaf] = true;
    before = leaf;
  }
  const uint8_t* age = Host<uint8_t>(contents.at("age"));
  const uint8_t* end = Host<uint8_t>(contents.at("end"));
  const float* reward = Host<float>(contents.at("reward"));
  const double* priority = Host<double>(contents.at("priority"));
  const int32_t* discrete =
      K > 0 ? Host<int32_t>(contents.at("discrete")) : nullptr;
  for (int64_t leaf = 0; leaf < n * rows_; ++leaf) {
    // The newest step that has this place in the ring.
    const int64_t back = ((count - leaf / rows_) % length_ + length_) % length_;
    const int64_t step = count - back;
    if (age[leaf] > step || age[leaf] >= length_) return Nonsense("age");
    if (!(priority[leaf] >= 0) || !std::isfinite(priority[leaf])) {
      return Nonsense("priority");
    }
    if (step == count || step < count - capacity_) {  // cannot be drawn
      if (priority[leaf] > 0) return Nonsense("priority");
      continue;
    }
    if (!std::isfinite(reward[leaf])) return Nonsense("reward");
    if ((end[leaf] & kValid) && (end[leaf] & kTruncated) && !has_final[leaf]) {
      return Nonsense("end");
    }
    for (int64_t k = 0; k < K; ++k) {
      const int32_t value = discrete[leaf * K + k];
      if (value < 0 || value >= action_.num_values[k]) {
        return Nonsense("discrete");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReplayBuffer::Restore(const Contents& contents) {
  CHECK_EQ(count_, 0) << "this replay holds something already";
  RETURN_IF_ERROR(CheckSizes(contents));
  RETURN_IF_ERROR(CheckValues(contents));
  count_ = Host<int64_t>(contents.at("sizes"))[kCount];
  largest_ = Host<double>(contents.at("numbers"))[1];
  restored_ = true;
  const int64_t n = written();
  std::copy_n(Host<int64_t>(contents.at("open")), rows_, open_.begin());
  for (int i = 0; i < observations_.num_leaves(); ++i) {
    observations_.leaf(i).narrow(0, 0, n).copy_(contents.at(LeafName(i)));
  }
  observations_.age().narrow(0, 0, n).copy_(contents.at("age"));
  if (there_ != nullptr) observations_.Settle();
  if (action_.choices() > 0) {
    const torch::Tensor& from = contents.at("discrete");
    std::copy_n(Host<int32_t>(from), from.numel(), discrete_.begin());
  }
  if (action_.continuous > 0) {
    const torch::Tensor& from = contents.at("continuous");
    std::copy_n(Host<float>(from), from.numel(), continuous_.begin());
  }
  const uint8_t* end = Host<uint8_t>(contents.at("end"));
  const float* reward = Host<float>(contents.at("reward"));
  const double* priority = Host<double>(contents.at("priority"));
  std::optional<SumTree> to_send;
  if (there_ != nullptr) to_send.emplace(length_ * rows_);
  SumTree* const weights = to_send.has_value() ? &*to_send : &weights_;
  for (int64_t leaf = 0; leaf < n * rows_; ++leaf) {
    steps_[leaf] = {.reward = reward[leaf],
                    .valid = (end[leaf] & kValid) != 0,
                    .terminated = (end[leaf] & kTerminated) != 0,
                    .truncated = (end[leaf] & kTruncated) != 0,
                    .drawable = priority[leaf] > 0};
    if (!steps_[leaf].drawable) continue;
    ++drawable_;
    weights->Set(leaf, priority[leaf]);
  }
  const torch::Tensor& finals = contents.at("final_leaf");
  const int64_t bytes = observations_.row_bytes();
  const uint8_t* row = Host<uint8_t>(contents.at("final_row"));
  for (int64_t i = 0; i < finals.numel(); ++i, row += bytes) {
    KeepFinal(Host<int64_t>(finals)[i], row);
  }
  if (there_ != nullptr) there_->WriteWeights(*weights, largest_);
  SendEverything();
  return absl::OkStatus();
}

}  // namespace flotilla
