#include "learner/kernels/linear.h"

#include "learner/kernels/isa/aligned_floats.h"
#include "learner/kernels/isa/linear_plan.h"

namespace flotilla {
namespace {

// Room for a block of weights, unless they are packed.
template <typename Number>
AlignedFloats RoomBeside(const LinearWeights<Number>& weights) {
  return weights.packed == nullptr
             ? MakeAlignedFloats(kLinearDepth * kLinearBlock)
             : nullptr;
}

}  // namespace

void PackLinear(const LinearShape& shape, const float* weight, float* packed,
                const KernelTable& kernels) {
  kernels.linear_pack(shape, weight, packed);
}

void PackLinear(const LinearShape& shape, const float* weight, Bfloat16* packed,
                const KernelTable& kernels) {
  kernels.linear_pack_bfloat16(shape, weight, packed);
}

void LinearForward(const LinearShape& shape, LinearPart out, const float* x,
                   LinearWeights<float> weights, const float* bias, bool relu,
                   float* y, const KernelTable& kernels) {
  const AlignedFloats block = RoomBeside(weights);
  kernels.linear_forward(shape, out, x, weights, bias, relu, y, block.get());
}

void LinearForward(const LinearShape& shape, LinearPart out, const Bfloat16* x,
                   LinearWeights<Bfloat16> weights, const float* bias,
                   bool relu, float* y, const KernelTable& kernels) {
  const AlignedFloats block = RoomBeside(weights);
  kernels.linear_forward_bfloat16(shape, out, x, weights, bias, relu, y,
                                  reinterpret_cast<Bfloat16*>(block.get()));
}

void PairRowsOf(int64_t n, int64_t width, const Bfloat16* rows, Bfloat16* pairs,
                const KernelTable& kernels) {
  for (int64_t i = 0; i < n; i += 2) {
    kernels.pair_images(width, i + 1 < n, rows + i * width, pairs + i * width);
  }
}

void LinearToWeight(const LinearShape& shape, LinearPart out, const float* x,
                    const float* from_y, bool adds, float* to_weight,
                    const KernelTable& kernels) {
  const AlignedFloats panels =
      MakeAlignedFloats(shape.n * (out.end - out.first));
  const AlignedFloats strip = MakeAlignedFloats(shape.n * kLinearBlock);
  kernels.linear_to_weight(shape, out, x, from_y, adds, to_weight, panels.get(),
                           strip.get());
}

void LinearToWeight(const LinearShape& shape, LinearPart out,
                    const Bfloat16* x_pairs, const Bfloat16* from_y_pairs,
                    bool adds, float* to_weight, const KernelTable& kernels) {
  AlignedFloats panels;
  if (kernels.has_tiles) {
    panels = MakeAlignedFloats(PanelRows(shape.n) *
                               (out.end - out.first + kLinearBlock));
  }
  kernels.linear_to_weight_bfloat16(shape, out, x_pairs, from_y_pairs, adds,
                                    to_weight,
                                    reinterpret_cast<Bfloat16*>(panels.get()));
}

void LinearToX(const LinearShape& shape, LinearPart in, const float* from_y,
               const float* weight, float* to_x, const KernelTable& kernels) {
  const AlignedFloats strip =
      MakeAlignedFloats(kShortLinearDepth * kLinearBlock);
  kernels.linear_to_x(shape, in, from_y, weight, to_x, strip.get());
}

void LinearToX(const LinearShape& shape, LinearPart in, const Bfloat16* from_y,
               const float* weight, Bfloat16* to_x,
               const KernelTable& kernels) {
  const AlignedFloats block = MakeAlignedFloats(shape.out / 2 * kLinearBlock);
  const AlignedFloats sums = MakeAlignedFloats(shape.n * kLinearBlock);
  kernels.linear_to_x_bfloat16(shape, in, from_y, weight, to_x,
                               reinterpret_cast<Bfloat16*>(block.get()),
                               sums.get());
}

}  // namespace flotilla
