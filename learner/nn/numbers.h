#ifndef FLOTILLA_LEARNER_NN_NUMBERS_H_
#define FLOTILLA_LEARNER_NN_NUMBERS_H_

#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "learner/device/host.h"
#include "learner/kernels/bfloat16.h"

namespace flotilla {

// Of a batch's rows, the first of which some are learned from: all of them.
inline constexpr int64_t kAllRows = std::numeric_limits<int64_t>::max();

inline bool IsHalf(torch::Dtype dtype) { return dtype == torch::kBFloat16; }

// A tensor's numbers, of the type that kernels call them by: float, or Bfloat16.
// Dies as Host does.
template <typename Number>
Number* Numbers(const torch::Tensor& tensor) {
  if constexpr (std::is_same_v<Number, Bfloat16>) {
    return reinterpret_cast<Bfloat16*>(Host<at::BFloat16>(tensor));
  } else {
    return Host<Number>(tensor);
  }
}

// Room for the gradient of `rows` rows, of which `learned` are those that get one: zeros
// behind them.
inline torch::Tensor GradientRoom(const torch::Tensor& learned, int64_t rows) {
  std::vector<int64_t> sizes = learned.sizes().vec();
  sizes[0] = rows;
  const torch::Tensor room = at::empty(sizes, learned.options());
  const int64_t first = learned.size(0);
  if (rows > first) room.narrow(0, first, rows - first).zero_();
  return room;
}

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_NUMBERS_H_
