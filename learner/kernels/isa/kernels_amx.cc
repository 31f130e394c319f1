#include "learner/kernels/isa/amx_instructions.h"
// Above: what the tiles below are made of.
#include "learner/kernels/isa/amx.h"

namespace flotilla {

KernelTable KernelsByAmx(const KernelTable& kernels);
KernelTable KernelsByAmx(const KernelTable& kernels) {
  return ByAmx("amx-bf16", kernels);
}

}  // namespace flotilla
