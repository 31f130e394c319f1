#include "learner/nn/vector_math.h"

#include "learner/torch.h"

namespace flotilla {

void SettleVectorMath() {
  static const bool settled = [] {
    for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64}) {
      const torch::Tensor x = torch::full({64}, 0.5, dtype);
      for (auto* function : {torch::exp, torch::expm1, torch::log, torch::log1p,
                             torch::sqrt, torch::tanh}) {
        function(x);
      }
    }
    return true;
  }();
  (void)settled;
}

}  // namespace flotilla
