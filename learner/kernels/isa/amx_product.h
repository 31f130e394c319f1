#ifndef FLOTILLA_LEARNER_KERNELS_ISA_AMX_PRODUCT_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_AMX_PRODUCT_H_

#include <cstdint>
#include <utility>

#include "learner/kernels/isa/element.h"
#include "learner/kernels/isa/gemm.h"

// Products of pairs of bfloat16 by tiles. Who includes this has included
// amx_instructions.h, or what tests have in its place.

namespace flotilla {
namespace {

// Rows of a tile; numbers of a row of sums, and pairs of a row.
constexpr int64_t kTile = 16;

// Of pairs [rows, width], of which load(row, column) gives kLanes: [width, depth], 0
// behind all rows. Width and depth are multiples of kLanes.
template <typename LoadPairs>
FLOTILLA_INLINE void TurnPairs(int64_t rows, int64_t width, LoadPairs load,
                               int64_t depth, Pair* out) {
  for (int64_t c = 0; c < width; c += kLanes) {
    for (int64_t r = 0; r < depth; r += kLanes) {
      Vec square[kLanes];
      for (int k = 0; k < kLanes; ++k) {
        square[k] = r + k < rows ? FromBits(load(r + k, c)) : Vec{};
      }
      Transpose(square);
      for (int k = 0; k < kLanes; ++k) {
        Store(out + (c + k) * depth + r, Bits(square[k]));
      }
    }
  }
}

// Which registers are what. kBlocks blocks of rows (1 or 2) are multiplied together, by
// up to 4 / kBlocks blocks of kTile columns: sums are the first four registers, then
// come the left operand's blocks, and in what is left the right's, one after the other.
template <int kBlocks>
struct AmxRegisters {
  static constexpr int kColumnBlocks = 4 / kBlocks;
  static constexpr int Sum(int block, int column) {
    return block * kColumnBlocks + column;
  }
  static constexpr int Left(int block) { return 4 + block; }
  static constexpr int Right(int column) {
    return 4 + kBlocks + column % (4 - kBlocks);
  }
};

// Sizes of a thread's registers: of one block of rows, or of two (`second` is 0 of one),
// and of what is summed over at a time, `depth` pairs. Each is at least 1.
FLOTILLA_INLINE void ConfigureAmx(int64_t first, int64_t second,
                                  int64_t depth) {
  AmxConfig config;
  const int blocks = second > 0 ? 2 : 1;
  for (int i = 0; i < 8; ++i) {
    const bool right = i >= 4 + blocks, left = i >= 4 && !right;
    const bool is_second = blocks == 2 && (left ? i == 5 : i == 2 || i == 3);
    config.rows[i] = static_cast<uint8_t>(right       ? depth
                                          : is_second ? second
                                                      : first);
    config.row_bytes[i] = static_cast<uint16_t>(4 * (left ? depth : kTile));
  }
  AmxConfigure(config);
}

// They have them while one of these lives.
class AmxTiles {
 public:
  FLOTILLA_INLINE AmxTiles(int64_t first, int64_t second,
                           int64_t depth = kTile) {
    ConfigureAmx(first, second, depth);
  }
  FLOTILLA_INLINE ~AmxTiles() { AmxRelease(); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

template <int kCount, typename Run>
FLOTILLA_INLINE void ForEachIndex(Run run) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (run.template operator()<I>(), ...);
  }
  (std::make_integer_sequence<int, kCount>());
}

// A and B: how many blocks of rows and of columns take part, of those there is room for.
template <int kBlocks, int A, int B>
FLOTILLA_INLINE void AmxZeroSums() {
  using Registers = AmxRegisters<kBlocks>;
  ForEachIndex<A>([]<int a>() {
    ForEachIndex<B>([]<int b>() { AmxZero<Registers::Sum(a, b)>(); });
  });
}
template <int kBlocks, int A, int B>
FLOTILLA_INLINE void AmxLoadSums(const float* const (&from)[A], int64_t row) {
  using Registers = AmxRegisters<kBlocks>;
  ForEachIndex<A>([&]<int a>() {
    ForEachIndex<B>([&]<int b>() {
      AmxLoad<Registers::Sum(a, b)>(from[a] + b * kTile, 4 * row);
    });
  });
}
template <int kBlocks, int A, int B>
FLOTILLA_INLINE void AmxStoreSums(float* const (&to)[A], int64_t row) {
  using Registers = AmxRegisters<kBlocks>;
  ForEachIndex<A>([&]<int a>() {
    ForEachIndex<B>([&]<int b>() {
      AmxStore<Registers::Sum(a, b)>(to[a] + b * kTile, 4 * row);
    });
  });
}

// Adds the products of as many pairs as registers are deep.
template <int kBlocks, int A, int B>
FLOTILLA_INLINE void AmxSum(const Pair* const (&left)[A], int64_t left_row,
                            const Pair* right, int64_t right_row) {
  using Registers = AmxRegisters<kBlocks>;
  ForEachIndex<A>(
      [&]<int a>() { AmxLoad<Registers::Left(a)>(left[a], 4 * left_row); });
  ForEachIndex<B>([&]<int b>() {
    AmxLoad<Registers::Right(b)>(right + b * kTile, 4 * right_row);
    ForEachIndex<A>([&]<int a>() {
      AmxMultiply<Registers::Sum(a, b), Registers::Left(a),
                  Registers::Right(b)>();
    });
  });
}

// Rows of a left operand's blocks.
struct BlockRows {
  int64_t rows[2];
};

// The same of `depth` pairs, fewer than registers are deep: with zeros behind them.
template <int kBlocks, int A, int B>
[[gnu::noinline]] void AmxSumRest(const BlockRows& blocks, int64_t depth,
                                  const Pair* const (&left)[A],
                                  int64_t left_row, const Pair* right,
                                  int64_t right_row) {
  alignas(64) Pair lefts[A][kTile * kTile] = {};
  alignas(64) Pair rights[kTile * B * kTile] = {};
  const Pair* at[A];
  for (int a = 0; a < A; ++a) {
    for (int64_t r = 0; r < blocks.rows[a]; ++r) {
      for (int64_t k = 0; k < depth; ++k) {
        lefts[a][r * kTile + k] = left[a][r * left_row + k];
      }
    }
    at[a] = lefts[a];
  }
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t c = 0; c < B * kTile; ++c) {
      rights[k * B * kTile + c] = right[k * right_row + c];
    }
  }
  AmxSum<kBlocks, A, B>(at, kTile, rights, B * kTile);
}

