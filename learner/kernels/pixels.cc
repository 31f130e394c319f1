#include "learner/kernels/pixels.h"

namespace flotilla {

void PixelsToFloat(const uint8_t* frames, int64_t n, int64_t channels,
                   int64_t pixels, float scale, float* out,
                   const KernelTable& kernels) {
  for (int64_t i = 0; i < n * channels * pixels; i += channels * pixels) {
    kernels.pixels_to_float(frames + i, channels, pixels, scale, out + i);
  }
}

void PixelsToBfloat16(const uint8_t* frames, int64_t n, int64_t channels,
                      int64_t pixels, uint16_t* out,
                      const KernelTable& kernels) {
  for (int64_t i = 0; i < n * channels * pixels; i += channels * pixels) {
    kernels.pixels_to_bfloat16(frames + i, channels, pixels, out + i);
  }
}

}  // namespace flotilla
