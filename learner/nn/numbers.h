#ifndef FLOTILLA_LEARNER_NN_NUMBERS_H_
#define FLOTILLA_LEARNER_NN_NUMBERS_H_

#include <type_traits>

#include "learner/device/host.h"
#include "learner/kernels/bfloat16.h"

namespace flotilla {

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

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_NUMBERS_H_
