#ifndef FLOTILLA_LEARNER_KERNELS_ISA_WINOGRAD_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_WINOGRAD_H_

#include <cstdint>

#include "learner/kernels/convolution.h"
#include "learner/kernels/isa/gemm.h"
#include "learner/kernels/isa/vec.h"
#include "learner/kernels/isa/winograd_plan.h"
#include "learner/kernels/isa/winograd_sums.h"

// Convolutions of floats by fewer products: winograd_plan.h says how. Included by
// kernels.h alone.

namespace flotilla {
namespace {

// A square's places are `right` and `down` apart; those outside of `rows` and `cols` are
// zeros, and nothing is stored there. `kSize` is its side.
template <int kSize>
struct SquareAt {
  int64_t down, right, rows, cols;

  FLOTILLA_INLINE bool whole() const { return rows == kSize && cols == kSize; }
  FLOTILLA_INLINE bool has(int i, int j) const { return i < rows && j < cols; }

  // As AlongBothSides loads and stores; `take` gets the place and the sum.
  template <bool kWhole>
  FLOTILLA_INLINE auto From(const float* at) const {
    return [this, at](int i, int j) {
      return kWhole || has(i, j) ? Load(at + i * down + j * right) : Vec{};
    };
  }
  template <bool kWhole, typename Take>
  FLOTILLA_INLINE auto To(float* at, Take take) const {
    return [this, at, take](int i, int j, Vec sum) {
      if (kWhole || has(i, j)) take(at + i * down + j * right, sum);
    };
  }
};
FLOTILLA_INLINE void Put(float* at, Vec sum) { Store(at, sum); }
FLOTILLA_INLINE void Add(float* at, Vec sum) { Store(at, Load(at) + sum); }

// Of planes `step` apart: the same place of all.
template <int kSide>
FLOTILLA_INLINE SquareAt<kSide> Planes(int64_t step) {
  return {.down = kSide * step, .right = step, .rows = kSide, .cols = kSide};
}

// Calls run.template operator()<whole>().
template <int kSize, typename Run>
FLOTILLA_INLINE void IfWhole(const SquareAt<kSize>& square, Run run) {
  if (square.whole()) {
    run.template operator()<true>();
  } else {
    run.template operator()<false>();
  }
}

// A tile among those of `n` images.
struct Tile {
  int64_t image, row, col;  // row and col: of its first place
};
FLOTILLA_INLINE Tile TileOf(const WinogradPlan& plan, int64_t number) {
  const int64_t at = number % plan.tiles();
  return {.image = number / plan.tiles(),
          .row = at / plan.cols * plan.pixels,
          .col = at % plan.cols * plan.pixels};
}

// The numbers of a cell are `stride` pieces, of a row of pixels each. Calls
// run(place in the cell, place in the image behind the cell's first number) for each
// vector of them.
template <typename Run>
FLOTILLA_INLINE void ForCellVectors(const ConvolutionShape& shape, Run run) {
  const int64_t piece = shape.stride * shape.in;
  for (int64_t y = 0; y < shape.stride; ++y) {
    for (int64_t k = 0; k < piece; k += kLanes) {
      run(y * piece + k, y * shape.width * shape.in + k);
    }
  }
}

// Calls run.template operator()<side, taps>() with those of `plan`.
template <typename Run>
FLOTILLA_INLINE void WithTiles(const WinogradPlan& plan, Run run) {
  if (plan.side == 4 && plan.taps == 2) {
    run.template operator()<4, 2>();
  } else if (plan.side == 4) {
    run.template operator()<4, 3>();
  } else if (plan.taps == 2) {
    run.template operator()<6, 2>();
  } else {
    run.template operator()<6, 3>();
  }
}

// The gradient of a sum that a ReLU made y of. Also of a NaN, which is not hidden.
FLOTILLA_INLINE Vec BeforeRelu(Vec y, Vec from_y) {
  return y <= 0.0f ? Vec{} : from_y;
}

FLOTILLA_INLINE int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// A tile's cells in an image.
template <int kSide>
FLOTILLA_INLINE SquareAt<kSide> CellsIn(const ConvolutionShape& shape,
                                        const Tile& tile) {
  return {.down = shape.stride * shape.width * shape.in,
          .right = shape.stride * shape.in,
          .rows = Least(kSide, shape.height / shape.stride - tile.row),
          .cols = Least(kSide, shape.width / shape.stride - tile.col)};
}

// Its M x M places out.
template <int M>
FLOTILLA_INLINE SquareAt<M> PlacesOf(const ConvolutionShape& shape,
                                     const Tile& tile) {
  return {.down = shape.out_width() * shape.out,
          .right = shape.out,
          .rows = Least(M, shape.out_height() - tile.row),
          .cols = Least(M, shape.out_width() - tile.col)};
}

// What goes in of `count` tiles from number `first` on: `sums` [planes, tiles, depth].
template <int kSide>
void TilesIn(const ConvolutionShape& shape, const WinogradPlan& plan,
             int64_t first, int64_t count, const float* x, float* sums) {
  const SquareAt<kSide> planes = Planes<kSide>(plan.step(plan.depth));
  for (int64_t t = 0; t < count; ++t, sums += plan.depth) {
    const Tile tile = TileOf(plan, first + t);
    const SquareAt<kSide> cells = CellsIn<kSide>(shape, tile);
    const float* const from = x + tile.image * shape.image() +
                              tile.row * cells.down + tile.col * cells.right;
    IfWhole(cells, [&]<bool kWhole>() {
      ForCellVectors(shape, [&](int64_t in_cell, int64_t in_image) {
        AlongBothSides<kSide, kSide>(
            WinogradSums<kSide>::In,
            cells.template From<kWhole>(from + in_image),
            planes.template To<true>(sums + in_cell, Put));
      });
    });
  }
}

// Back: adds to the images what their tiles' `sums` give them.
template <int kSide>
void TilesInBack(const ConvolutionShape& shape, const WinogradPlan& plan,
                 int64_t first, int64_t count, const float* sums, float* to_x) {
  const SquareAt<kSide> planes = Planes<kSide>(plan.step(plan.depth));
  for (int64_t t = 0; t < count; ++t, sums += plan.depth) {
    const Tile tile = TileOf(plan, first + t);
    const SquareAt<kSide> cells = CellsIn<kSide>(shape, tile);
    float* const to = to_x + tile.image * shape.image() +
                      tile.row * cells.down + tile.col * cells.right;
    IfWhole(cells, [&]<bool kWhole>() {
      ForCellVectors(shape, [&](int64_t in_cell, int64_t in_image) {
        AlongBothSides<kSide, kSide>(
            WinogradSums<kSide>::InBack,
            planes.template From<true>(sums + in_cell),
            cells.template To<kWhole>(to + in_image, Add));
      });
    });
  }
}

typedef int64_t WordVec __attribute__((vector_size(4 * kLanes), may_alias));

// Which cells of `n` images hold anything but zeros: `seen` [n, cells].
void SeeCells(const ConvolutionShape& shape, int64_t n, const float* x,
              uint8_t* seen) {
  const int64_t rows = shape.height / shape.stride;
  const int64_t cols = shape.width / shape.stride;
  for (; n > 0; --n, x += shape.image()) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        const float* const cell =
            x + (i * shape.width + j) * shape.stride * shape.in;
        IntVec bits = {};
        ForCellVectors(shape, [&](int64_t, int64_t in_image) {
          bits |= Bits(Load(cell + in_image));
        });
        // Of a zero of either sign.
        bits &= 0x7fffffff;
        int64_t any = 0;
        for (int k = 0; k < kLanes / 2; ++k) {
          any |= reinterpret_cast<const WordVec&>(bits)[k];
        }
        *seen++ = any != 0;
      }
    }
  }
}

