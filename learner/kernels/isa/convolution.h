#ifndef FLOTILLA_LEARNER_KERNELS_ISA_CONVOLUTION_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_CONVOLUTION_H_

#include <cstdint>

#include "learner/kernels/convolution.h"
#include "learner/kernels/isa/convolution_plan.h"
#include "learner/kernels/isa/element.h"
#include "learner/kernels/isa/gemm.h"
#include "learner/kernels/isa/vec.h"
#include "learner/kernels/isa/winograd.h"

// Convolutions over images with their channels last. Included as vec.h is.

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

// What of a core's own first cache weights may take: what is read again and again
// stays there.
constexpr int64_t kWeightBytes = 32 << 10;

// Some rows of a kernel's taps.
template <typename E>
struct Taps {
  int64_t count;
  const E* packed;
  int64_t packed_step;  // from one row of weights to the next
  const float* addend;  // a pixel's; the next pixel's is `addend_step` on
  int64_t addend_step;
  bool last;
};

// Calls run(at, depth, rows) for squares of weights [out, depth], which begin `at` a
// place, and whose columns begin at `rows` of the packed; run_one(at, packed) for the
// numbers that are left.
template <typename Run, typename RunOne>
FLOTILLA_INLINE void ForSquares(const ConvolutionShape& shape, Run run,
                                RunOne run_one) {
  const int64_t taps = shape.kernel * shape.kernel, depth = taps * shape.in;
  const auto row = [&](int64_t k) {
    return (k % taps * shape.in + k / taps) * shape.out;
  };
  for (int64_t o = 0; o < shape.out; o += kLanes) {
    int64_t k = 0;
    for (; k + kLanes <= depth; k += kLanes) {
      int64_t rows[kLanes];
      for (int i = 0; i < kLanes; ++i) rows[i] = row(k + i) + o;
      run(o * depth + k, depth, rows);
    }
    for (; k < depth; ++k) {
      for (int i = 0; i < kLanes; ++i) {
        run_one((o + i) * depth + k, row(k) + o + i);
      }
    }
  }
}

void ConvolutionPack(const ConvolutionShape& shape, const float* weight,
                     float* packed) {
  ForSquares(
      shape,
      [&](int64_t at, int64_t depth, const int64_t(&rows)[kLanes]) {
        Vec square[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          square[i] = Load(weight + at + i * depth);
        }
        Transpose(square);
        for (int i = 0; i < kLanes; ++i) Store(packed + rows[i], square[i]);
      },
      [&](int64_t at, int64_t in_packed) { packed[in_packed] = weight[at]; });
}

void ConvolutionUnpack(const ConvolutionShape& shape, const float* packed,
                       float* weight) {
  ForSquares(
      shape,
      [&](int64_t at, int64_t depth, const int64_t(&rows)[kLanes]) {
        Vec square[kLanes];
        for (int i = 0; i < kLanes; ++i) square[i] = Load(packed + rows[i]);
        Transpose(square);
        for (int i = 0; i < kLanes; ++i) {
          Store(weight + at + i * depth, square[i]);
        }
      },
      [&](int64_t at, int64_t in_packed) { weight[at] = packed[in_packed]; });
}

// From [out, in, kernel, kernel] to [kernel, out, kernel, in]; in is a multiple of
// kConvolutionWidth.
void ConvolutionTurn(const ConvolutionShape& shape, const float* weight,
                     float* turned) {
  const int64_t K = shape.kernel, taps = K * K;
  const float* const end = weight + shape.weights();
  for (int64_t o = 0; o < shape.out; ++o, weight += shape.in * taps) {
    const auto to = [&](int64_t tap) {
      return turned + ((tap / K * shape.out + o) * K + tap % K) * shape.in;
    };
    for (int64_t c = 0; c < shape.in; c += kLanes) {
      const float* const from = weight + c * taps;
      for (int64_t tap = 0; tap < taps; tap += kLanes) {
        const int64_t few = Least(kLanes, taps - tap);
        // Of the last rows no whole vector is there.
        const float* const last = from + (kLanes - 1) * taps + tap;
        Vec square[kLanes] = {};
        for (int i = 0; i < kLanes; ++i) {
          const float* const row = from + i * taps + tap;
          if (end - last >= kLanes) {
            square[i] = Load(row);
          } else {
            for (int64_t k = 0; k < few; ++k) square[i][k] = row[k];
          }
        }
        Transpose(square);
        for (int64_t k = 0; k < few; ++k) Store(to(tap + k) + c, square[k]);
      }
    }
  }
}

