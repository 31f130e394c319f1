#ifndef FLOTILLA_LEARNER_KERNELS_ISA_CONVOLUTION_PLAN_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_CONVOLUTION_PLAN_H_

#include <cstdint>

#include "learner/kernels/bfloat16.h"
#include "learner/kernels/convolution.h"
#include "learner/kernels/lane.h"

// In what parts convolutions' gradients are summed, and the room for it.

namespace flotilla {

// Of gradients: images and their gradients are read again and again, and stay in
// a core's own second cache; of less at a time, sums of many weights are loaded and
// stored too often.
struct ConvolutionBlock {
  int64_t rows;  // out, at a time
  int64_t
      images;  // of four bytes a number, at a time: one, or more with all rows
};
FLOTILLA_INLINE ConvolutionBlock BlockOf(const ConvolutionShape& shape) {
  constexpr int64_t kBytes = 256 << 10;
  const int64_t height = shape.out_height();
  const int64_t row_bytes = 4 * (shape.stride * shape.width * shape.in +
                                 shape.out_width() * shape.out);
  const int64_t fit = kBytes / row_bytes;
  return {.rows = fit >= height ? height
                  : fit > 1     ? fit
                                : 1,
          .images = fit >= height ? fit / height : 1};
}
// Whose gradients of images are summed together; AMX takes 32.
inline constexpr int64_t kImagesAtOnce = 12;

// Channels out whose weights AMX wants side by side, of all taps: as many as it sums at a
// time, so that they fill the first cache from end to end.
inline constexpr int64_t kTiledChannels = 32;

// Pixels out as AMX takes them: rows in parts of up to kTile, as equal as they can be. The
// last begins where it ends with its row: some pixels are then in two. At stride 1 an
// image is one row, with the places between two of its rows that see both, of which
// nothing is kept: parts are fuller so. Where rows are taken a few at a time (BlockOf),
// they stay rows.
struct PixelParts {
  static constexpr int64_t kTile = 16;

  FLOTILLA_INLINE explicit PixelParts(const ConvolutionShape& shape)
      : flat(shape.stride == 1 && BlockOf(shape).rows == shape.out_height()),
        rows(flat ? 1 : shape.out_height()),
        width(flat ? (shape.out_height() - 1) * shape.width + shape.out_width()
                   : shape.out_width()),
        step(flat ? shape.width : shape.out_width()),
        count((width + kTile - 1) / kTile),
        pixels((width + count - 1) / count) {}
  FLOTILLA_INLINE int64_t first(int64_t part) const {
    const int64_t last = width - pixels;
    return part * pixels < last ? part * pixels : last;
  }
  // Of a part's pixels, those that the one before has too.
  FLOTILLA_INLINE int64_t again(int64_t part) const {
    return part * pixels - first(part);
  }

  bool flat;
  int64_t rows, width;
  int64_t step;           // from a pixel to that below it
  int64_t count, pixels;  // parts of a row, pixels of a part
};

// Of the gradients of two images, as AMX multiplies by them (isa/amx_convolution.h).
FLOTILLA_INLINE int64_t TurnedPairs(const ConvolutionShape& shape) {
  const PixelParts parts(shape);
  return parts.rows * parts.count * PixelParts::kTile * shape.out;
}

// What gradients need room for.
struct ConvolutionScratch {
  Bfloat16* pairs =
      nullptr;  // [block.images, image + out_image, 2] of bfloat16
  Bfloat16* turned = nullptr;  // [block.images, TurnedPairs, 2], by AMX
  float* sums =
      nullptr;  // [kImagesAtOnce, height, width, in] of bfloat16; not by AMX
  float* winograd = nullptr;  // see winograd_plan.h
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_CONVOLUTION_PLAN_H_
