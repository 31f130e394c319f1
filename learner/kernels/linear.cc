#include "learner/kernels/linear.h"

#include <vector>

#include "learner/kernels/isa/linear_plan.h"

namespace flotilla {

void PackLinear(const LinearShape& shape, const float* weight, Bfloat16* packed,
                const KernelTable& kernels) {
  kernels.linear_pack(shape, weight, packed);
}

void LinearForward(const LinearShape& shape, LinearPart out, const Bfloat16* x,
                   LinearWeights weights, const float* bias, bool relu,
                   float* y, const KernelTable& kernels) {
  std::vector<Bfloat16> block;
  if (weights.packed == nullptr) block.resize(2 * kLinearDepth * kLinearBlock);
  kernels.linear_forward(shape, out, x, weights, bias, relu, y, block.data());
}

void PairRowsOf(int64_t n, int64_t width, const Bfloat16* rows, Bfloat16* pairs,
                const KernelTable& kernels) {
  for (int64_t i = 0; i < n; i += 2) {
    kernels.pair_images(width, i + 1 < n, rows + i * width, pairs + i * width);
  }
}

void LinearToWeight(const LinearShape& shape, LinearPart out,
                    const Bfloat16* x_pairs, const Bfloat16* from_y_pairs,
                    float* to_weight, const KernelTable& kernels) {
  kernels.linear_to_weight(shape, out, x_pairs, from_y_pairs, to_weight);
}

void LinearToX(const LinearShape& shape, LinearPart in, const Bfloat16* from_y,
               const float* weight, Bfloat16* to_x,
               const KernelTable& kernels) {
  std::vector<Bfloat16> block(static_cast<size_t>(shape.out * kLinearBlock));
  std::vector<float> sums(static_cast<size_t>(shape.n * kLinearBlock));
  kernels.linear_to_x(shape, in, from_y, weight, to_x, block.data(),
                      sums.data());
}

}  // namespace flotilla