// What comes out of `count` tiles: of their `products` [planes, tiles, out]. A place
// that sees zeros alone is its bias, as a sum of its own products would be: what others
// of its tile see does not quite cancel out, and where a bias is 0 yet, and most of a
// screen black, rounding would decide which places learn.
template <int kSide, int M>
void TilesOut(const ConvolutionShape& shape, const WinogradPlan& plan,
              int64_t first, int64_t count, const float* products,
              const uint8_t* seen, const float* bias, float* y) {
  constexpr int R = kSide + 1 - M;
  const int64_t cell_cols = shape.width / shape.stride;
  const SquareAt<kSide> planes = Planes<kSide>(plan.step(shape.out));
  for (int64_t t = 0; t < count; ++t, products += shape.out) {
    const Tile tile = TileOf(plan, first + t);
    const SquareAt<M> places = PlacesOf<M>(shape, tile);
    float* const to = y + tile.image * shape.out_image() +
                      tile.row * places.down + tile.col * places.right;
    IfWhole(places, [&]<bool kWhole>() {
      for (int64_t o = 0; o < shape.out; o += kLanes) {
        const Vec added = Load(bias + o);
        AlongBothSides<kSide, M>(
            WinogradSums<kSide>::template Out<M>,
            planes.template From<true>(products + o),
            places.template To<kWhole>(to + o, [added](float* at, Vec sum) {
              Store(at, AtLeast(sum + added, 0.0f));
            }));
      }
    });
    const uint8_t* const cells =
        seen + tile.image * CellsOf(shape) + tile.row * cell_cols + tile.col;
    for (int64_t i = 0; i < places.rows; ++i) {
      for (int64_t j = 0; j < places.cols; ++j) {
        int any = 0;
        for (int a = 0; a < R; ++a) {
          for (int b = 0; b < R; ++b) any |= cells[(i + a) * cell_cols + j + b];
        }
        if (any != 0) continue;
        float* const place = to + i * places.down + j * places.right;
        for (int64_t o = 0; o < shape.out; o += kLanes) {
          Store(place + o, AtLeast(Load(bias + o), 0.0f));
        }
      }
    }
  }
}

