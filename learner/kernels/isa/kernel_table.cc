#include "learner/kernels/isa/kernel_table.h"

namespace flotilla {

extern const KernelTable kKernelsBase;
#ifdef __x86_64__
extern const KernelTable kKernelsV3;
extern const KernelTable kKernelsV4;
#endif

std::vector<const KernelTable*> RunnableKernels() {
  std::vector<const KernelTable*> runnable;
#ifdef __x86_64__
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) runnable.push_back(&kKernelsV4);
  if (__builtin_cpu_supports("x86-64-v3")) runnable.push_back(&kKernelsV3);
#endif
  runnable.push_back(&kKernelsBase);
  return runnable;
}

const KernelTable& BestKernels() {
  static const KernelTable* const best = RunnableKernels().front();
  return *best;
}

}  // namespace flotilla
