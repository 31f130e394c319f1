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

// Goes from place to place as PixelParts counts them, from `first` of an image, and says
// which of its pixels that is.
class KeptPixels {
 public:
  FLOTILLA_INLINE KeptPixels(const ConvolutionShape& shape,
                             const PixelParts& parts, int64_t first)
      : width_(shape.out_width()),
        gap_(parts.step - width_),
        left_(gap_ == 0 ? kTile : width_ - first % parts.step),
        at_(gap_ == 0   ? first
            : left_ > 0 ? first / parts.step * width_ + width_ - left_
                        : (first / parts.step + 1) * width_) {}
  FLOTILLA_INLINE bool is_one() const { return left_ > 0; }
  FLOTILLA_INLINE int64_t at() const { return at_; }
  FLOTILLA_INLINE void Next() {
    if (left_ > 0) ++at_;
    if (--left_ == -gap_) left_ = width_;
  }

 private:
  int64_t width_, gap_;
  int64_t left_;  // of a row's pixels; not above 0 behind them
  int64_t at_;
};

// Sums of A parts of rows out, B blocks of channels. `first`: of a part's pixels, counted
// from its image's first as PixelParts counts them; `y` is its image's.
template <int A, int B>
FLOTILLA_INLINE void ConvolvePartsByAmx(const ConvolutionShape& shape,
                                        const PixelParts& parts,
                                        const Pair* const (&x)[A],
                                        const Pair* packed, const float* bias,
                                        const int64_t (&first)[A],
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
    AmxSumAll<2, A, B>({{parts.pixels, parts.pixels}}, depth, at,
                       shape.stride * shape.in, packed, kWide);
    for (int a = 0; a < A; ++a) at[a] += shape.width * shape.in;
    packed += depth * kWide;
  }
  alignas(64) float sums[A][kTile * kWide];
  float* to[A];
  for (int a = 0; a < A; ++a) to[a] = sums[a];
  AmxStoreSums<2, A, B>(to, kWide);
  for (int a = 0; a < A; ++a) {
    KeptPixels kept(shape, parts, first[a]);
    for (int64_t p = 0; p < parts.pixels; ++p, kept.Next()) {
      if (!kept.is_one()) continue;
      for (int64_t o = 0; o < kWide; o += kLanes) {
        Store(y[a] + kept.at() * shape.out + o,
              AtLeast(Load(sums[a] + p * kWide + o), 0.0f));
      }
    }
  }
}

// Of `n` images; `shape` counts pairs in.
void ConvolveByAmx(const ConvolutionShape& shape, const PixelParts& parts,
                   int64_t n, const Pair* x, const Pair* packed,
                   const float* bias, Bfloat16* y) {
  const int64_t in_image = parts.rows * parts.count;
  const auto row = [&](int64_t q) { return q % in_image / parts.count; };
  const auto column = [&](int64_t q) { return parts.first(q % parts.count); };
  const auto in = [&](int64_t q) {
    return x + q / in_image * shape.image() +
           (row(q) * shape.width + column(q)) * shape.stride * shape.in;
  };
  const auto first = [&](int64_t q) { return row(q) * parts.step + column(q); };
  const auto out = [&](int64_t q) {
    return y + q / in_image * shape.out_image();
  };
  const int64_t taps = shape.kernel * shape.kernel * shape.in;
  static_assert(AmxRegisters<2>::kColumnBlocks * kTile == kTiledChannels);
  ForColumnBlocks<2>(shape.out, [&]<int B>(int64_t o) {
    const Pair* const weights = packed + o * taps;
    int64_t q = 0;
    for (; q + 1 < n * in_image; q += 2) {
      ConvolvePartsByAmx<2, B>(shape, parts, {in(q), in(q + 1)}, weights,
                               bias + o, {first(q), first(q + 1)},
                               {out(q) + o, out(q + 1) + o});
    }
    if (q < n * in_image) {
      ConvolvePartsByAmx<1, B>(shape, parts, {in(q)}, weights, bias + o,
                               {first(q)}, {out(q) + o});
    }
  });
}

