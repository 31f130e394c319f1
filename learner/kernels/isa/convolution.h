#ifndef FLOTILLA_LEARNER_KERNELS_ISA_CONVOLUTION_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_CONVOLUTION_H_

#include <cstdint>

#include "learner/kernels/convolution.h"
#include "learner/kernels/isa/gemm.h"
#include "learner/kernels/isa/vec.h"

// Convolutions over images with their channels last. Included by kernels.h
// alone.

namespace flotilla {
namespace {

// Vectors of channels that are summed at once, and pixels of a row.
constexpr int kChannelVecs = 2;
template <int V>
constexpr int PixelsAtOnce() {
#if defined(__AVX512F__)
  return V == 1 ? 15 : 12;
#else
  return V == 1 ? 10 : 6;
#endif
}

// What of a core's own first cache weights may take, and what images and
// gradients: what is read again and again stays there.
constexpr int64_t kWeightBytes = 32 << 10;
constexpr int64_t kImageBytes = 32 << 10;

// Some rows of a kernel's taps.
struct Taps {
  int64_t count;
  const float* packed;
  const float* addend;  // a pixel's; the next pixel's is `addend_step` on
  int64_t addend_step;
  bool last;
};

void ConvolutionPack(const ConvolutionShape& shape, const float* weight,
                     float* packed) {
  const int64_t taps = shape.kernel * shape.kernel, depth = taps * shape.in;
  const auto row = [&](int64_t k) {
    return packed + (k % taps * shape.in + k / taps) * shape.out;
  };
  for (int64_t o = 0; o < shape.out; o += kLanes) {
    const float* const from = weight + o * depth;
    int64_t k = 0;
    for (; k + kLanes <= depth; k += kLanes) {
      Vec square[kLanes];
      for (int i = 0; i < kLanes; ++i) square[i] = Load(from + i * depth + k);
      Transpose(square);
      for (int i = 0; i < kLanes; ++i) Store(row(k + i) + o, square[i]);
    }
    for (; k < depth; ++k) {
      for (int i = 0; i < kLanes; ++i) row(k)[o + i] = from[i * depth + k];
    }
  }
}

// R pixels next to each other, V vectors of their channels: sums stay in
// registers over all taps.
template <int R, int V>
[[gnu::noinline]] void ConvolvePixels(const ConvolutionShape& shape,
                                      const Taps& taps, const float* x,
                                      const float* addend, float* y) {
  Vec sum[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      sum[r][v] = Load(addend + r * taps.addend_step + v * kLanes);
    }
  }
  const int64_t step = shape.stride * shape.in;
  const int64_t depth = shape.kernel * shape.in;
  const float* packed = taps.packed;
  for (int64_t tap = 0; tap < taps.count; ++tap) {
    const float* at = x + tap * shape.width * shape.in;
    for (int64_t k = 0; k < depth; ++k) {
      Vec weight[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) weight[v] = Load(packed + v * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Vec pixel = Splat(at[r * step]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) {
          sum[r][v] = MultiplyAdd(pixel, weight[v], sum[r][v]);
        }
      }
      ++at;
      packed += shape.out;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      Store(y + r * shape.out + v * kLanes,
            taps.last ? AtLeast(sum[r][v], 0.0f) : sum[r][v]);
    }
  }
}

template <int R, int V>
void ConvolvePixelsOf(int64_t pixels, const ConvolutionShape& shape,
                      const Taps& taps, const float* x, const float* addend,
                      float* y) {
  if constexpr (R > 0) {
    if (pixels == R) {
      ConvolvePixels<R, V>(shape, taps, x, addend, y);
    } else {
      ConvolvePixelsOf<R - 1, V>(pixels, shape, taps, x, addend, y);
    }
  }
}

// One row of an image, in parts as equal as they can be.
template <int V>
void ConvolveRow(const ConvolutionShape& shape, const Taps& taps,
                 const float* x, const float* addend, float* y) {
  constexpr int kMost = PixelsAtOnce<V>();
  int64_t left = shape.out_width();
  for (int64_t parts = (left + kMost - 1) / kMost; parts > 0; --parts) {
    const int64_t pixels = (left + parts - 1) / parts;
    ConvolvePixelsOf<kMost, V>(pixels, shape, taps, x, addend, y);
    x += pixels * shape.stride * shape.in;
    addend += pixels * taps.addend_step;
    y += pixels * shape.out;
    left -= pixels;
  }
}

// Calls run.template operator()<V>(first) for vectors [first, first + V) of
// `channels`, a multiple of kLanes.
template <typename Run>
FLOTILLA_INLINE void ForVectors(int64_t channels, Run run) {
  int64_t first = 0;
  while (channels - first >= kChannelVecs * kLanes) {
    run.template operator()<kChannelVecs>(first);
    first += kChannelVecs * kLanes;
  }
  if (channels > first) run.template operator()<1>(first);
}

void ConvolutionForwardOf(const ConvolutionShape& shape,
                          const ConvolutionImages& images) {
  const int64_t row = shape.width * shape.in;
  const int64_t out_row = shape.out_width() * shape.out;
  const int64_t depth = shape.kernel * shape.in;
  for (int64_t n = 0; n < images.n; ++n) {
    const float* const x = images.x + n * shape.image();
    float* const y = images.y + n * shape.out_image();
    ForVectors(shape.out, [&]<int V>(int64_t first) {
      const int64_t most = kWeightBytes / (depth * V * kLanes * 4);
      const int64_t at_once = most < 1 ? 1 : most;
      for (int64_t tap = 0; tap < shape.kernel; tap += at_once) {
        const int64_t left = shape.kernel - tap;
        const Taps taps = {
            .count = left < at_once ? left : at_once,
            .packed = images.packed + tap * depth * shape.out + first,
            .addend = tap == 0 ? images.bias + first : y + first,
            .addend_step = tap == 0 ? 0 : shape.out,
            .last = left <= at_once};
        for (int64_t i = 0; i < shape.out_height(); ++i) {
          ConvolveRow<V>(shape, taps, x + (i * shape.stride + tap) * row,
                         taps.addend + (tap == 0 ? 0 : i * out_row),
                         y + i * out_row + first);
        }
      }
    });
  }
}

// Rows [first, end) out of each of `n` images. More than one image: all rows.
struct Strip {
  int64_t n, first, end;
};

// Of R weights next to each other, V vectors of channels out: the sum over all
// pixels of a strip.
template <int R, int V>
[[gnu::noinline]] void WeightGradient(const ConvolutionShape& shape,
                                      const Strip& strip, const float* x,
                                      const float* from_y, float* to) {
  Vec sum[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v)
      sum[r][v] = Load(to + r * shape.out + v * kLanes);
  }
  const int64_t step = shape.stride * shape.in;
  const int64_t row = shape.stride * shape.width * shape.in;
  const int64_t width = shape.out_width();
  from_y += strip.first * width * shape.out;
  for (int64_t image = 0; image < strip.n; ++image) {
    for (int64_t i = strip.first; i < strip.end; ++i) {
      const float* at = x + image * shape.image() + i * row;
      for (int64_t j = 0; j < width; ++j) {
        Vec gradient[V];
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) gradient[v] = Load(from_y + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const Vec pixel = Splat(at[r]);
#pragma GCC unroll 8
          for (int v = 0; v < V; ++v) {
            sum[r][v] = MultiplyAdd(pixel, gradient[v], sum[r][v]);
          }
        }
        at += step;
        from_y += shape.out;
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v)
      Store(to + r * shape.out + v * kLanes, sum[r][v]);
  }
}

