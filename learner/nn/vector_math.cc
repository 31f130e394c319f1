#include "learner/nn/vector_math.h"

#include <cstdlib>

#include "learner/torch.h"

// MKL asks this of itself before it looks at what the CPU can do, and gives a CPU
// of another maker kernels of half the width: on a Zen 5 core a product of
// [128, 3136] and [3136, 512] runs at 93 GFLOP/s, and with this answer at 187; the
// gradients' products go from 100 to 240. Of an AMD CPU with AVX2 alone it would not
// take MKL_CBWR's word either (below): on Zen 1 such products run at 22 in place of 39,
// the gradients' at 41 and 25 in place of 37 and 38, and Pong's PPO as fast as before.
// Defined in the program, it comes before libtorch_cpu's own. What the CPU lacks MKL
// still does not use.
extern "C" __attribute__((visibility("default"))) int
mkl_serv_intel_cpu_true() {
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") ||
         (__builtin_cpu_is("amd") && __builtin_cpu_supports("avx2"));
}

namespace flotilla {
namespace {

// MKL rounds a row's product by how the other factor is laid out and by how many
// rows there are beside it, unless it is told not to: a policy would decide
// otherwise alone than among others, and two devices with one seed would part. On
// Zen 5 it costs nothing. Before main, since MKL looks once, and no thread may look
// meanwhile.
[[maybe_unused]] const bool rounds_in_one_way = [] {
  __builtin_cpu_init();
  const char* const way = __builtin_cpu_supports("avx512f") ? "AVX512,STRICT"
                          : __builtin_cpu_supports("avx2")  ? "AVX2,STRICT"
                                                            : nullptr;
  return way != nullptr && setenv("MKL_CBWR", way, /*overwrite=*/0) == 0;
}();

}  // namespace

void SettleVectorMath() {
  static const bool settled = [] {
    for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64}) {
      const torch::Tensor x = torch::full({64}, 0.5, dtype);
      for (auto* function : {torch::exp, torch::expm1, torch::log, torch::log1p,
                             torch::sqrt, torch::tanh}) {
        function(x);
      }
    }
    return true;
  }();
  (void)settled;
}

}  // namespace flotilla
