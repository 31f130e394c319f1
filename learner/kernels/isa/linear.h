#ifndef FLOTILLA_LEARNER_KERNELS_ISA_LINEAR_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_LINEAR_H_

#include <cstdint>

#include "learner/kernels/isa/convolution.h"
#include "learner/kernels/isa/element.h"
#include "learner/kernels/isa/gemm.h"
#include "learner/kernels/isa/linear_plan.h"
#include "learner/kernels/linear.h"

// See linear.h one folder up. Included as vec.h is.

namespace flotilla {
namespace {

// Numbers out, or in, whose sums Multiply keeps at once: weights for them are a strip
// that it reads from end to end.
constexpr int64_t kStrip = kBlockVecs * kLanes;
static_assert(kLinearBlock % kStrip == 0);
static_assert(kStrip % kLinearWidth == 0 || kLinearWidth % kStrip == 0);

// Elements of the floats from `p` on: themselves, or two rounded.
template <typename E>
FLOTILLA_INLINE LanesOf<E> TakeLanes(const float* p) {
  if constexpr (kNumbers<E> == 1) {
    return Load(p);
  } else {
    alignas(Vec) Bfloat16 numbers[2 * kLanes];
    Store(numbers, Load(p));
    Store(numbers + kLanes, Load(p + kLanes));
    return Load(AsElements<Pair>(numbers));
  }
}

template <typename E>
FLOTILLA_INLINE E Take(const float* p) {
  if constexpr (kNumbers<E> == 1) {
    return *p;
  } else {
    const ShortVec both = ToBfloat16(Vec{p[0], p[1]});
    return {both[0], both[1]};
  }
}

FLOTILLA_INLINE Vec AsFloats(Vec x) { return x; }
FLOTILLA_INLINE Vec AsFloats(PairVec x) { return FromBits(x); }
FLOTILLA_INLINE void StoreBits(float* p, Vec x) { Store(p, x); }
FLOTILLA_INLINE void StoreBits(Pair* p, Vec x) { Store(p, Bits(x)); }

// `rows` rows of `depth` elements, `in` floats apart, as columns: [depth, rows]; rows a
// multiple of kLanes.
template <typename E>
void TurnRows(int64_t rows, int64_t depth, int64_t in, const float* weight,
              E* out) {
  for (int64_t r = 0; r < rows; r += kLanes) {
    const float* const from = weight + r * in;
    int64_t k = 0;
    for (; k + kLanes <= depth; k += kLanes) {
      Vec square[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        square[i] = AsFloats(TakeLanes<E>(from + i * in + kNumbers<E> * k));
      }
      Transpose(square);
      for (int i = 0; i < kLanes; ++i) {
        StoreBits(out + (k + i) * rows + r, square[i]);
      }
    }
    for (; k < depth; ++k) {
      for (int i = 0; i < kLanes; ++i) {
        out[k * rows + r + i] = Take<E>(from + i * in + kNumbers<E> * k);
      }
    }
  }
}

FLOTILLA_INLINE int64_t AtMostOf(int64_t most, int64_t left) {
  return left < most ? left : most;
}

// Calls run(o, columns, k, depth, at) for a part of out in strips of numbers out and
// of elements in, [o, o + columns) and [k, k + depth), which begin at element `at`
// where all are packed.
template <typename E, typename Run>
FLOTILLA_INLINE void ForLinearBlocks(const LinearShape& shape, LinearPart part,
                                     Run run) {
  const int64_t all = shape.in / kNumbers<E>;
  for (int64_t o = part.first; o < part.end; o += kStrip) {
    const int64_t columns = AtMostOf(kStrip, part.end - o);
    for (int64_t k = 0; k < all; k += kLinearDepth) {
      run(o, columns, k, AtMostOf(kLinearDepth, all - k),
          o * all + k * columns);
    }
  }
}

template <typename E>
void LinearPackOf(const LinearShape& shape, const float* weight,
                  NumberOf<E>* packed) {
  ForLinearBlocks<E>(
      shape, {0, shape.out},
      [&](int64_t o, int64_t columns, int64_t k, int64_t depth, int64_t at) {
        TurnRows(columns, depth, shape.in,
                 weight + o * shape.in + kNumbers<E> * k,
                 AsElements<E>(packed) + at);
      });
}

// `multiply` as Multiply.
template <typename E, typename Product>
void LinearForwardWith(const LinearShape& shape, LinearPart part,
                       const NumberOf<E>* x, LinearWeights<NumberOf<E>> weights,
                       const float* bias, bool relu, float* y,
                       NumberOf<E>* scratch, Product multiply) {
  E* const turned = AsElements<E>(scratch);
  ForLinearBlocks<E>(
      shape, part,
      [&](int64_t o, int64_t columns, int64_t k, int64_t depth, int64_t at) {
        const E* block = turned;
        if (weights.packed != nullptr) {
          block = AsElements<E>(weights.packed) + at;
        } else {
          TurnRows(columns, depth, shape.in,
                   weights.weight + o * shape.in + kNumbers<E> * k, turned);
        }
        multiply(shape.n, columns, depth,
                 {AsElements<E>(x) + k, shape.in / kNumbers<E>, 1},
                 {block, columns},
                 k == 0 ? Rows{bias + o, 0} : Rows{y + o, shape.out},
                 {y + o, shape.out});
      });
  for (int64_t i = 0; relu && i < shape.n; ++i) {
    float* const row = y + i * shape.out;
    for (int64_t o = part.first; o < part.end; o += kLanes) {
      Store(row + o, AtLeast(Load(row + o), 0.0f));
    }
  }
}

template <typename E>
void LinearForwardOf(const LinearShape& shape, LinearPart part,
                     const NumberOf<E>* x, LinearWeights<NumberOf<E>> weights,
                     const float* bias, bool relu, float* y,
                     NumberOf<E>* scratch) {
  LinearForwardWith<E>(shape, part, x, weights, bias, relu, y, scratch,
                       Multiply<E>);
}

void PairImagesOf(int64_t size, bool next, const Bfloat16* image,
                  Bfloat16* out) {
  PairImages(size, next, image, AsElements<Pair>(out));
}

// `rows` rows of `columns` numbers, `step` apart, next to each other.
FLOTILLA_INLINE void CopyRows(int64_t rows, int64_t columns, const float* in,
                              int64_t step, float* out) {
  for (int64_t r = 0; r < rows; ++r, in += step, out += columns) {
    for (int64_t c = 0; c < columns; c += kLanes) Store(out + c, Load(in + c));
  }
}

// Both operands are read over and over, each row of them a page or nearly one from the
// next: they are brought together, `from_y` in panels of as many numbers out as
// Multiply keeps sums of, x in strips.
void LinearToWeightOf(const LinearShape& shape, LinearPart part, const float* x,
                      const float* from_y, bool adds, float* to_weight,
                      float* panels, float* strip) {
  const float nothing[kStrip] = {};
  for (int64_t o = part.first; o < part.end; o += kBlockRows) {
    const int64_t rows = AtMostOf(kBlockRows, part.end - o);
    float* const panel = panels + (o - part.first) * shape.n;
    for (int64_t i = 0; i < shape.n; ++i) {
      for (int64_t r = 0; r < rows; ++r) {
        panel[i * rows + r] = from_y[i * shape.out + o + r];
      }
    }
  }
  for (int64_t c = 0; c < shape.in; c += kStrip) {
    const int64_t columns = AtMostOf(kStrip, shape.in - c);
    CopyRows(shape.n, columns, x + c, shape.in, strip);
    for (int64_t o = part.first; o < part.end; o += kBlockRows) {
      const int64_t rows = AtMostOf(kBlockRows, part.end - o);
      float* const to = to_weight + o * shape.in + c;
      Multiply<float>(
          rows, columns, shape.n,
          {panels + (o - part.first) * shape.n, 1, rows}, {strip, columns},
          adds ? Rows{to, shape.in} : Rows{nothing, 0}, {to, shape.in});
    }
  }
}

void LinearToXOf(const LinearShape& shape, LinearPart part, const float* from_y,
                 const float* weight, float* to_x, float* strip) {
  const float nothing[kStrip] = {};
  for (int64_t c = part.first; c < part.end; c += kStrip) {
    const int64_t columns = AtMostOf(kStrip, part.end - c);
    CopyRows(shape.out, columns, weight + c, shape.in, strip);
    Multiply<float>(shape.n, columns, shape.out, {from_y, shape.out, 1},
                    {strip, columns}, {nothing, 0}, {to_x + c, shape.in});
  }
}

// Of rows of pairs.
void LinearToWeightOf(const LinearShape& shape, LinearPart part,
                      const Bfloat16* x, const Bfloat16* from_y, bool adds,
                      float* to_weight, Bfloat16*) {
  const float nothing[kLinearBlock] = {};
  for (int64_t c = 0; c < shape.in; c += kLinearBlock) {
    const int64_t columns = AtMostOf(kLinearBlock, shape.in - c);
    float* const to = to_weight + part.first * shape.in + c;
    Multiply<Pair>(part.end - part.first, columns, (shape.n + 1) / 2,
                   {AsElements<Pair>(from_y) + part.first, 1, shape.out},
                   {AsElements<Pair>(x) + c, shape.in},
                   adds ? Rows{to, shape.in} : Rows{nothing, 0},
                   {to, shape.in});
  }
}

template <typename Product>
void LinearToXWith(const LinearShape& shape, LinearPart part,
                   const Bfloat16* from_y, const float* weight, Bfloat16* to_x,
                   Bfloat16* scratch, float* sums, Product multiply) {
  Pair* const block = AsElements<Pair>(scratch);
  const float nothing[kLinearBlock] = {};
  for (int64_t c = part.first; c < part.end; c += kLinearBlock) {
    const int64_t columns = AtMostOf(kLinearBlock, part.end - c);
    RoundRows(shape.out / 2, columns, weight + c, shape.in, block);
    multiply(shape.n, columns, shape.out / 2,
             {AsElements<Pair>(from_y), shape.out / 2, 1}, {block, columns},
             {nothing, 0}, {sums, columns});
    for (int64_t i = 0; i < shape.n; ++i) {
      for (int64_t k = 0; k < columns; k += kLanes) {
        Store(to_x + i * shape.in + c + k, Load(sums + i * columns + k));
      }
    }
  }
}

void LinearToXOf(const LinearShape& shape, LinearPart part,
                 const Bfloat16* from_y, const float* weight, Bfloat16* to_x,
                 Bfloat16* scratch, float* sums) {
  LinearToXWith(shape, part, from_y, weight, to_x, scratch, sums,
                Multiply<Pair>);
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_LINEAR_H_