// Back: gradients of the products, [planes, tiles, out], with the ReLU taken off on the
// way. Adds to the gradients of the bias: every place is in one tile.
template <int kSide, int M>
void TilesOutBack(const ConvolutionShape& shape, const WinogradPlan& plan,
                  int64_t first, int64_t count,
                  const ConvolutionBack<float>& images, float* gradients) {
  const SquareAt<kSide> planes = Planes<kSide>(plan.step(shape.out));
  for (int64_t t = 0; t < count; ++t, gradients += shape.out) {
    const Tile tile = TileOf(plan, first + t);
    const SquareAt<M> places = PlacesOf<M>(shape, tile);
    const int64_t at = tile.image * shape.out_image() + tile.row * places.down +
                       tile.col * places.right;
    IfWhole(places, [&]<bool kWhole>() {
      for (int64_t o = 0; o < shape.out; o += kLanes) {
        const auto y = places.template From<kWhole>(images.y + at + o);
        const auto from_y =
            places.template From<kWhole>(images.from_y + at + o);
        Vec sum = Load(images.to_bias + o);
        AlongBothSides<M, kSide>(
            WinogradSums<kSide>::template OutBack<M>,
            [&](int i, int j) {
              const Vec gradient = BeforeRelu(y(i, j), from_y(i, j));
              sum += gradient;
              return gradient;
            },
            planes.template To<true>(gradients + o, Put));
        Store(images.to_bias + o, sum);
      }
    });
  }
}

// The columns that a product's block takes, side by side, so that none of their rows
// push each other out of the first cache: `b` [depth, columns] as blocks of
// [depth, kPanel] and a last one of what is left. Calls run(first column, columns) for each.
template <typename Run>
FLOTILLA_INLINE void ForPanels(int64_t columns, Run run) {
  for (int64_t first = 0; first < columns; first += kPanel) {
    run(first, columns - first < kPanel ? columns - first : kPanel);
  }
}

// c [rows, columns] = a [rows, depth] times such panels.
void MultiplyPanels(int64_t rows, int64_t columns, int64_t depth,
                    const float* a, const float* panels, float* c) {
  alignas(64) const float zeros[kPanel] = {};
  ForPanels(columns, [&](int64_t first, int64_t wide) {
    const Left left = {a, depth, 1};
    const Rows panel = {panels + first * depth, wide};
    const Result to = {c + first, columns};
    if (wide == kPanel) {
      // Behind those of this plane are those of the next one.
      MultiplyPanel(rows, depth, left, panel, Rows{zeros, 0}, to,
                    Rows{panel.data + depth * kPanel, kPanel});
    } else {
      Multiply(rows, wide, depth, left, panel, Rows{zeros, 0}, to);
    }
  });
}

