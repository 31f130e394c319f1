#include "learner/kernels/pixels.h"

#include <algorithm>

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

void TurnImages(int64_t n, int64_t rows, int64_t columns, const float* images,
                float* out, const KernelTable& kernels) {
  for (int64_t i = 0; i < n * rows * columns; i += rows * columns) {
    kernels.turn(rows, columns, images + i, out + i);
  }
}

void TurnImages(int64_t n, int64_t rows, int64_t columns,
                const uint16_t* images, uint16_t* out) {
  constexpr int64_t kSide = 32;  // of a square, a cache line of them
  for (; n > 0; --n, images += rows * columns, out += rows * columns) {
    for (int64_t first = 0; first < columns; first += kSide) {
      const int64_t end = std::min(first + kSide, columns);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = first; c < end; ++c) {
          out[c * rows + r] = images[r * columns + c];
        }
      }
    }
  }
}

}  // namespace flotilla
