#include "learner/kernels/isa/kernel_table.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "glog/logging.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace flotilla {

extern const KernelTable kKernelsBase;
#ifdef __x86_64__
extern const KernelTable kKernelsV3;
extern const KernelTable kKernelsV4;
extern const KernelTable kKernelsV4Bf16;
KernelTable KernelsByAmx(const KernelTable& kernels);

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

// Linux gives a process tiles that asks for them.
bool HasTiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
#ifdef SYS_arch_prctl
  constexpr int kRequestComponent = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr unsigned long kTileData = 18;    // NOLINT: what the call takes
  return syscall(SYS_arch_prctl, kRequestComponent, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace
#endif

std::vector<const KernelTable*> RunnableKernels() {
  std::vector<const KernelTable*> runnable;
#ifdef __x86_64__
  __builtin_cpu_init();
  if (HasV4() && __builtin_cpu_supports("avx512bf16")) {
    static const KernelTable amx = KernelsByAmx(kKernelsV4Bf16);
    static const bool has_tiles = HasTiles();
    if (has_tiles) runnable.push_back(&amx);
    runnable.push_back(&kKernelsV4Bf16);
  }
  if (HasV4()) runnable.push_back(&kKernelsV4);
  if (HasV3()) runnable.push_back(&kKernelsV3);
#endif
  runnable.push_back(&kKernelsBase);
  return runnable;
}

const KernelTable& KernelsNamed(const char* name) {
  const std::vector<const KernelTable*> runnable = RunnableKernels();
  if (name == nullptr || *name == '\0') return *runnable.front();
  std::string names;
  for (const KernelTable* kernels : runnable) {
    if (std::string_view(kernels->name) == name) return *kernels;
    names.append(names.empty() ? "" : ", ").append(kernels->name);
  }
  LOG(WARNING) << "FLOTILLA_KERNELS=" << name
               << " is none of what this CPU runs (" << names
               << ") and is ignored";
  return *runnable.front();
}

const KernelTable& BestKernels() {
  static const KernelTable& best =
      KernelsNamed(std::getenv("FLOTILLA_KERNELS"));
  return best;
}

}  // namespace flotilla
