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

// Weights are brought in strips of as many numbers out, or in, as Multiply keeps sums of.
static_assert(kLinearBlock % kPanel == 0);
static_assert(kPanel % kLinearWidth == 0 || kLinearWidth % kPanel == 0);

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
// of at most `most` elements in, [o, o + columns) and [k, k + depth), which begin at
// element `at` where all are packed.
template <typename E, typename Run>
FLOTILLA_INLINE void ForLinearBlocks(const LinearShape& shape, LinearPart part,
                                     int64_t most, Run run) {
  const int64_t all = shape.in / kNumbers<E>;
  for (int64_t o = part.first; o < part.end; o += kPanel) {
    const int64_t columns = AtMostOf(kPanel, part.end - o);
    for (int64_t k = 0; k < all; k += most) {
      run(o, columns, k, AtMostOf(most, all - k), o * all + k * columns);
    }
  }
}

template <typename E>
void LinearPackOf(const LinearShape& shape, const float* weight,
                  NumberOf<E>* packed) {
  ForLinearBlocks<E>(
      shape, {0, shape.out}, kLinearDepth,
      [&](int64_t o, int64_t columns, int64_t k, int64_t depth, int64_t at) {
        TurnRows(columns, depth, shape.in,
                 weight + o * shape.in + kNumbers<E> * k,
                 AsElements<E>(packed) + at);
      });
}

void ReluOf(const LinearShape& shape, LinearPart part, float* y) {
  for (int64_t i = 0; i < shape.n; ++i) {
    float* const row = y + i * shape.out;
    for (int64_t o = part.first; o < part.end; o += kLanes) {
      Store(row + o, AtLeast(Load(row + o), 0.0f));
    }
  }
}

void LinearForwardOf(const LinearShape& shape, LinearPart part, const float* x,
                     LinearWeights<float> weights, const float* bias, bool relu,
                     float* y, float* scratch) {
  const bool packed = weights.packed != nullptr;
  const int64_t most = packed ? kShortLinearDepth : kLinearDepth;
  ForLinearBlocks<float>(
      shape, part, most,
      [&](int64_t o, int64_t columns, int64_t k, int64_t depth, int64_t at) {
        const Left left = {x + k, shape.in, 1};
        const Result to = {y + o, shape.out};
        const Rows addend = k == 0 ? Rows{bias + o, 0} : Rows{to.data, to.row};
        if (packed && columns == kPanel) {
          const Rows panel = {weights.packed + at, kPanel};
          MultiplyPanel(shape.n, depth, left, panel, addend, to,
                        Rows{panel.data + depth * kPanel, kPanel});
          return;
        }
        if (!packed) {
          TurnRows(columns, depth, shape.in, weights.weight + o * shape.in + k,
                   scratch);
        }
        Multiply(shape.n, columns, depth, left,
                 Rows{packed ? weights.packed + at : scratch, columns}, addend,
                 to);
      });
  if (relu) ReluOf(shape, part, y);
}

// `multiply` as Multiply.
template <typename Product>
void LinearForwardWith(const LinearShape& shape, LinearPart part,
                       const Bfloat16* x, LinearWeights<Bfloat16> weights,
                       const float* bias, bool relu, float* y,
                       Bfloat16* scratch, Product multiply) {
  Pair* const turned = AsElements<Pair>(scratch);
  ForLinearBlocks<Pair>(
      shape, part, kLinearDepth,
      [&](int64_t o, int64_t columns, int64_t k, int64_t depth, int64_t at) {
        const Pair* block = turned;
        if (weights.packed != nullptr) {
          block = AsElements<Pair>(weights.packed) + at;
        } else {
          TurnRows(columns, depth, shape.in,
                   weights.weight + o * shape.in + 2 * k, turned);
        }
        multiply(shape.n, columns, depth,
                 {AsElements<Pair>(x) + k, shape.in / 2, 1}, {block, columns},
                 k == 0 ? Rows{bias + o, 0} : Rows{y + o, shape.out},
                 {y + o, shape.out});
      });
  if (relu) ReluOf(shape, part, y);
}

void LinearForwardOf(const LinearShape& shape, LinearPart part,
                     const Bfloat16* x, LinearWeights<Bfloat16> weights,
                     const float* bias, bool relu, float* y,
                     Bfloat16* scratch) {
  LinearForwardWith(shape, part, x, weights, bias, relu, y, scratch,
                    Multiply<Pair>);
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
  const float nothing[kPanel] = {};
  for (int64_t o = part.first; o < part.end; o += kBlockRows) {
    const int64_t rows = AtMostOf(kBlockRows, part.end - o);
    float* const panel = panels + (o - part.first) * shape.n;
    for (int64_t i = 0; i < shape.n; ++i) {
      for (int64_t r = 0; r < rows; ++r) {
        panel[i * rows + r] = from_y[i * shape.out + o + r];
      }
    }
  }
  for (int64_t c = 0; c < shape.in; c += kPanel) {
    const int64_t columns = AtMostOf(kPanel, shape.in - c);
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

// `strip` is what the first cache holds: sums of all that goes out are loaded and stored
// on the way.
void LinearToXOf(const LinearShape& shape, LinearPart part, const float* from_y,
                 const float* weight, float* to_x, float* strip) {
  constexpr int64_t kRows = kShortLinearDepth;
  const float nothing[kPanel] = {};
  for (int64_t c = part.first; c < part.end; c += kPanel) {
    const int64_t columns = AtMostOf(kPanel, part.end - c);
    const Result to = {to_x + c, shape.in};
    for (int64_t o = 0; o < shape.out; o += kRows) {
      const int64_t rows = AtMostOf(kRows, shape.out - o);
      CopyRows(rows, columns, weight + o * shape.in + c, shape.in, strip);
      const Left gradients = {from_y + o, shape.out, 1};
      const Rows weights = {strip, columns};
      const Rows addend = o == 0 ? Rows{nothing, 0} : Rows{to.data, to.row};
      if (columns == kPanel) {
        const bool last = o + rows == shape.out;
        const float* const next =
            weight + c + (last ? kPanel : (o + rows) * shape.in);
        MultiplyPanel(shape.n, rows, gradients, weights, addend, to,
                      Rows{next, shape.in});
      } else {
        Multiply(shape.n, columns, rows, gradients, weights, addend, to);
      }
    }
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