// R pixels next to each other, V vectors of their channels: sums stay in
// registers over all taps. `shape` counts elements in.
template <int R, int V, typename E>
[[gnu::noinline]] void ConvolvePixels(const ConvolutionShape& shape,
                                      const Taps<E>& taps, const E* x,
                                      const float* addend, NumberOf<E>* y) {
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
  const E* packed = taps.packed;
  for (int64_t tap = 0; tap < taps.count; ++tap) {
    const E* at = x + tap * shape.width * shape.in;
    for (int64_t k = 0; k < depth; ++k) {
      LanesOf<E> weight[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) weight[v] = Load(packed + v * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const LanesOf<E> pixel = Splat(at[r * step]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) {
          sum[r][v] = MultiplyAdd(pixel, weight[v], sum[r][v]);
        }
      }
      ++at;
      packed += taps.packed_step;
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

template <int R, int V, typename E>
void ConvolvePixelsOf(int64_t pixels, const ConvolutionShape& shape,
                      const Taps<E>& taps, const E* x, const float* addend,
                      NumberOf<E>* y) {
  if constexpr (R > 0) {
    if (pixels == R) {
      ConvolvePixels<R, V>(shape, taps, x, addend, y);
    } else {
      ConvolvePixelsOf<R - 1, V>(pixels, shape, taps, x, addend, y);
    }
  }
}

// One row of an image, in parts as equal as they can be.
template <int V, typename E>
void ConvolveRow(const ConvolutionShape& shape, const Taps<E>& taps, const E* x,
                 const float* addend, NumberOf<E>* y) {
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

// Rows of weights that are a power of two apart share few places of the first cache, and
// push each other out: where they are this far apart, they are laid side by side first.
// By AVX-512 such layers were as fast as others without.
constexpr int64_t kFarApart = 1 << 10;
constexpr bool kLaysSideBySide = kLanes < 16;

// `count` rows of V vectors, `step` numbers apart, beside each other.
template <int V>
const float* SideBySide(int64_t count, int64_t step, const float* rows,
                        float* out) {
  for (int64_t k = 0; k < count; ++k) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      Store(out + (k * V + v) * kLanes, Load(rows + k * step + v * kLanes));
    }
  }
  return out;
}

// `shape`, `x` and `packed` count elements in. Sums of more taps at a time than are
// kept in the first cache go through `y`, or, where that would round them, are not
// parted.
template <typename E>
void Convolve(const ConvolutionShape& shape, int64_t n, const E* x,
              const E* packed, const float* bias, NumberOf<E>* y) {
  constexpr bool kFloats = sizeof(NumberOf<E>) == sizeof(float);
  const int64_t row = shape.width * shape.in;
  const int64_t out_row = shape.out_width() * shape.out;
  const int64_t depth = shape.kernel * shape.in;
  const bool lays_side_by_side = kLaysSideBySide && 4 * shape.out >= kFarApart;
  alignas(64) float side_by_side[kLaysSideBySide ? kWeightBytes / 4 : 1];
  for (; n > 0; --n, x += shape.image(), y += shape.out_image()) {
    ForVectors(shape.out, [&]<int V>(int64_t first) {
      const int64_t most =
          kFloats ? kWeightBytes / (depth * V * kLanes * 4) : shape.kernel;
      const int64_t at_once = most < 1 ? 1 : most;
      for (int64_t tap = 0; tap < shape.kernel; tap += at_once) {
        const int64_t left = shape.kernel - tap;
        Taps<E> taps = {.count = left < at_once ? left : at_once,
                        .packed = packed + tap * depth * shape.out + first,
                        .packed_step = shape.out,
                        .addend = bias + first,
                        .addend_step = 0,
                        .last = left <= at_once};
        if constexpr (kFloats) {
          if (tap > 0) {
            taps.addend = y + first;
            taps.addend_step = shape.out;
          }
          if (lays_side_by_side && most > 0) {
            taps.packed = SideBySide<V>(taps.count * depth, shape.out,
                                        taps.packed, side_by_side);
            taps.packed_step = V * kLanes;
          }
        }
        const int64_t addend_row = tap == 0 ? 0 : out_row;
        for (int64_t i = 0; i < shape.out_height(); ++i) {
          ConvolveRow<V>(shape, taps, x + (i * shape.stride + tap) * row,
                         taps.addend + i * addend_row, y + i * out_row + first);
        }
      }
    });
  }
}

ConvolutionShape InPairs(ConvolutionShape shape) {
  shape.in /= 2;
  return shape;
}

// `room`: WinogradRoomFloats, if it is such a convolution.
void ConvolutionForwardOf(const ConvolutionShape& shape,
                          const ConvolutionImages<float>& images, float* room) {
  const WinogradPlan plan = WinogradOf(shape, images.n);
  if (plan.taps == 0) {
    return Convolve(shape, images.n, images.x, images.packed, images.bias,
                    images.y);
  }
  WithTiles(plan, [&]<int kSide, int R>() {
    WinogradForward<kSide, R>(shape, images, room);
  });
}

void ConvolutionForwardOf(const ConvolutionShape& shape,
                          const ConvolutionImages<Bfloat16>& images) {
  Convolve(InPairs(shape), images.n, AsElements<Pair>(images.x),
           AsElements<Pair>(images.packed), images.bias, images.y);
}

// Rows [first, end) out of each of `n` images. More than one image: all rows.
struct Strip {
  int64_t n, first, end;
};

// Of R weights next to each other, V vectors of channels out: the sum over all
// pixels of a strip. A pair is of two images.
template <int R, int V, typename E>
[[gnu::noinline]] void WeightGradient(const ConvolutionShape& shape,
                                      const Strip& strip, const E* x,
                                      const E* from_y, float* to) {
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
      const E* at = x + image * shape.image() + i * row;
      for (int64_t j = 0; j < width; ++j) {
        LanesOf<E> gradient[V];
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) gradient[v] = Load(from_y + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const LanesOf<E> pixel = Splat(at[r]);
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

template <typename E>
void WeightGradients(const ConvolutionShape& shape, const Strip& strip,
                     const E* x, const E* from_y, float* to_packed) {
  const int64_t depth = shape.kernel * shape.in;
  ForVectors(shape.out, [&]<int V>(int64_t first) {
    constexpr int R = kLanes == 16 || V == 1 ? 8 : 4;
    for (int64_t tap = 0; tap < shape.kernel; ++tap) {
      const E* const at = x + tap * shape.width * shape.in;
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

// Calls run(strip) for all rows of `count` images, or pairs of them.
template <typename Run>
void ForStrips(const ConvolutionShape& shape, const ConvolutionBlock& block,
               int64_t count, Run run) {
  const int64_t height = shape.out_height();
  for (int64_t row = 0; row < height; row += block.rows) {
    const int64_t end = row + block.rows;
    run(Strip{count, row, end < height ? end : height});
  }
}

// For each pixel out and row of taps, the images at once: what it adds to the
// images' pixels is side by side in each, and apart from that of the others.
// `out`: elements of `from_y` and `turned`.
template <typename E>
void ImageGradients(const ConvolutionShape& shape, int64_t n, int64_t out,
                    const E* from_y, const E* turned, float* to_x) {
  const int64_t depth = shape.kernel * shape.in;
  const int64_t pixels = shape.out_height() * shape.out_width();
  for (int64_t i = 0; i < n * shape.image(); ++i) to_x[i] = 0;
  for (int64_t i = 0; i < shape.out_height(); ++i) {
    for (int64_t j = 0; j < shape.out_width(); ++j) {
      const E* const from = from_y + (i * shape.out_width() + j) * out;
      for (int64_t tap = 0; tap < shape.kernel; ++tap) {
        float* const to =
            to_x + ((i * shape.stride + tap) * shape.width + j * shape.stride) *
                       shape.in;
        Multiply<E>(n, depth, out, {from, pixels * out, 1},
                    {turned + tap * out * depth, depth}, {to, shape.image()},
                    {to, shape.image()});
      }
    }
  }
}

// Gradients of the sums before the ReLU and of the bias.
template <typename Number>
void TakeOffRelu(const ConvolutionShape& shape, int64_t pixels, const Number* y,
                 const Number* from_y, Number* from_sum, float* to_bias) {
  // A core's own first cache keeps as many, while vector after vector of their channels
  // is summed.
  constexpr int64_t kNumbersAtOnce = 2 << 10;
  const int64_t fit = kNumbersAtOnce / shape.out;
  const int64_t block = fit > 1 ? fit : 1;
  for (int64_t first = 0; first < pixels; first += block) {
    const int64_t end = first + block < pixels ? first + block : pixels;
    for (int64_t o = 0; o < shape.out; o += kLanes) {
      Vec sum = Load(to_bias + o);
      for (int64_t p = first; p < end; ++p) {
        const int64_t i = p * shape.out + o;
        const Vec gradient =
            BeforeRelu(LoadFloats(y + i), LoadFloats(from_y + i));
        Store(from_sum + i, gradient);
        sum += gradient;
      }
      Store(to_bias + o, sum);
    }
  }
}

// Each number of an image with that of the next image, which is 0 of none.
void PairImages(int64_t size, bool next, const Bfloat16* image, Pair* out) {
  const Bfloat16* const other = image + size;
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    Store(out + i, PairUp(LoadShort(image + i),
                          next ? LoadShort(other + i) : ShortVec{}));
  }
  for (; i < size; ++i) out[i] = {image[i], next ? other[i] : Bfloat16{0}};
}

// Adds what some images give the weights.
void SumWeights(const ConvolutionShape& shape, const ConvolutionBlock& block,
                int64_t count, const float* x, const float* from_y,
                ConvolutionScratch*, float* to_packed) {
  ForStrips(shape, block, count, [&](const Strip& strip) {
    WeightGradients(shape, strip, x, from_y, to_packed);
  });
}

// Of images, pairs; the last is of one where their number is odd. Gradients lie behind
// images.
struct PairedImages {
  int64_t n;
  const Pair *images, *gradients;
};
PairedImages PairUpImages(const ConvolutionShape& shape, int64_t count,
                          const Bfloat16* x, const Bfloat16* from_y,
                          ConvolutionScratch* scratch) {
  Pair* const images = AsElements<Pair>(scratch->pairs);
  const int64_t pairs = (count + 1) / 2;
  Pair* const gradients = images + pairs * shape.image();
  for (int64_t p = 0; p < pairs; ++p) {
    const bool next = 2 * p + 1 < count;
    PairImages(shape.image(), next, x + 2 * p * shape.image(),
               images + p * shape.image());
    PairImages(shape.out_image(), next, from_y + 2 * p * shape.out_image(),
               gradients + p * shape.out_image());
  }
  return {pairs, images, gradients};
}

void SumWeights(const ConvolutionShape& shape, const ConvolutionBlock& block,
                int64_t count, const Bfloat16* x, const Bfloat16* from_y,
                ConvolutionScratch* scratch, float* to_packed) {
  const PairedImages paired = PairUpImages(shape, count, x, from_y, scratch);
  ForStrips(shape, block, paired.n, [&](const Strip& strip) {
    WeightGradients<Pair>(shape, strip, paired.images, paired.gradients,
                          to_packed);
  });
}

// The gradients of a few images, from those of the sums.
void SumImages(const ConvolutionShape& shape, int64_t n, const float* from_y,
               const float* turned, ConvolutionScratch*, float* to_x) {
  ImageGradients(shape, n, shape.out, from_y, turned, to_x);
}

void RoundImages(const ConvolutionShape& shape, int64_t n, const float* sums,
                 Bfloat16* to_x) {
  for (int64_t i = 0; i < n * shape.image(); i += kLanes) {
    Store(to_x + i, Load(sums + i));
  }
}

void SumImages(const ConvolutionShape& shape, int64_t n, const Bfloat16* from_y,
               const Bfloat16* turned, ConvolutionScratch* scratch,
               Bfloat16* to_x) {
  ImageGradients(shape, n, shape.out / 2, AsElements<Pair>(from_y),
                 AsElements<Pair>(turned), scratch->sums);
  RoundImages(shape, n, scratch->sums, to_x);
}

template <typename Number>
using WeightsSum = void(const ConvolutionShape& shape,
                        const ConvolutionBlock& block, int64_t count,
                        const Number* x, const Number* from_y,
                        ConvolutionScratch* scratch, float* to_packed);
template <typename Number>
using ImagesSum = void(const ConvolutionShape& shape, int64_t n,
                       const Number* from_y, const Number* turned,
                       ConvolutionScratch* scratch, Number* to_x);

// `turned`: the weights as [kernel, out, kernel, in], of bfloat16 [kernel, out / 2,
// kernel, in, 2].
template <typename Number>
void ConvolutionBackwardByTaps(const ConvolutionShape& shape,
                               const ConvolutionBack<Number>& images,
                               const Number* turned,
                               ConvolutionScratch* scratch,
                               WeightsSum<Number>* sum_weights = SumWeights,
                               ImagesSum<Number>* sum_images = SumImages,
                               int64_t images_at_once = kImagesAtOnce) {
  const int64_t pixels = shape.out_height() * shape.out_width();
  const ConvolutionBlock block = BlockOf(shape);
  const int64_t together =
      block.images * static_cast<int64_t>(sizeof(float) / sizeof(Number));
  for (int64_t n = 0; n < images.n; n += together) {
    const int64_t left = images.n - n;
    const int64_t count = left < together ? left : together;
    const int64_t at = n * shape.out_image();
    TakeOffRelu(shape, count * pixels, images.y + at, images.from_y + at,
                images.from_sum + at, images.to_bias);
    sum_weights(shape, block, count, images.x + n * shape.image(),
                images.from_sum + at, scratch, images.to_packed);
  }
  if (images.to_x == nullptr) return;
  for (int64_t n = 0; n < images.n; n += images_at_once) {
    const int64_t left = images.n - n;
    sum_images(shape, left < images_at_once ? left : images_at_once,
               images.from_sum + n * shape.out_image(), turned, scratch,
               images.to_x + n * shape.image());
  }
}

void ConvolutionBackwardOf(const ConvolutionShape& shape,
                           const ConvolutionBack<float>& images,
                           const float* turned, ConvolutionScratch* scratch) {
  const FlushDenormals flush;
  const WinogradPlan plan = WinogradOf(shape, images.n);
  if (plan.taps == 0) {
    return ConvolutionBackwardByTaps(shape, images, turned, scratch);
  }
  WithTiles(plan, [&]<int kSide, int R>() {
    WinogradBackward<kSide, R>(shape, images, turned, scratch->winograd);
  });
}

void ConvolutionBackwardOf(const ConvolutionShape& shape,
                           const ConvolutionBack<Bfloat16>& images,
                           const Bfloat16* turned,
                           ConvolutionScratch* scratch) {
  const FlushDenormals flush;
  ConvolutionBackwardByTaps(shape, images, turned, scratch);
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_CONVOLUTION_H_