// The same of any depth: registers are `at_once` deep, by default kTile, which a rest
// wants.
template <int kBlocks, int A, int B>
FLOTILLA_INLINE void AmxSumAll(const BlockRows& blocks, int64_t depth,
                               const Pair* const (&left)[A], int64_t left_row,
                               const Pair* right, int64_t right_row,
                               int64_t at_once = kTile) {
  const Pair* at[A];
  for (int a = 0; a < A; ++a) at[a] = left[a];
  for (; depth >= at_once; depth -= at_once) {
    AmxSum<kBlocks, A, B>(at, left_row, right, right_row);
    for (int a = 0; a < A; ++a) at[a] += at_once;
    right += at_once * right_row;
  }
  if (depth > 0) {
    AmxSumRest<kBlocks, A, B>(blocks, depth, at, left_row, right, right_row);
  }
}

// Calls run.template operator()<B>(first) for blocks of B * kTile of `columns`, a
// multiple of kTile: as many together as there are registers for.
template <int kBlocks, typename Run>
FLOTILLA_INLINE void ForColumnBlocks(int64_t columns, Run run) {
  constexpr int kMost = AmxRegisters<kBlocks>::kColumnBlocks;
  int64_t first = 0;
  for (; columns - first >= kMost * kTile; first += kMost * kTile) {
    run.template operator()<kMost>(first);
  }
  for (; columns - first >= 2 * kTile; first += 2 * kTile) {
    run.template operator()<2>(first);
  }
  if (columns > first) run.template operator()<1>(first);
}

