#ifndef FLOTILLA_LEARNER_KERNELS_NEWTON_SCHULZ_H_
#define FLOTILLA_LEARNER_KERNELS_NEWTON_SCHULZ_H_

#include <cstdint>

#include "learner/kernels/isa/kernel_table.h"

namespace flotilla {

// x -> a x + b x^3 + c x^5 of the singular values, step by step: those of PufferLib's
// extensions/muon.cpp.
struct NewtonSchulzStep {
  double a, b, c;
};
inline constexpr NewtonSchulzStep kNewtonSchulz[] = {{4.0848, -6.8946, 2.9270},
                                                     {3.9505, -6.3029, 2.6377},
                                                     {3.7418, -5.5913, 2.3037},
                                                     {2.8769, -3.1427, 1.2046},
                                                     {2.8366, -3.0525, 1.2012}};
// Steps of OrthogonalizeByTiles that are in float32: what is rounded in one singular
// direction falls into all others, of which the first steps make most.
inline constexpr int kFloatNewtonSchulz = 2;
// What a matrix is divided by before them is at least so much.
inline constexpr double kSmallestNorm = 1e-7;

// `orthogonal` [rows, columns] is roughly the semi-orthogonal matrix nearest to `matrix`:
// those steps after dividing by the Frobenius norm. After the first kFloatNewtonSchulz of
// them operands of products are rounded to bfloat16, as in Jordan et al. 2024; all else is
// float32. On the calling thread. For kernels with tiles alone: a library takes longer in bfloat16 than in float32
// for matrices of networks as small as ours.
//
// Thread-safe; never blocks.
void OrthogonalizeByTiles(int64_t rows, int64_t columns, const float* matrix,
                          float* orthogonal,
                          const KernelTable& kernels = BestKernels());

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_NEWTON_SCHULZ_H_