void WeightGradients(const ConvolutionShape& shape, const Strip& strip,
                     const float* x, const float* from_y, float* to_packed) {
  const int64_t depth = shape.kernel * shape.in;
  ForVectors(shape.out, [&]<int V>(int64_t first) {
    constexpr int R = kLanes == 16 || V == 1 ? 8 : 4;
    for (int64_t tap = 0; tap < shape.kernel; ++tap) {
      const float* const at = x + tap * shape.width * shape.in;
      float* const to = to_packed + tap * depth * shape.out + first;
      int64_t k = 0;
      for (; k + R <= depth; k += R) {
        WeightGradient<R, V>(shape, strip, at + k, from_y + first,
                             to + k * shape.out);
      }
      for (; k < depth; ++k) {
        WeightGradient<1, V>(shape, strip, at + k, from_y + first,
                             to + k * shape.out);
      }
    }
  });
}

// For each pixel out and row of taps, the images at once: what it adds to the
// images' pixels is side by side in each, and apart from that of the others.
void ImageGradients(const ConvolutionShape& shape, int64_t n,
                    const float* from_y, const float* turned, float* to_x) {
  const int64_t depth = shape.kernel * shape.in;
  for (int64_t i = 0; i < n * shape.image(); ++i) to_x[i] = 0;
  for (int64_t i = 0; i < shape.out_height(); ++i) {
    for (int64_t j = 0; j < shape.out_width(); ++j) {
      const float* const from =
          from_y + (i * shape.out_width() + j) * shape.out;
      for (int64_t tap = 0; tap < shape.kernel; ++tap) {
        float* const to =
            to_x + ((i * shape.stride + tap) * shape.width + j * shape.stride) *
                       shape.in;
        Multiply(n, depth, shape.out, {from, shape.out_image(), 1},
                 {turned + tap * shape.out * depth, depth}, {to, shape.image()},
                 {to, shape.image()});
      }
    }
  }
}

