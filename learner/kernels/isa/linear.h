#ifndef FLOTILLA_LEARNER_KERNELS_ISA_LINEAR_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_LINEAR_H_

#include <cstdint>

#include "learner/kernels/isa/convolution.h"
#include "learner/kernels/isa/element.h"
#include "learner/kernels/isa/gemm.h"
#include "learner/kernels/isa/linear_plan.h"
#include "learner/kernels/linear.h"

// See linear.h one folder up. Included by kernels.h alone.

namespace flotilla {
namespace {

// Two vectors of floats next to each other.
FLOTILLA_INLINE PairVec RoundPairs(const float* p) {
  alignas(Vec) Bfloat16 numbers[2 * kLanes];
  Store(numbers, Load(p));
  Store(numbers + kLanes, Load(p + kLanes));
  return Load(reinterpret_cast<const Pair*>(numbers));
}

FLOTILLA_INLINE Pair RoundPair(const float* p) {
  const ShortVec both = ToBfloat16(Vec{p[0], p[1]});
  return {both[0], both[1]};
}

// `rows` rows of `pairs` pairs of floats, `in` floats apart, rounded, as columns:
// [pairs, rows]; rows a multiple of kLanes.
void TurnRows(int64_t rows, int64_t pairs, int64_t in, const float* weight,
              Pair* out) {
  for (int64_t r = 0; r < rows; r += kLanes) {
    const float* const from = weight + r * in;
    int64_t p = 0;
    for (; p + kLanes <= pairs; p += kLanes) {
      Vec square[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        square[i] = FromBits(RoundPairs(from + i * in + 2 * p));
      }
      Transpose(square);
      for (int i = 0; i < kLanes; ++i) {
        Store(out + (p + i) * rows + r, Bits(square[i]));
      }
    }
    for (; p < pairs; ++p) {
      for (int i = 0; i < kLanes; ++i) {
        out[p * rows + r + i] = RoundPair(from + i * in + 2 * p);
      }
    }
  }
}

FLOTILLA_INLINE int64_t AtMostOf(int64_t most, int64_t left) {
  return left < most ? left : most;
}

// Calls run(o, columns, k, pairs, at) for a part of out in blocks of numbers out and
// of pairs in, [o, o + columns) and [k, k + pairs), which begin at pair `at` where all
// are packed.
template <typename Run>
FLOTILLA_INLINE void ForLinearBlocks(const LinearShape& shape, LinearPart part,
                                     Run run) {
  const int64_t depth = shape.in / 2;
  for (int64_t o = part.first; o < part.end; o += kLinearBlock) {
    const int64_t columns = AtMostOf(kLinearBlock, part.end - o);
    for (int64_t k = 0; k < depth; k += kLinearDepth) {
      run(o, columns, k, AtMostOf(kLinearDepth, depth - k),
          o * depth + k * columns);
    }
  }
}

void LinearPack(const LinearShape& shape, const float* weight,
                Bfloat16* packed) {
  Pair* const to = reinterpret_cast<Pair*>(packed);
  ForLinearBlocks(
      shape, {0, shape.out},
      [&](int64_t o, int64_t columns, int64_t k, int64_t pairs, int64_t at) {
        TurnRows(columns, pairs, shape.in, weight + o * shape.in + 2 * k,
                 to + at);
      });
}

void LinearForwardOf(const LinearShape& shape, LinearPart part,
                     const Bfloat16* x, LinearWeights weights,
                     const float* bias, bool relu, float* y,
                     Bfloat16* scratch) {
  const int64_t depth = shape.in / 2;
  ForLinearBlocks(
      shape, part,
      [&](int64_t o, int64_t columns, int64_t k, int64_t pairs, int64_t at) {
        const Pair* block = AsPairs(scratch);
        if (weights.packed != nullptr) {
          block = AsPairs(weights.packed) + at;
        } else {
          TurnRows(columns, pairs, shape.in,
                   weights.weight + o * shape.in + 2 * k,
                   reinterpret_cast<Pair*>(scratch));
        }
        Multiply<Pair>(shape.n, columns, pairs, {AsPairs(x) + k, depth, 1},
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

void PairImagesOf(int64_t size, bool next, const Bfloat16* image,
                  Bfloat16* out) {
  PairImages(size, next, image, reinterpret_cast<Pair*>(out));
}

void LinearToWeightOf(const LinearShape& shape, LinearPart part,
                      const Bfloat16* x, const Bfloat16* from_y,
                      float* to_weight) {
  const float nothing[kLinearBlock] = {};
  for (int64_t c = 0; c < shape.in; c += kLinearBlock) {
    const int64_t columns = AtMostOf(kLinearBlock, shape.in - c);
    Multiply<Pair>(part.end - part.first, columns, (shape.n + 1) / 2,
                   {AsPairs(from_y) + part.first, 1, shape.out},
                   {AsPairs(x) + c, shape.in}, {nothing, 0},
                   {to_weight + part.first * shape.in + c, shape.in});
  }
}

void LinearToXOf(const LinearShape& shape, LinearPart part,
                 const Bfloat16* from_y, const float* weight, Bfloat16* to_x,
                 Bfloat16* scratch, float* sums) {
  Pair* const block = reinterpret_cast<Pair*>(scratch);
  const float nothing[kLinearBlock] = {};
  for (int64_t c = part.first; c < part.end; c += kLinearBlock) {
    const int64_t columns = AtMostOf(kLinearBlock, part.end - c);
    RoundRows(shape.out / 2, columns, weight + c, shape.in, block);
    Multiply<Pair>(shape.n, columns, shape.out / 2,
                   {AsPairs(from_y), shape.out / 2, 1}, {block, columns},
                   {nothing, 0}, {sums, columns});
    for (int64_t i = 0; i < shape.n; ++i) {
      for (int64_t k = 0; k < columns; k += kLanes) {
        Store(to_x + i * shape.in + c + k, Load(sums + i * columns + k));
      }
    }
  }
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_LINEAR_H_
