#include "services/base/precision.h"

#include <cpuid.h>

namespace flotilla {
namespace {

bool Bit(unsigned word, int bit) { return (word >> bit & 1) != 0; }

// Whether the operating system keeps tiles of its threads apart.
bool KeepsTiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !Bit(c, 27)) return false;
  asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return Bit(a, 17) && Bit(a, 18);  // XTILECFG and XTILEDATA
}

}  // namespace

Arithmetic ArithmeticOfCpu() {
  Arithmetic cpu;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return cpu;
  // AMX-BF16 and AMX-TILE
  cpu.amx_bf16 = Bit(d, 22) && Bit(d, 24) && KeepsTiles();
  if (a > 0 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) {
    __builtin_cpu_init();
    cpu.full_avx512_bf16 = Bit(a, 5) && __builtin_cpu_is("amd");
  }
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