// Where in [kernel, kernel, in, out] the weights of a cell's number `in_cell` are, of
// the kernel's first cell.
FLOTILLA_INLINE int64_t WeightAt(const ConvolutionShape& shape,
                                 int64_t in_cell) {
  const int64_t piece = shape.stride * shape.in;
  return (in_cell / piece * shape.kernel * shape.in + in_cell % piece) *
         shape.out;
}

// The cells of a kernel's weights that a cell's number `in_cell` is multiplied by.
template <int R>
FLOTILLA_INLINE SquareAt<R> WeightsOf(const ConvolutionShape& shape) {
  return {.down = shape.stride * shape.kernel * shape.in * shape.out,
          .right = shape.stride * shape.in * shape.out,
          .rows = R,
          .cols = R};
}

// Sums of weights, [planes, rows, columns] in panels. The kernel's first cell of row r and
// columns [c, c + kLanes) is at from(r, c); `weights` is where its others are from there.
template <int kSide, int R, typename From>
FLOTILLA_INLINE void WeightSums(int64_t rows, int64_t columns,
                                const SquareAt<R>& weights, From from,
                                float* sums) {
  using Sums = WinogradSums<kSide>;
  const SquareAt<kSide> planes = Planes<kSide>(rows * columns);
  const auto along = [](const Vec* one, Vec* to) {
    Sums::template OutBack<R>(one, to);
    for (int i = 0; i < kSide; ++i) to[i] *= Sums::kScale[i];
  };
  ForPanels(columns, [&](int64_t first, int64_t wide) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < wide; k += kLanes) {
        AlongBothSides<R, kSide>(
            along, weights.template From<true>(from(r, first + k)),
            planes.template To<true>(sums + first * rows + r * wide + k, Put));
      }
    }
  });
}

// Back: adds to `to_packed` what gradients of the sums, [planes, depth, out], give it.
template <int kSide, int R>
void WeightSumsBackOf(const ConvolutionShape& shape, const WinogradPlan& plan,
                      const float* gradients, float* to_packed) {
  using Sums = WinogradSums<kSide>;
  const SquareAt<R> weights = WeightsOf<R>(shape);
  const SquareAt<kSide> planes = Planes<kSide>(plan.plane(shape.out));
  const auto along = [](const Vec* from, Vec* to) {
    Vec scaled[kSide];
    for (int i = 0; i < kSide; ++i) scaled[i] = from[i] * Sums::kScale[i];
    Sums::template Out<R>(scaled, to);
  };
  for (int64_t d = 0; d < plan.depth; ++d) {
    float* const to = to_packed + WeightAt(shape, d);
    for (int64_t o = 0; o < shape.out; o += kLanes) {
      AlongBothSides<kSide, R>(
          along, planes.template From<true>(gradients + d * shape.out + o),
          weights.template To<true>(to + o, Add));
    }
  }
}

// [planes, depth, out], of weights as [kernel, kernel, in, out].
void WinogradPack(const ConvolutionShape& shape, const float* packed,
                  float* sums) {
  const WinogradPlan plan = WinogradOf(shape, 1);
  const auto from = [&](int64_t in_cell, int64_t o) {
    return packed + WeightAt(shape, in_cell) + o;
  };
  WithTiles(plan, [&]<int kSide, int R>() {
    WeightSums<kSide, R>(plan.depth, shape.out, WeightsOf<R>(shape), from,
                         sums);
  });
}

// The same as [planes, out, depth], of weights as [kernel, out, kernel, in].
void WinogradPackTurned(const ConvolutionShape& shape, const float* turned,
                        float* sums) {
  const WinogradPlan plan = WinogradOf(shape, 1);
  const int64_t row = shape.kernel * shape.in;
  const int64_t piece = shape.stride * shape.in;
  const auto from = [&](int64_t o, int64_t in_cell) {
    return turned + (in_cell / piece * shape.out + o) * row + in_cell % piece;
  };
  WithTiles(plan, [&]<int kSide, int R>() {
    const SquareAt<R> weights = {.down = shape.stride * shape.out * row,
                                 .right = piece,
                                 .rows = R,
                                 .cols = R};
    WeightSums<kSide, R>(shape.out, plan.depth, weights, from, sums);
  });
}

