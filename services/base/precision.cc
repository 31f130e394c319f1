#include "services/base/precision.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdint>

namespace flotilla {
namespace {

#ifdef __x86_64__
bool Bit(uint64_t word, int bit) { return (word >> bit & 1) != 0; }

// Whether kernels that multiply bfloat16 run here, by tiles or without: what they ask of
// the CPU (learner/kernels/isa/kernel_table.cc), of which a virtual machine may hide a
// part, and an operating system leave the registers off.
bool RunsBfloat16Kernels() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

// Whether Linux has tiles for those that ask: where a sandbox keeps the question from
// it, the kernels that ask (learner/kernels/isa/kernel_table.cc) get none either.
bool GivesTiles() {
#ifdef SYS_arch_prctl
  constexpr int kGetComponents = 0x1021;  // ARCH_GET_XCOMP_SUPP
  uint64_t components = 0;
  return syscall(SYS_arch_prctl, kGetComponents, &components) == 0 &&
         Bit(components, 17) && Bit(components, 18);  // XTILECFG, XTILEDATA
#else
  return false;
#endif
}
#endif

}  // namespace

Arithmetic ArithmeticOfCpu() {
  Arithmetic cpu;
#ifdef __x86_64__
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!RunsBfloat16Kernels() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) {
    return cpu;
  }
  // AMX-BF16 and AMX-TILE
  cpu.amx_bf16 = Bit(d, 22) && Bit(d, 24) && GivesTiles();
  cpu.full_avx512_bf16 = __builtin_cpu_is("amd");
#endif
  return cpu;
}

Arithmetic ArithmeticOf(const Gpu& gpu) {
  return {.gpu = true, .compute_capability = gpu.compute_capability};
}

absl::StatusOr<v1::Precision> ChoosePrecision(v1::Precision wanted,
                                              const Arithmetic& arithmetic) {
  if (wanted == v1::TF32 && !arithmetic.gpu) {
    return absl::InvalidArgumentError(
        "runtime.precision is TF32, which is of a GPU, and the device is the "
        "CPU; use FP32, BF16 or PRECISION_AUTO");
  }
  if (wanted != v1::PRECISION_AUTO) return wanted;
  const bool pays = arithmetic.gpu
                        ? arithmetic.compute_capability >= 80
                        : arithmetic.amx_bf16 || arithmetic.full_avx512_bf16;
  return pays ? v1::BF16 : v1::FP32;
}

}  // namespace flotilla
