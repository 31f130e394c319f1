#ifndef FLOTILLA_LEARNER_KERNELS_PIXELS_H_
#define FLOTILLA_LEARNER_KERNELS_PIXELS_H_

#include <cstdint>

#include "learner/kernels/isa/kernel_table.h"

namespace flotilla {

// Frames as convolutions want them: [n, channels, pixels] uint8 become [n, pixels,
// channels] in one pass. Thread-safe; never blocks.

// float32, each times `scale`.
void PixelsToFloat(const uint8_t* frames, int64_t n, int64_t channels,
                   int64_t pixels, float scale, float* out,
                   const KernelTable& kernels = BestKernels());

// bfloat16, as its bits: it holds 0 to 255 exactly.
void PixelsToBfloat16(const uint8_t* frames, int64_t n, int64_t channels,
                      int64_t pixels, uint16_t* out,
                      const KernelTable& kernels = BestKernels());

// [n, rows, columns] as [n, columns, rows]: what convolutions made, as other layers want it,
// and back. The other is of 16 bits of whatever type.
void TurnImages(int64_t n, int64_t rows, int64_t columns, const float* images,
                float* out, const KernelTable& kernels = BestKernels());
void TurnImages(int64_t n, int64_t rows, int64_t columns,
                const uint16_t* images, uint16_t* out);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_PIXELS_H_
