#include "learner/kernels/isa/kernels.h"

namespace flotilla {

extern const KernelTable kKernelsV3;
constinit const KernelTable kKernelsV3 = MakeKernelTable("x86-64-v3");

}  // namespace flotilla
