#include "learner/kernels/isa/kernels.h"

namespace flotilla {

extern const KernelTable kKernelsV4Bf16;
constinit const KernelTable kKernelsV4Bf16 = MakeKernelTable("x86-64-v4-bf16");

}  // namespace flotilla
