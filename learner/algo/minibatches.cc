#include "learner/algo/minibatches.h"

#include <numeric>
#include <utility>

#include "learner/device/host.h"

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

Minibatches::Minibatches(const Rollout& rollout, int count, bool by_column)
    : rollout_(rollout), count_(count), by_column_(by_column) {
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
}

Minibatch Minibatches::Get(int m) {
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
