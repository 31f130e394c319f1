#include "learner/kernels/isa/kernels.h"

namespace flotilla {

extern const KernelTable kKernelsV4;
constinit const KernelTable kKernelsV4 = MakeKernelTable("x86-64-v4");

}  // namespace flotilla
