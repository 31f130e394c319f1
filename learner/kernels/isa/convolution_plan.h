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

// Of the gradients of two images, as AMX multiplies by them: rows out in parts, 16
// pixels each (isa/amx_convolution.h).
FLOTILLA_INLINE int64_t TurnedPairs(const ConvolutionShape& shape) {
  constexpr int64_t kPixels = 16;
  return shape.out_height() * ((shape.out_width() + kPixels - 1) / kPixels) *
         kPixels * shape.out;
}

// What gradients need room for.
struct ConvolutionScratch {
  Bfloat16* pairs =
      nullptr;  // [block.images, image + out_image, 2] of bfloat16
  Bfloat16* turned = nullptr;  // [block.images, TurnedPairs, 2], by AMX
  float* sums = nullptr;  // [kImagesAtOnce, height, width, in] of bfloat16; not by AMX
  float* winograd = nullptr;   // see winograd_plan.h
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_CONVOLUTION_PLAN_H_