void ConvolutionForwardByAmx(const ConvolutionShape& shape,
                             const ConvolutionImages<Bfloat16>& images) {
  // Two images are an even number of parts, and stay in a core's caches while block
  // after block of channels is summed.
  constexpr int64_t kTogether = 2;
  const ConvolutionShape pairs = InPairs(shape);
  const PixelParts parts(shape);
  const AmxTiles tiles(parts.pixels, parts.pixels);
  for (int64_t i = 0; i < images.n; i += kTogether) {
    const int64_t left = images.n - i;
    ConvolveByAmx(pairs, parts, left < kTogether ? left : kTogether,
                  AsElements<Pair>(images.x + i * shape.image()),
                  AsElements<Pair>(images.packed), images.bias,
                  images.y + i * shape.out_image());
  }
}

// Pairs of two images' gradients [pixels, out] as left operands of sums over pixels:
// [rows out, parts, out / kTile] blocks of [channel, pixel]. Pixels that a part has
// again, and places of which nothing is kept, are 0 there.
void TurnGradients(const ConvolutionShape& shape, const PixelParts& parts,
                   const Pair* gradients, Pair* out) {
  for (int64_t row = 0; row < parts.rows; ++row) {
    for (int64_t part = 0; part < parts.count; ++part) {
      const int64_t first = row * parts.step + parts.first(part);
      const Pair* at[kTile];
      KeptPixels kept(shape, parts, first);
      for (int64_t p = 0; p < parts.pixels; ++p, kept.Next()) {
        const bool counts = kept.is_one() && p >= parts.again(part);
        at[p] = counts ? gradients + kept.at() * shape.out : nullptr;
      }
      TurnPairs(
          parts.pixels, shape.out,
          [&](int64_t p, int64_t o) {
            return at[p] == nullptr ? PairVec{} : Load(at[p] + o);
          },
          kTile, out);
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
                                     const PixelParts& parts,
                                     const Strip& strip, const Pair* x,
                                     const Pair* turned, int64_t weights,
                                     float* to) {
  const int64_t blocks = shape.out / kTile;
  AmxZeroSums<2, A, B>();
  for (int64_t image = 0; image < strip.n; ++image) {
    for (int64_t i = strip.first; i < strip.end; ++i) {
      for (int64_t part = 0; part < parts.count; ++part) {
        const Pair* const block =
            turned + ((image * parts.rows + i) * parts.count + part) * blocks *
                         kTile * kTile;
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
void WeightGradientsByAmx(const ConvolutionShape& shape,
                          const PixelParts& parts, const Strip& strip,
                          const Pair* x, const Pair* turned, float* to_packed) {
  const int64_t depth = shape.kernel * shape.in;
  for (int64_t tap = 0; tap < shape.kernel; ++tap) {
    for (int64_t w = 0; w < depth; w += 2 * kTile) {
      const Pair* const at = x + tap * shape.width * shape.in + w;
      float* const to = to_packed + (tap * depth + w) * shape.out;
      ForColumnBlocks<2>(shape.out, [&]<int A>(int64_t first) {
        const Pair* const gradients = turned + first * kTile;
        if (depth - w > kTile) {
          WeightSumsByAmx<A, 2>(shape, parts, strip, at, gradients, depth - w,
                                to + first);
        } else {
          WeightSumsByAmx<A, 1>(shape, parts, strip, at, gradients, depth - w,
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
  const PixelParts parts(shape);
  Pair* const turned = AsElements<Pair>(scratch->turned);
  for (int64_t p = 0; p < paired.n; ++p) {
    TurnGradients(shape, parts, paired.gradients + p * shape.out_image(),
                  turned + p * TurnedPairs(shape));
  }
  const AmxTiles tiles(kTile, kTile, parts.pixels);
  const auto add = [&](const Strip& strip) {
    WeightGradientsByAmx(shape, parts, strip, paired.images, turned, to_packed);
  };
  if (parts.flat) {
    add({paired.n, 0, 1});
  } else {
    ForStrips(shape, block, paired.n, add);
  }
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
        left[a] =
            from_y + (a * kTile * pixels + i * shape.out_width() + j) * depth;
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
