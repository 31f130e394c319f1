#include "learner/algo/minibatches.h"

#include <numeric>
#include <utility>

#include "learner/device/host.h"
#include "learner/device/transfer.h"

namespace flotilla {
namespace {

void ShuffleValues(Random* rng, std::vector<int32_t>* values) {
  for (size_t i = values->size(); i > 1; --i) {
    std::swap((*values)[i - 1], (*values)[rng->Below(i)]);
  }
}

torch::Tensor Borrow(std::vector<int32_t>* values, int64_t begin, int64_t end) {
  return torch::from_blob(values->data() + begin, {end - begin}, torch::kInt32);
}

}  // namespace

Minibatches::Minibatches(const Rollout& rollout, int count, bool by_column,
                         torch::Device device)
    : rollout_(rollout), count_(count), by_column_(by_column), device_(device) {
  const uint8_t* valid = Host<uint8_t>(rollout.valid);
  for (int64_t i = 0; i < rollout.length * rollout.rows; ++i) {
    if (valid[i]) steps_.push_back(static_cast<int32_t>(i));
  }
  if (!by_column) return;
  CHECK_EQ(rollout.rows % count, 0);
  columns_.resize(rollout.rows);
  std::iota(columns_.begin(), columns_.end(), 0);
}

void Minibatches::Shuffle(Random* rng) {
  ShuffleValues(rng, by_column_ ? &columns_ : &steps_);
  if (!device_.is_cpu()) ToDevice();
}

Minibatch Minibatches::Get(int m) {
  return device_.is_cpu() ? GetOnHost(m) : there_[m];
}

// All of an epoch in one copy.
void Minibatches::ToDevice() {
  std::vector<torch::Tensor> pieces;
  there_.assign(count_, {});
  for (int m = 0; m < count_; ++m) {
    const Minibatch part = GetOnHost(m);
    there_[m].host_index = part.index.clone();
    pieces.push_back(there_[m].host_index);
    if (by_column_) {
      there_[m].host_columns = part.columns.clone();
      pieces.push_back(there_[m].host_columns);
    }
  }
  const torch::Tensor all = flotilla::ToDevice(torch::cat(pieces), device_);
  int64_t first = 0;
  const auto next = [&](const torch::Tensor& like) {
    first += like.numel();
    return all.narrow(0, first - like.numel(), like.numel());
  };
  for (Minibatch& part : there_) {
    part.index = next(part.host_index);
    if (by_column_) part.columns = next(part.host_columns);
  }
}

Minibatch Minibatches::GetOnHost(int m) {
  Minibatch part;
  if (!by_column_) {
    const int64_t all = steps_.size();
    part.index = Borrow(&steps_, all * m / count_, all * (m + 1) / count_);
    return part;
  }
  const int64_t rows = rollout_.rows / count_;
  part.columns = Borrow(&columns_, rows * m, rows * (m + 1));
  const uint8_t* valid = Host<uint8_t>(rollout_.valid);
  gathered_.clear();
  for (int64_t t = 0; t < rollout_.length; ++t) {
    for (int64_t i = rows * m; i < rows * (m + 1); ++i) {
      const int64_t step = t * rollout_.rows + columns_[i];
      if (valid[step]) gathered_.push_back(static_cast<int32_t>(step));
    }
  }
  part.index = Borrow(&gathered_, 0, gathered_.size());
  return part;
}

}  // namespace flotilla
