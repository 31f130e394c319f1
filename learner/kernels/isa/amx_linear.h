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

// Blocks of `from_y`'s numbers out, as left operands of sums over pairs of rows:
// [(end - first) / kTile, kTile, depth], depth a multiple of kTile; 0 behind the rows.
void TurnLinearGradients(const LinearShape& shape, LinearPart part,
                         const Pair* from_y, int64_t depth, Pair* out) {
  const int64_t pairs = (shape.n + 1) / 2;
  for (int64_t o = part.first; o < part.end; o += kTile, out += kTile * depth) {
    for (int64_t p = 0; p < depth; p += kLanes) {
      for (int64_t c = 0; c < kTile; c += kLanes) {
        Vec square[kLanes];
        for (int k = 0; k < kLanes; ++k) {
          square[k] = p + k < pairs
                          ? FromBits(Load(from_y + (p + k) * shape.out + o + c))
                          : Vec{};
        }
        Transpose(square);
        for (int k = 0; k < kLanes; ++k) {
          Store(out + (c + k) * depth + p, Bits(square[k]));
        }
      }
    }
  }
}

void LinearToWeightByAmx(const LinearShape& shape, LinearPart part,
                         const Bfloat16* x, const Bfloat16* from_y,
                         float* to_weight, Bfloat16* turned) {
  const int64_t pairs = (shape.n + 1) / 2;
  const int64_t depth = PanelRows(shape.n);
  Pair* const panels = AsElements<Pair>(turned);
  TurnLinearGradients(shape, part, AsElements<Pair>(from_y), depth, panels);
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
