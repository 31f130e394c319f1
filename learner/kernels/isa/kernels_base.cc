#include "learner/kernels/isa/kernels.h"

namespace flotilla {

extern const KernelTable kKernelsBase;
constinit const KernelTable kKernelsBase = MakeKernelTable("base");

}  // namespace flotilla
