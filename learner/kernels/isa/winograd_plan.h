#ifndef FLOTILLA_LEARNER_KERNELS_ISA_WINOGRAD_PLAN_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_WINOGRAD_PLAN_H_

#include <cstdint>

#include "learner/kernels/convolution.h"
#include "learner/kernels/lane.h"

// Which convolutions of floats are made of fewer products, and of what parts.
//
// Winograd's minimal filtering (Lavin and Gray, "Fast Algorithms for Convolutional
// Neural Networks", 2016): a tile of M x M places out, by a kernel of R x R, takes
// (M + R - 1)^2 products of sums of what goes in and sums of weights, where the
// convolution's own sums take M^2 R^2. Where a kernel's side is R strides, a `cell` of
// stride x stride pixels is one place of many channels, and the kernel has R x R cells:
// so the strided layers of Mnih et al. 2015 are such too.

namespace flotilla {

struct WinogradPlan {
  int64_t taps = 0;    // R; 0: not such a convolution
  int64_t side = 0;    // M + R - 1, 4 or 6: products along a tile's side
  int64_t pixels = 0;  // M
  int64_t rows = 0, cols = 0;  // tiles of an image
  int64_t depth = 0;           // numbers of a cell
  int64_t at_once = 0;         // tiles whose products are made together

  FLOTILLA_INLINE int64_t tiles() const { return rows * cols; }
  FLOTILLA_INLINE int64_t planes() const { return side * side; }
  FLOTILLA_INLINE int64_t products() const { return planes() * tiles(); }
  // Of one plane of sums of weights.
  FLOTILLA_INLINE int64_t plane(int64_t out) const { return depth * out; }
  // From one plane of a block of tiles, `width` numbers each, to the next: not by a
  // power of two, or all planes would share places of the caches.
  FLOTILLA_INLINE int64_t step(int64_t width) const {
    return at_once * width + kConvolutionWidth;
  }
};

// As `plan`, in tiles of such a side.
FLOTILLA_INLINE WinogradPlan TiledBy(int64_t side,
                                     const ConvolutionShape& shape,
                                     WinogradPlan plan) {
  plan.side = side;
  plan.pixels = side + 1 - plan.taps;
  plan.rows = (shape.out_height() + plan.pixels - 1) / plan.pixels;
  plan.cols = (shape.out_width() + plan.pixels - 1) / plan.pixels;
  return plan;
}

// Of `images` at most at a time.
FLOTILLA_INLINE WinogradPlan WinogradOf(const ConvolutionShape& shape,
                                        int64_t images) {
  // Sums of a block are about what a core's own second cache holds; of fewer tiles at a
  // time, weights are read too often.
  constexpr int64_t kBytes = 512 << 10, kFewTiles = 48;
  // Of weights, for larger tiles: what a cache holds that cores share.
  constexpr int64_t kMostSums = 4 << 20;
  if (shape.kernel % shape.stride != 0) return {};
  const WinogradPlan taps = {
      .taps = shape.kernel / shape.stride,
      .depth = shape.stride * shape.stride * shape.in,
  };
  if (taps.taps != 2 && taps.taps != 3) return {};
  // Tiles hang over the edge: there must be a gain. With a side of 4 all sums that go in
  // are of numbers as they are, and rounding is about that of the convolution itself;
  // with 6 sums cost more, and rounding is a few times that.
  WinogradPlan plan = TiledBy(4, shape, taps);
  const WinogradPlan larger = TiledBy(6, shape, taps);
  if (5 * larger.products() <= 4 * plan.products() &&
      larger.planes() * larger.plane(shape.out) <= kMostSums) {
    plan = larger;
  }
  const int64_t by_taps =
      shape.out_height() * shape.out_width() * plan.taps * plan.taps;
  if (5 * plan.products() > 4 * by_taps) return {};
  if (shape.stride * shape.in % kConvolutionWidth != 0) return {};
  const int64_t fit = kBytes / (4 * plan.planes() * (plan.depth + shape.out));
  plan.at_once = fit > kFewTiles ? fit : kFewTiles;
  const int64_t all = images * plan.tiles();
  if (plan.at_once > all) plan.at_once = all;
  return plan;
}

FLOTILLA_INLINE int64_t CellsOf(const ConvolutionShape& shape) {
  return (shape.height / shape.stride) * (shape.width / shape.stride);
}

// Floats that `plan` takes for `images`: a block of tiles; forward a byte a cell, and
// for gradients those of the sums of weights.
FLOTILLA_INLINE int64_t WinogradRoomFloats(const ConvolutionShape& shape,
                                           const WinogradPlan& plan,
                                           int64_t images, bool gradients) {
  const int64_t more = gradients ? plan.planes() * plan.plane(shape.out)
                                 : (images * CellsOf(shape) + 3) / 4;
  return plan.planes() * (plan.step(plan.depth) + plan.step(shape.out)) + more;
}

FLOTILLA_INLINE bool IsWinograd(const ConvolutionShape& shape) {
  return WinogradOf(shape, 1).taps > 0;
}

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_WINOGRAD_PLAN_H_
