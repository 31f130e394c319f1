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
  AmxProduct multiply;
  LinearForwardWith<AmxProduct&>(shape, part, x, weights, bias, relu, y,
                                 scratch, multiply);
}

// x is brought together in strips, as LinearToWeightOf says (linear.h), with zeros
// behind its rows.
void LinearToWeightByAmx(const LinearShape& shape, LinearPart part,
                         const Bfloat16* x, const Bfloat16* from_y, bool adds,
                         float* to_weight, Bfloat16* room) {
  const float nothing[kLinearBlock] = {};
  const int64_t pairs = (shape.n + 1) / 2;
  const int64_t depth = PanelRows(shape.n);
  const int64_t rows = part.end - part.first;
  Pair* const panels = AsElements<Pair>(room);
  Pair* const strip = panels + depth * rows;
  const Pair* const gradients = AsElements<Pair>(from_y) + part.first;
  TurnPairs(
      pairs, rows,
      [&](int64_t r, int64_t c) { return Load(gradients + r * shape.out + c); },
      depth, panels);
  AmxProduct multiply;
  for (int64_t c = 0; c < shape.in; c += kLinearBlock) {
    const int64_t columns = AtMostOf(kLinearBlock, shape.in - c);
    for (int64_t r = 0; r < depth; ++r) {
      const Pair* const from = AsElements<Pair>(x) + r * shape.in + c;
      for (int64_t k = 0; k < columns; k += kLanes) {
        Store(strip + r * columns + k, r < pairs ? Load(from + k) : PairVec{});
      }
    }
    float* const to = to_weight + part.first * shape.in + c;
    multiply(rows, columns, depth, {panels, depth, 1}, {strip, columns},
             adds ? Rows{to, shape.in} : Rows{nothing, 0}, {to, shape.in});
  }
}

void LinearToXByAmx(const LinearShape& shape, LinearPart part,
                    const Bfloat16* from_y, const float* weight, Bfloat16* to_x,
                    Bfloat16* scratch, float* sums) {
  AmxProduct multiply;
  LinearToXWith<AmxProduct&>(shape, part, from_y, weight, to_x, scratch, sums,
                             multiply);
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_AMX_LINEAR_H_
