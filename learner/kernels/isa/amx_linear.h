#ifndef FLOTILLA_LEARNER_KERNELS_ISA_AMX_LINEAR_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_AMX_LINEAR_H_

#include <cstdint>

#include "learner/kernels/isa/amx_product.h"
#include "learner/kernels/isa/linear.h"

// Linear layers of bfloat16 by tiles; see linear.h.

namespace flotilla {
namespace {

void LinearForwardByAmx(const LinearShape& shape, LinearPart part,
                        const Bfloat16* x, LinearWeights<Bfloat16> weights,
                        const float* bias, bool relu, float* y,
                        Bfloat16* scratch) {
  LinearForwardWith<Pair>(shape, part, x, weights, bias, relu, y, scratch,
                          MultiplyByAmx);
}

void LinearToWeightByAmx(const LinearShape& shape, LinearPart part,
                         const Bfloat16* x, const Bfloat16* from_y,
                         float* to_weight, Bfloat16* turned) {
  const int64_t pairs = (shape.n + 1) / 2;
  const int64_t depth = PanelRows(shape.n);
  Pair* const panels = AsElements<Pair>(turned);
  TurnPairs(pairs, part.end - part.first, AsElements<Pair>(from_y) + part.first,
            shape.out, depth, panels);
  const float nothing[kLinearBlock] = {};
  for (int64_t c = 0; c < shape.in; c += kLinearBlock) {
    MultiplyByAmx(part.end - part.first, AtMostOf(kLinearBlock, shape.in - c),
                  pairs, {panels, depth, 1},
                  {AsElements<Pair>(x) + c, shape.in}, {nothing, 0},
                  {to_weight + part.first * shape.in + c, shape.in});
  }
}

void LinearToXByAmx(const LinearShape& shape, LinearPart part,
                    const Bfloat16* from_y, const float* weight, Bfloat16* to_x,
                    Bfloat16* scratch, float* sums) {
  LinearToXWith(shape, part, from_y, weight, to_x, scratch, sums,
                MultiplyByAmx);
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_AMX_LINEAR_H_
