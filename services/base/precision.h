#ifndef FLOTILLA_SERVICES_BASE_PRECISION_H_
#define FLOTILLA_SERVICES_BASE_PRECISION_H_

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "services/base/gpus.h"

namespace flotilla {

// What decides whether bfloat16 pays.
struct Arithmetic {
  bool gpu = false;
  int compute_capability = 0;     // of the GPU: 80 is sm_80; 0: not known
  bool amx_bf16 = false;          // tiles: an Intel CPU since Sapphire Rapids
  bool full_avx512_bf16 = false;  // an AMD CPU since Zen 4
};

// This host's CPU.
Arithmetic ArithmeticOfCpu();
Arithmetic ArithmeticOf(const Gpu& gpu);

// `wanted` with PRECISION_AUTO decided: BF16 where it is faster, else FP32.
//
// On a CPU that is by AMX, or by an AMD CPU's avx512_bf16, which multiplies twice as
// fast (flotilla_layer_kernels_bench): two learners of Breakout went 1.7 and 1.6 times
// as fast by them. Intel's CPUs with avx512_bf16 and no AMX are slower by it than in
// float32.
// Errors: kInvalidArgument for TF32 on a CPU.
absl::StatusOr<v1::Precision> ChoosePrecision(v1::Precision wanted,
                                              const Arithmetic& arithmetic);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_PRECISION_H_
