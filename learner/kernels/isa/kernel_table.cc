#include "learner/kernels/isa/kernel_table.h"

namespace flotilla {

extern const KernelTable kKernelsBase;
#ifdef __x86_64__
extern const KernelTable kKernelsV3;
extern const KernelTable kKernelsV4;
extern const KernelTable kKernelsV4Bf16;

namespace {

#if defined(__clang__) && __clang_major__ < 17  // knows features, not levels
bool HasV3() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}
bool HasV4() {
  return HasV3() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#else
bool HasV3() { return __builtin_cpu_supports("x86-64-v3"); }
bool HasV4() { return __builtin_cpu_supports("x86-64-v4"); }
#endif

}  // namespace
#endif

std::vector<const KernelTable*> RunnableKernels() {
  std::vector<const KernelTable*> runnable;
#ifdef __x86_64__
  __builtin_cpu_init();
  if (HasV4() && __builtin_cpu_supports("avx512bf16")) {
    runnable.push_back(&kKernelsV4Bf16);
  }
  if (HasV4()) runnable.push_back(&kKernelsV4);
  if (HasV3()) runnable.push_back(&kKernelsV3);
#endif
  runnable.push_back(&kKernelsBase);
  return runnable;
}

const KernelTable& BestKernels() {
  static const KernelTable* const best = RunnableKernels().front();
  return *best;
}

}  // namespace flotilla
