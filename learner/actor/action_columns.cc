#include "learner/actor/action_columns.h"

#include <algorithm>
#include <cstring>

namespace flotilla {
namespace {

// One action leaf's elements of rows that are `stride` apart, end to end as the
// environment's type has them.
template <typename T>
void WriteColumn(const T* from, int64_t rows, int64_t stride,
                 const ActionSpace::Leaf& leaf, std::string* column) {
  if (leaf.dtype == v1::UINT8) {
    column->resize(rows * leaf.elements);
    for (int64_t r = 0; r < rows; ++r, from += stride) {
      for (int64_t i = 0; i < leaf.elements; ++i) {
        (*column)[r * leaf.elements + i] = static_cast<char>(from[i]);
      }
    }
    return;
  }
  const size_t bytes = leaf.elements * sizeof(T);
  column->resize(rows * bytes);
  char* to = column->data();
  for (int64_t r = 0; r < rows; ++r, from += stride, to += bytes) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

std::span<const std::string> ActionColumns::Write(const int64_t* discrete,
                                                  const float* continuous,
                                                  int64_t rows) {
  const int64_t K = space_.choices(), A = space_.continuous;
  clipped_.resize(rows * A);
  for (int64_t i = 0; i < rows * A; ++i) {
    clipped_[i] =
        std::clamp(continuous[i], space_.low[i % A], space_.high[i % A]);
  }
  for (size_t i = 0; i < space_.leaf.size(); ++i) {
    const ActionSpace::Leaf& leaf = space_.leaf[i];
    if (leaf.discrete) {
      WriteColumn(discrete + leaf.first, rows, K, leaf, &column_[i]);
    } else {
      WriteColumn(clipped_.data() + leaf.first, rows, A, leaf, &column_[i]);
    }
  }
  return column_;
}

}  // namespace flotilla
