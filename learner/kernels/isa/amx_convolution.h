#ifndef FLOTILLA_LEARNER_KERNELS_ISA_AMX_CONVOLUTION_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_AMX_CONVOLUTION_H_

#include <cstdint>

#include "learner/kernels/isa/amx_product.h"
#include "learner/kernels/isa/convolution.h"
#include "learner/kernels/isa/linear_plan.h"

// Convolutions of bfloat16 by tiles; see convolution.h.

namespace flotilla {
namespace {

static_assert(kConvolutionWidth == kTile && PanelRows(1) == kTile);

// The pixels of a row out, in parts of as many rows of a tile. The last begins where it
// ends with the row: some pixels are then in two.
struct RowParts {
  FLOTILLA_INLINE explicit RowParts(int64_t width)
      : count((width + kTile - 1) / kTile),
        pixels((width + count - 1) / count),
        last(width - pixels) {}
  FLOTILLA_INLINE int64_t first(int64_t part) const {
    return part * pixels < last ? part * pixels : last;
  }
  // Of a part's pixels, those that the one before has too.
  FLOTILLA_INLINE int64_t again(int64_t part) const {
    return part * pixels - first(part);
  }
  int64_t count, pixels, last;
};

// Sums of A parts of rows out, B blocks of channels.
template <int A, int B>
FLOTILLA_INLINE void ConvolvePartsByAmx(const ConvolutionShape& shape,
                                        int64_t pixels,
                                        const Pair* const (&x)[A],
                                        const Pair* packed, const float* bias,
                                        Bfloat16* const (&y)[A]) {
  constexpr int64_t kWide = B * kTile;
  const int64_t depth = shape.kernel * shape.in;
  const float* from[A];
  const Pair* at[A];
  for (int a = 0; a < A; ++a) {
    from[a] = bias;
    at[a] = x[a];
  }
  AmxLoadSums<2, A, B>(from, 0);
  for (int64_t tap = 0; tap < shape.kernel; ++tap) {
    AmxSumAll<2, A, B>({{pixels, pixels}}, depth, at, shape.stride * shape.in,
                       packed, kWide);
    for (int a = 0; a < A; ++a) at[a] += shape.width * shape.in;
    packed += depth * kWide;
  }
  alignas(64) float sums[A][kTile * kWide];
  float* to[A];
  for (int a = 0; a < A; ++a) to[a] = sums[a];
  AmxStoreSums<2, A, B>(to, kWide);
  for (int a = 0; a < A; ++a) {
    for (int64_t p = 0; p < pixels; ++p) {
      for (int64_t o = 0; o < kWide; o += kLanes) {
        Store(y[a] + p * shape.out + o,
              AtLeast(Load(sums[a] + p * kWide + o), 0.0f));
      }
    }
  }
}

// Of `n` images; `shape` counts pairs in.
void ConvolveByAmx(const ConvolutionShape& shape, int64_t n, const Pair* x,
                   const Pair* packed, const float* bias, Bfloat16* y) {
  const RowParts parts(shape.out_width());
  const int64_t in_image = shape.out_height() * parts.count;
  const auto in = [&](int64_t q) {
    return x + q / in_image * shape.image() +
           q % in_image / parts.count * shape.stride * shape.width * shape.in +
           parts.first(q % parts.count) * shape.stride * shape.in;
  };
  const auto out = [&](int64_t q) {
    return y + q / in_image * shape.out_image() +
           (q % in_image / parts.count * shape.out_width() +
            parts.first(q % parts.count)) *
               shape.out;
  };
  const int64_t taps = shape.kernel * shape.kernel * shape.in;
  static_assert(AmxRegisters<2>::kColumnBlocks * kTile == kTiledChannels);
  ForColumnBlocks<2>(shape.out, [&]<int B>(int64_t first) {
    const Pair* const weights = packed + first * taps;
    int64_t q = 0;
    for (; q + 1 < n * in_image; q += 2) {
      ConvolvePartsByAmx<2, B>(shape, parts.pixels, {in(q), in(q + 1)}, weights,
                               bias + first,
                               {out(q) + first, out(q + 1) + first});
    }
    if (q < n * in_image) {
      ConvolvePartsByAmx<1, B>(shape, parts.pixels, {in(q)}, weights,
                               bias + first, {out(q) + first});
    }
  });
}

void ConvolutionForwardByAmx(const ConvolutionShape& shape,
                             const ConvolutionImages<Bfloat16>& images) {
  // Two images are an even number of parts, and stay in a core's caches while block
  // after block of channels is summed.
  constexpr int64_t kTogether = 2;
  const ConvolutionShape pairs = InPairs(shape);
  const int64_t pixels = RowParts(shape.out_width()).pixels;
  const AmxTiles tiles(pixels, pixels);
  for (int64_t i = 0; i < images.n; i += kTogether) {
    const int64_t left = images.n - i;
    ConvolveByAmx(pairs, left < kTogether ? left : kTogether,
                  AsElements<Pair>(images.x + i * shape.image()),
                  AsElements<Pair>(images.packed), images.bias,
                  images.y + i * shape.out_image());
  }
}

// Pairs of two images' gradients [pixels, out] as left operands of sums over pixels:
// [rows out, parts, out / kTile] blocks of [channel, pixel]. Pixels that a part has again
// are 0 there.
void TurnGradients(const ConvolutionShape& shape, const Pair* gradients,
                   Pair* out) {
  const RowParts parts(shape.out_width());
  for (int64_t i = 0; i < shape.out_height(); ++i) {
    for (int64_t part = 0; part < parts.count; ++part) {
      const int64_t pixel = i * shape.out_width() + parts.first(part);
      TurnPairs(parts.again(part), parts.pixels, shape.out,
                gradients + pixel * shape.out, shape.out, kTile, out);
      out += shape.out * kTile;
    }
  }
}

// Adds sums [A blocks of channels, B blocks of weights] to `to` [weights, out]; `weights`
// of them are there.
template <int A, int B>
FLOTILLA_INLINE void AddWeightSums(const float* sums, int64_t weights,
                                   int64_t out, float* to) {
  for (int a = 0; a < A; ++a) {
    for (int64_t w = 0; w < B * kTile; w += kLanes) {
      for (int64_t o = 0; o < kTile; o += kLanes) {
        Vec square[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          square[i] = Load(sums + (a * kTile + o + i) * B * kTile + w);
        }
        Transpose(square);
        for (int i = 0; i < kLanes && w + i < weights; ++i) {
          float* const at = to + (w + i) * out + a * kTile + o;
          Store(at, Load(at) + square[i]);
        }
      }
    }
  }
}

// Of A blocks of channels and B of weights, which are side by side in `x`: sums over a
// strip's pixels. `turned` as TurnGradients makes it.
template <int A, int B>
FLOTILLA_INLINE void WeightSumsByAmx(const ConvolutionShape& shape,
                                     const Strip& strip, const Pair* x,
                                     const Pair* turned, int64_t weights,
                                     float* to) {
  const RowParts parts(shape.out_width());
  const int64_t blocks = shape.out / kTile;
  AmxZeroSums<2, A, B>();
  for (int64_t image = 0; image < strip.n; ++image) {
    for (int64_t i = strip.first; i < strip.end; ++i) {
      for (int64_t part = 0; part < parts.count; ++part) {
        const Pair* const block =
            turned + ((image * shape.out_height() + i) * parts.count + part) *
                         blocks * kTile * kTile;
        const Pair* left[A];
        for (int a = 0; a < A; ++a) left[a] = block + a * kTile * kTile;
        AmxSum<2, A, B>(
            left, kTile,
            x + image * shape.image() +
                (i * shape.width + parts.first(part)) * shape.stride * shape.in,
            shape.stride * shape.in);
      }
    }
  }
  alignas(64) float sums[A * kTile * B * kTile];
  float* to_sums[A];
  for (int a = 0; a < A; ++a) to_sums[a] = sums + a * kTile * B * kTile;
  AmxStoreSums<2, A, B>(to_sums, B * kTile);
  AddWeightSums<A, B>(sums, weights, shape.out, to);
}

// Pairs are of two images. Of weights side by side fewer than a block may be left: those
// behind them, or what is behind all images (PairedImages), are read as well, and not added.
void WeightGradientsByAmx(const ConvolutionShape& shape, const Strip& strip,
                          const Pair* x, const Pair* turned, float* to_packed) {
  const int64_t depth = shape.kernel * shape.in;
  for (int64_t tap = 0; tap < shape.kernel; ++tap) {
    for (int64_t w = 0; w < depth; w += 2 * kTile) {
      const Pair* const at = x + tap * shape.width * shape.in + w;
      float* const to = to_packed + (tap * depth + w) * shape.out;
      ForColumnBlocks<2>(shape.out, [&]<int A>(int64_t first) {
        const Pair* const gradients = turned + first * kTile;
        if (depth - w > kTile) {
          WeightSumsByAmx<A, 2>(shape, strip, at, gradients, depth - w,
                                to + first);
        } else {
          WeightSumsByAmx<A, 1>(shape, strip, at, gradients, depth - w,
                                to + first);
        }
      });
    }
  }
}

void SumWeightsByAmx(const ConvolutionShape& shape,
                     const ConvolutionBlock& block, int64_t count,
                     const Bfloat16* x, const Bfloat16* from_y,
                     ConvolutionScratch* scratch, float* to_packed) {
  const PairedImages paired = PairUpImages(shape, count, x, from_y, scratch);
  const RowParts parts(shape.out_width());
  Pair* const turned = AsElements<Pair>(scratch->turned);
  const int64_t turned_image =
      shape.out_height() * parts.count * shape.out * kTile;
  for (int64_t p = 0; p < paired.n; ++p) {
    TurnGradients(shape, paired.gradients + p * shape.out_image(),
                  turned + p * turned_image);
  }
  const AmxTiles tiles(kTile, kTile, parts.pixels);
  ForStrips(shape, block, paired.n, [&](const Strip& strip) {
    WeightGradientsByAmx(shape, strip, paired.images, turned, to_packed);
  });
}

// Of the pixels along one side of an image, those out that see pixel `at`: [first, end).
struct SeenBy {
  FLOTILLA_INLINE SeenBy(int64_t at, const ConvolutionShape& shape, int64_t out)
      : first(at < shape.kernel ? 0 : (at - shape.kernel) / shape.stride + 1),
        end(at / shape.stride < out ? at / shape.stride + 1 : out) {}
  int64_t first, end;
};

// What a pixel of A blocks of images gets from all pixels out that see it, of B blocks of
// channels in: their sums stay in registers. `x` is theirs of all images.
template <int A, int B>
FLOTILLA_INLINE void PixelGradientByAmx(const ConvolutionShape& shape,
                                        const BlockRows& blocks,
                                        int64_t at_once, int64_t row,
                                        int64_t column, const Pair* from_y,
                                        const Pair* turned, Bfloat16* x) {
  const int64_t depth = shape.out / 2, step = shape.kernel * shape.in;
  const int64_t pixels = shape.out_height() * shape.out_width();
  const SeenBy rows(row, shape, shape.out_height());
  const SeenBy columns(column, shape, shape.out_width());
  AmxZeroSums<2, A, B>();
  for (int64_t i = rows.first; i < rows.end; ++i) {
    const Pair* const taps = turned + (row - i * shape.stride) * depth * step;
    for (int64_t j = columns.first; j < columns.end; ++j) {
      const Pair* left[A];
      for (int a = 0; a < A; ++a) {
        left[a] = from_y + (a * kTile * pixels + i * shape.out_width() + j) *
                               depth;
      }
      AmxSumAll<2, A, B>(blocks, depth, left, pixels * depth,
                         taps + (column - j * shape.stride) * shape.in, step,
                         at_once);
    }
  }
  constexpr int64_t kWide = B * kTile;
  alignas(64) float sums[A][kTile * kWide];
  float* to[A];
  for (int a = 0; a < A; ++a) to[a] = sums[a];
  AmxStoreSums<2, A, B>(to, kWide);
  for (int a = 0; a < A; ++a) {
    for (int64_t r = 0; r < blocks.rows[a]; ++r) {
      for (int64_t c = 0; c < kWide; c += kLanes) {
        Store(x + (a * kTile + r) * shape.image() + c,
              Load(sums[a] + r * kWide + c));
      }
    }
  }
}

template <int A>
void ImageGradientsByAmx(const ConvolutionShape& shape, const BlockRows& blocks,
                         int64_t at_once, const Pair* from_y,
                         const Pair* turned, Bfloat16* to_x) {
  ForColumnBlocks<2>(shape.in, [&]<int B>(int64_t first) {
    for (int64_t row = 0; row < shape.height; ++row) {
      // Pixels a stride apart are seen by the same taps, which stay in the first cache.
      for (int64_t phase = 0; phase < shape.stride; ++phase) {
        for (int64_t column = phase; column < shape.width;
             column += shape.stride) {
          PixelGradientByAmx<A, B>(
              shape, blocks, at_once, row, column, from_y, turned + first,
              to_x + (row * shape.width + column) * shape.in + first);
        }
      }
    }
  });
}

// Of as many images as two blocks have rows.
void SumImagesByAmx(const ConvolutionShape& shape, int64_t n,
                    const Bfloat16* from_y, const Bfloat16* turned,
                    ConvolutionScratch*, Bfloat16* to_x) {
  const int64_t at_once = shape.out / 2 % kTile == 0 ? kTile : kTile / 2;
  const int64_t second = n > kTile ? n - kTile : 0;
  const BlockRows blocks = {{n - second, second}};
  const AmxTiles tiles(n - second, second > 0 ? second : n, at_once);
  const auto run = second > 0 ? ImageGradientsByAmx<2> : ImageGradientsByAmx<1>;
  run(shape, blocks, at_once, AsElements<Pair>(from_y),
      AsElements<Pair>(turned), to_x);
}

void ConvolutionBackwardByAmx(const ConvolutionShape& shape,
                              const ConvolutionBack<Bfloat16>& images,
                              const Bfloat16* turned,
                              ConvolutionScratch* scratch) {
  const FlushDenormals flush;
  ConvolutionBackwardByTaps(shape, images, turned, scratch, SumWeightsByAmx,
                            SumImagesByAmx, 2 * kTile);
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_AMX_CONVOLUTION_H_