// Has rows of numbers come to the first cache, to be written there. What is a page or more
// from row to row no cache brings by itself.
FLOTILLA_INLINE void FetchRows(int64_t rows, int64_t columns, Result c) {
  constexpr int64_t kPage = 4096 / sizeof(float);
  if (c.row < kPage) return;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < columns; k += kTile) {
      __builtin_prefetch(c.data + r * c.row + k, 1, 3);
    }
  }
}

// As Multiply (gemm.h), of A blocks of rows; registers are configured for kBlocks.
template <int kBlocks, int A>
void MultiplyBlocksByAmx(const BlockRows& blocks, int64_t columns,
                         int64_t depth, LeftOf<Pair> a, RowsOf<Pair> b,
                         Rows addend, Result c) {
  const Pair* left[A];
  for (int i = 0; i < A; ++i) left[i] = a.data + i * kTile * a.row;
  ForColumnBlocks<kBlocks>(columns, [&]<int B>(int64_t first) {
    const float* from[A];
    float* to[A];
    for (int i = 0; i < A; ++i) {
      from[i] = addend.data + i * kTile * addend.row + first;
      to[i] = c.data + i * kTile * c.row + first;
    }
    AmxLoadSums<kBlocks, A, B>(from, addend.row);
    AmxSumAll<kBlocks, A, B>(blocks, depth, left, a.row, b.data + first, b.row);
    AmxStoreSums<kBlocks, A, B>(to, c.row);
  });
}

// As Multiply (gemm.h), for an `a` whose columns are side by side. What is summed is
// summed in the same order for any row of any number of them. Whoever makes more than
// one product keeps it: registers are configured anew for other rows alone.
class AmxProduct {
 public:
  AmxProduct() = default;
  ~AmxProduct() {
    if (blocks_.rows[0] > 0) AmxRelease();
  }
  AmxProduct(const AmxProduct&) = delete;
  AmxProduct& operator=(const AmxProduct&) = delete;

  void operator()(int64_t rows, int64_t columns, int64_t depth, LeftOf<Pair> a,
                  RowsOf<Pair> b, Rows addend, Result c) {
    while (rows > 0) {
      const int64_t first = rows < kTile ? rows : kTile;
      const int64_t second = rows - first < kTile ? rows - first : kTile;
      // A last whole block makes do with the registers of two.
      const bool half = second == 0 && first == blocks_.rows[0];
      if (!half) Configure({{first, second}});
      const int64_t done = first + second;
      const int64_t left = rows - done;
      FetchRows(left < 2 * kTile ? left : 2 * kTile, columns,
                {c.data + done * c.row, c.row});
      if (second > 0) {
        MultiplyBlocksByAmx<2, 2>(blocks_, columns, depth, a, b, addend, c);
      } else if (blocks_.rows[1] > 0) {
        MultiplyBlocksByAmx<2, 1>(blocks_, columns, depth, a, b, addend, c);
      } else {
        MultiplyBlocksByAmx<1, 1>(blocks_, columns, depth, a, b, addend, c);
      }
      rows = left;
      a.data += done * a.row;
      addend.data += done * addend.row;
      c.data += done * c.row;
    }
  }

 private:
  void Configure(const BlockRows& blocks) {
    if (blocks.rows[0] == blocks_.rows[0] &&
        blocks.rows[1] == blocks_.rows[1]) {
      return;
    }
    blocks_ = blocks;
    ConfigureAmx(blocks.rows[0], blocks.rows[1], kTile);
  }

  BlockRows blocks_ = {};
};

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_AMX_PRODUCT_H_