// A block of tiles' sums and products, in `room`.
struct WinogradRoom {
  WinogradRoom(const WinogradPlan& plan, float* room)
      : in(room), products(in + plan.planes() * plan.step(plan.depth)) {}
  float* in;        // [planes, tiles, depth]
  float* products;  // [planes, tiles, out]
};

// Calls run(first, count) for all tiles of `n` images, block by block.
template <typename Run>
FLOTILLA_INLINE void ForTiles(const WinogradPlan& plan, int64_t n, Run run) {
  const int64_t all = n * plan.tiles();
  for (int64_t first = 0; first < all; first += plan.at_once) {
    run(first, all - first < plan.at_once ? all - first : plan.at_once);
  }
}

template <int kSide, int R>
void WinogradForward(const ConvolutionShape& shape,
                     const ConvolutionImages<float>& images, float* room) {
  const WinogradPlan plan = WinogradOf(shape, images.n);
  const WinogradRoom block(plan, room);
  auto* const seen = reinterpret_cast<uint8_t*>(
      block.products + plan.planes() * plan.step(shape.out));
  int64_t known = 0;  // images
  ForTiles(plan, images.n, [&](int64_t first, int64_t count) {
    // Which are read here for the first time, and then again.
    const int64_t end = (first + count - 1) / plan.tiles() + 1;
    SeeCells(shape, end - known, images.x + known * shape.image(),
             seen + known * CellsOf(shape));
    known = end;
    TilesIn<kSide>(shape, plan, first, count, images.x, block.in);
    for (int64_t p = 0; p < plan.planes(); ++p) {
      MultiplyPanels(count, shape.out, plan.depth,
                     block.in + p * plan.step(plan.depth),
                     images.packed + p * plan.plane(shape.out),
                     block.products + p * plan.step(shape.out));
    }
    TilesOut<kSide, kSide + 1 - R>(shape, plan, first, count, block.products,
                                   seen, images.bias, images.y);
  });
}

// `turned` as WinogradPackTurned makes it, and room behind the block's for gradients of the
// weights' sums.
template <int kSide, int R>
void WinogradBackward(const ConvolutionShape& shape,
                      const ConvolutionBack<float>& images, const float* turned,
                      float* room) {
  const WinogradPlan plan = WinogradOf(shape, images.n);
  const WinogradRoom block(plan, room);
  float* const to_sums = block.products + plan.planes() * plan.step(shape.out);
  const int64_t size = plan.plane(shape.out);
  alignas(64) const float zeros[kPanel] = {};
  if (images.to_x != nullptr) {
    for (int64_t i = 0; i < images.n * shape.image(); ++i) images.to_x[i] = 0;
  }
  ForTiles(plan, images.n, [&](int64_t first, int64_t count) {
    TilesIn<kSide>(shape, plan, first, count, images.x, block.in);
    TilesOutBack<kSide, kSide + 1 - R>(shape, plan, first, count, images,
                                       block.products);
    for (int64_t p = 0; p < plan.planes(); ++p) {
      float* const in = block.in + p * plan.step(plan.depth);
      const float* const gradients = block.products + p * plan.step(shape.out);
      float* const to = to_sums + p * size;
      ForPanels(shape.out, [&](int64_t o, int64_t wide) {
        Multiply(plan.depth, wide, count, Left{in, 1, plan.depth},
                 Rows{gradients + o, shape.out},
                 first == 0 ? Rows{zeros, 0} : Rows{to + o, shape.out},
                 Result{to + o, shape.out});
      });
      if (images.to_x == nullptr) continue;
      MultiplyPanels(count, plan.depth, shape.out, gradients, turned + p * size,
                     in);
    }
    if (images.to_x == nullptr) return;
    TilesInBack<kSide>(shape, plan, first, count, block.in, images.to_x);
  });
  WeightSumsBackOf<kSide, R>(shape, plan, to_sums, images.to_packed);
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_WINOGRAD_H_