// Gradients of the sums before the ReLU, in place, and of the bias.
void TakeOffRelu(const ConvolutionShape& shape, int64_t pixels, const float* y,
                 float* from_y, float* to_bias) {
  for (int64_t o = 0; o < shape.out; o += kLanes) {
    Vec sum = Load(to_bias + o);
    for (int64_t i = o; i < pixels * shape.out; i += shape.out) {
      // Also of a NaN, which is not hidden.
      const Vec gradient = Load(y + i) <= 0.0f ? Vec{} : Load(from_y + i);
      Store(from_y + i, gradient);
      sum += gradient;
    }
    Store(to_bias + o, sum);
  }
}

// `turned`: the weights as [kernel, out, kernel, in].
void ConvolutionBackwardOf(const ConvolutionShape& shape,
                           const ConvolutionBack& images, const float* turned) {
  const FlushDenormals flush;
  const int64_t height = shape.out_height();
  const int64_t pixels = height * shape.out_width();
  // Whole images at once, or some of the rows of one.
  const int64_t row_bytes = 4 * (shape.stride * shape.width * shape.in +
                                 shape.out_width() * shape.out);
  const int64_t fit = kImageBytes / row_bytes;
  const int64_t rows = fit >= height ? height : fit > 1 ? fit : 1;
  const int64_t together = fit >= height ? fit / height : 1;
  for (int64_t n = 0; n < images.n; n += together) {
    const int64_t left = images.n - n;
    const int64_t count = left < together ? left : together;
    float* const from_y = images.from_y + n * shape.out_image();
    TakeOffRelu(shape, count * pixels, images.y + n * shape.out_image(), from_y,
                images.to_bias);
    for (int64_t row = 0; row < height; row += rows) {
      const int64_t end = row + rows < height ? row + rows : height;
      WeightGradients(shape, {count, row, end}, images.x + n * shape.image(),
                      from_y, images.to_packed);
    }
  }
  if (images.to_x == nullptr) return;
  constexpr int64_t kAtOnce = 2 * kBlockRows;
  for (int64_t n = 0; n < images.n; n += kAtOnce) {
    const int64_t left = images.n - n;
    ImageGradients(shape, left < kAtOnce ? left : kAtOnce,
                   images.from_y + n * shape.out_image(), turned,
                   images.to_x + n * shape.image());
  }
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_CONVOLUTION_H_
