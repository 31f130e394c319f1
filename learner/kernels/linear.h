#ifndef FLOTILLA_LEARNER_KERNELS_LINEAR_H_
#define FLOTILLA_LEARNER_KERNELS_LINEAR_H_

#include <cstdint>

#include "learner/kernels/bfloat16.h"
#include "learner/kernels/isa/kernel_table.h"

namespace flotilla {

// A linear layer whose weights are float32, in memory as they are learned: they are
// brought, and for bfloat16 rounded, into a core's caches a block at a time, and read
// once a batch. A library is given rounded ones, and so reads and writes them twice
// more; with more weights than caches hold that is what takes the time. In float32 a
// row would be other bits in another batch, or products slower (nn/vector_math.cc).
//
// in and out are multiples of kLinearWidth; in bfloat16 forward, an even in will do.
struct LinearShape {
  int64_t n = 0, in = 0, out = 0;
};
inline constexpr int64_t kLinearWidth = 16;
// Of out or of in: who shares a layer between threads gives each a multiple of it.
inline constexpr int64_t kLinearBlock = 64;

// What of out, or of in, a call is for: [first, end).
struct LinearPart {
  int64_t first = 0, end = 0;
};

// All borrowed. Number: float, or Bfloat16, of which sums are made in float. A row is
// the same bits in any batch. Thread-safe; never block.

// `weight` as LinearForward multiplies by it, a block behind the other: for who reads
// the same weights often. `packed`: out * in numbers.
void PackLinear(const LinearShape& shape, const float* weight, float* packed,
                const KernelTable& kernels = BestKernels());
void PackLinear(const LinearShape& shape, const float* weight, Bfloat16* packed,
                const KernelTable& kernels = BestKernels());

// One of both; results are the same bits.
template <typename Number>
struct LinearWeights {
  const float* weight = nullptr;   // [out, in]
  const Number* packed = nullptr;  // see PackLinear
};

// y [n, out] = x weight^T + bias, and a ReLU after it if `relu`; a part of out.
void LinearForward(const LinearShape& shape, LinearPart out,
                   const float* x,  // [n, in]
                   LinearWeights<float> weights,
                   const float* bias,    // [out]
                   bool relu, float* y,  // [n, out]
                   const KernelTable& kernels = BestKernels());
void LinearForward(const LinearShape& shape, LinearPart out, const Bfloat16* x,
                   LinearWeights<Bfloat16> weights, const float* bias,
                   bool relu, float* y,
                   const KernelTable& kernels = BestKernels());

// [(n + 1) / 2, width, 2]: the numbers of two rows beside each other, which sums over
// rows of bfloat16 want; what the last one lacks is 0.
void PairRowsOf(int64_t n, int64_t width, const Bfloat16* rows,  // [n, width]
                Bfloat16* pairs, const KernelTable& kernels = BestKernels());

// to_weight [out, in] = from_y^T x, in bfloat16 of PairRowsOf both; a part of out. With
// `adds`, what is there already is added to it, which is read then.
void LinearToWeight(const LinearShape& shape, LinearPart out,
                    const float* x,       // [n, in]
                    const float* from_y,  // [n, out]
                    bool adds, float* to_weight,
                    const KernelTable& kernels = BestKernels());
void LinearToWeight(const LinearShape& shape, LinearPart out,
                    const Bfloat16* x_pairs, const Bfloat16* from_y_pairs,
                    bool adds, float* to_weight,
                    const KernelTable& kernels = BestKernels());

// to_x [n, in] = from_y weight; a part of in.
void LinearToX(const LinearShape& shape, LinearPart in,
               const float* from_y,  // [n, out]
               const float* weight,  // [out, in]
               float* to_x, const KernelTable& kernels = BestKernels());
void LinearToX(const LinearShape& shape, LinearPart in, const Bfloat16* from_y,
               const float* weight, Bfloat16* to_x,
               const KernelTable& kernels = BestKernels());

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_LINEAR_H_
