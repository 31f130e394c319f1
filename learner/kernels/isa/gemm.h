#ifndef FLOTILLA_LEARNER_KERNELS_ISA_GEMM_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_GEMM_H_

#include <cstdint>

#include "learner/kernels/isa/element.h"
#include "learner/kernels/isa/vec.h"

// One matrix product serves all layers, forward and backward. Included as vec.h
// is.

namespace flotilla {
namespace {

// Accumulators are kBlockRows x kBlockVecs registers; the rest holds one row of
// B and one element of A.
#if defined(__AVX512F__) || defined(FLOTILLA_AS_WIDE_AS_AVX512)
constexpr int kBlockRows = 6, kBlockVecs = 4;
#elif defined(__AVX2__)
constexpr int kBlockRows = 6, kBlockVecs = 2;
#elif defined(__aarch64__)
constexpr int kBlockRows = 6, kBlockVecs = 4;
#else
constexpr int kBlockRows = 4, kBlockVecs = 2;
#endif

// The left operand, in any orientation: element (i, k) is at i * row + k *
// column. Of elements: see element.h.
template <typename E>
struct LeftOf {
  const E* data;
  int64_t row, column;
};
using Left = LeftOf<float>;

// A right operand, an addend or a result: rows, `row` apart.
template <typename E>
struct RowsOf {
  const E* data;
  int64_t row;
};
using Rows = RowsOf<float>;
struct Result {
  float* data;
  int64_t row;
};

// Operands come by reference. By value they are copied to the stack in pieces wider
// than they were written in, which waits for all that was stored before: for the block
// before this one to be done to its end.
//
// Of `next`, rows of V vectors, kAhead are brought to the second cache for each k: none,
// one, or V. No more than a wish: it may be no memory at all.
template <int R, int V, int kAhead = 0, typename E>
[[gnu::noinline]] void MultiplyBlock(int64_t depth, const LeftOf<E>& a,
                                     const RowsOf<E>& b, const Rows& addend,
                                     const Result& c,
                                     const RowsOf<E>& next = {}) {
  const E* left = a.data;
  const E* right = b.data;
  const E* ahead = next.data;
  const int64_t a_row = a.row, a_column = a.column, b_row = b.row;
  const int64_t next_row = next.row;
  float* const to = c.data;
  const int64_t to_row = c.row;
  // Unrolled early, or the accumulators pass through memory.
  Vec sum[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      sum[r][v] = Load(addend.data + r * addend.row + v * kLanes);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    LanesOf<E> row[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) row[v] = Load(right + v * kLanes);
#pragma GCC unroll 8
    for (int v = 0; v < kAhead; ++v) {
      __builtin_prefetch(ahead + v * kLanes, /*rw=*/0, /*locality=*/2);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const LanesOf<E> x = Splat(left[r * a_row]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        sum[r][v] = MultiplyAdd(x, row[v], sum[r][v]);
      }
    }
    left += a_column;
    right += b_row;
    if constexpr (kAhead == V) ahead += next_row;
    if constexpr (kAhead == 1) {
      ahead += k % V < V - 1 ? kLanes : next_row - (V - 1) * kLanes;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      Store(to + r * to_row + v * kLanes, sum[r][v]);
    }
  }
}

// The rows left over when blocks of R no longer fit.
template <int R, int V, int kAhead = 0, typename E>
void MultiplyRest(int64_t rows, int64_t depth, const LeftOf<E>& a,
                  const RowsOf<E>& b, const Rows& addend, const Result& c,
                  const RowsOf<E>& next = {}) {
  if constexpr (R > 0) {
    if (rows == R) {
      MultiplyBlock<R, V, kAhead>(depth, a, b, addend, c, next);
    } else {
      MultiplyRest<R - 1, V, kAhead>(rows, depth, a, b, addend, c, next);
    }
  }
}

template <int V, typename E>
void MultiplyColumns(int64_t rows, int64_t depth, LeftOf<E> a,
                     const RowsOf<E>& b, Rows addend, Result c) {
  for (; rows >= kBlockRows; rows -= kBlockRows) {
    MultiplyBlock<kBlockRows, V>(depth, a, b, addend, c);
    a.data += kBlockRows * a.row;
    addend.data += kBlockRows * addend.row;
    c.data += kBlockRows * c.row;
  }
  MultiplyRest<kBlockRows - 1, V>(rows, depth, a, b, addend, c);
}

template <int V, typename E>
void MultiplyLastColumns(int64_t vecs, int64_t rows, int64_t depth,
                         const LeftOf<E>& a, const RowsOf<E>& b,
                         const Rows& addend, const Result& c) {
  if constexpr (V > 0) {
    if (vecs == V) {
      MultiplyColumns<V>(rows, depth, a, b, addend, c);
    } else {
      MultiplyLastColumns<V - 1>(vecs, rows, depth, a, b, addend, c);
    }
  }
}

// c = addend + a b, for a [rows, depth] and b [depth, columns]; `columns` is a
// multiple of kLanes. An addend with row 0 is one row for all (a bias); the
// result itself accumulates. Every element is one chain of multiply-adds over
// rising k, whatever block it falls into.
template <typename E = float>
void Multiply(int64_t rows, int64_t columns, int64_t depth, LeftOf<E> a,
              RowsOf<E> b, Rows addend, Result c) {
  constexpr int64_t kBlockColumns = kBlockVecs * kLanes;
  for (; columns >= kBlockColumns; columns -= kBlockColumns) {
    MultiplyColumns<kBlockVecs>(rows, depth, a, b, addend, c);
    b.data += kBlockColumns;
    addend.data += kBlockColumns;
    c.data += kBlockColumns;
  }
  MultiplyLastColumns<kBlockVecs - 1>(columns / kLanes, rows, depth, a, b,
                                      addend, c);
}

// As many columns as a block takes.
constexpr int64_t kPanel = kBlockVecs * kLanes;

// c = addend + a b as Multiply, for a panel b [depth, kPanel] of several: the `next` one is
// brought meanwhile, an equal part by each of the first blocks.
template <typename E>
void MultiplyPanel(int64_t rows, int64_t depth, LeftOf<E> a, const RowsOf<E>& b,
                   Rows addend, Result c, RowsOf<E> next) {
  constexpr int V = kBlockVecs;
  if (rows <= kBlockRows) {
    return MultiplyRest<kBlockRows, V, V>(rows, depth, a, b, addend, c, next);
  }
  for (int v = 0; v < V && rows >= kBlockRows; ++v) {
    MultiplyBlock<kBlockRows, V, 1>(depth, a, b, addend, c, next);
    next.data += depth / V * next.row;
    a.data += kBlockRows * a.row;
    addend.data += kBlockRows * addend.row;
    c.data += kBlockRows * c.row;
    rows -= kBlockRows;
  }
  MultiplyColumns<V>(rows, depth, a, b, addend, c);
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_GEMM_H_
