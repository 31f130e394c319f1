#include "learner/kernels/gae.h"

namespace flotilla {

void GeneralizedAdvantages(const GaeInput& input, float* advantage,
                           float* returns, const KernelTable& kernels) {
  kernels.gae(input, advantage, returns);
}

}  // namespace flotilla
