#include "learner/kernels/vtrace.h"

namespace flotilla {

void Vtrace(const VtraceInput& input, float* target, float* advantage,
            const KernelTable& kernels) {
  kernels.vtrace(input, target, advantage);
}

}  // namespace flotilla
