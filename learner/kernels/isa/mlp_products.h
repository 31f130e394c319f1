#ifndef FLOTILLA_LEARNER_KERNELS_ISA_MLP_PRODUCTS_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_MLP_PRODUCTS_H_

#include <cstdint>

#include "learner/kernels/isa/element.h"
#include "learner/kernels/isa/gemm.h"
#include "learner/kernels/isa/mlp_plan.h"
#include "learner/kernels/isa/vec.h"

#ifdef FLOTILLA_HAS_TILES  // of amx_instructions.h
#include "learner/kernels/isa/amx_product.h"
#endif

// The products of a hidden layer: of floats, or, in a plan of bfloat16, of what they are
// rounded to, summed in float. Included as vec.h is.

namespace flotilla {
namespace {

// `a`'s columns are side by side, or, without tiles, its rows are.
FLOTILLA_INLINE void MultiplyPairs(int64_t rows, int64_t columns, int64_t depth,
                                   LeftOf<Pair> a, RowsOf<Pair> b, Rows addend,
                                   Result c) {
#ifdef FLOTILLA_HAS_TILES
  AmxProduct()(rows, columns, depth, a, b, addend, c);
#else
  Multiply<Pair>(rows, columns, depth, a, b, addend, c);
#endif
}

FLOTILLA_INLINE Pair* PairsAt(float* workspace, int64_t at) {
  return reinterpret_cast<Pair*>(workspace + at);
}

// Rounds `rows` rows of `width` numbers to [rows, depth] pairs; 0 behind each.
void RoundEachRow(int64_t rows, int64_t width, Rows in, int64_t depth,
                  Pair* out) {
  auto* numbers = reinterpret_cast<Bfloat16*>(out);
  for (int64_t i = 0; i < rows; ++i, numbers += 2 * depth) {
    const float* const row = in.data + i * in.row;
    const auto load = [&](int64_t k) {
      return k < width ? LoadLanes(row + k, width - k) : Vec{};
    };
    for (int64_t k = 0; k < 2 * depth; k += 2 * kLanes) {
      Store(numbers + k, load(k), load(k + kLanes));
    }
  }
}

// Of `rows` rows of [rows, depth] pairs the numbers of two below each other, [(rows + 1) /
// 2, columns]; what the last one lacks is 0. Columns: a multiple of kLanes.
void PairUpRoundedRows(int64_t rows, int64_t columns, int64_t depth,
                       const Pair* in, Pair* out) {
  auto* numbers = reinterpret_cast<const Bfloat16*>(in);
  for (int64_t i = 0; i < rows; i += 2, out += columns) {
    const Bfloat16* const row = numbers + 2 * i * depth;
    for (int64_t c = 0; c < columns; c += kLanes) {
      Store(out + c,
            PairUp(LoadShort(row + c),
                   i + 1 < rows ? LoadShort(row + 2 * depth + c) : ShortVec{}));
    }
  }
}

// Rounds `rows` rows to pairs of two below each other, [(rows + 1) / 2, columns]; what
// the last one lacks is 0. Columns: a multiple of kLanes.
void PairUpRows(int64_t rows, int64_t columns, Rows in, Pair* out) {
  RoundRows(rows / 2, columns, in.data, in.row, out);
  if (rows % 2 == 0) return;
  const float* const last = in.data + (rows - 1) * in.row;
  out += rows / 2 * columns;
  for (int64_t c = 0; c < columns; c += kLanes) {
    Store(out + c, RoundToPairs(Load(last + c), Vec{}));
  }
}

// Weights as PackLayer left them. Zeros behind them stay.
void RoundWeights(const LayerPlan& layer, float* workspace) {
  PairUpRows(layer.in, layer.out_pad,
             {workspace + layer.forward_weight, layer.out_pad},
             PairsAt(workspace, layer.forward_pairs));
  if (layer.backward_weight == 0) return;
  PairUpRows(layer.out, layer.in_pad,
             {workspace + layer.backward_weight, layer.in_pad},
             PairsAt(workspace, layer.backward_pairs));
}

// Writes the layer's outputs before the activation; of bfloat16 `rounded` is the input.
void LayerForward(const MlpPlan& plan, const LayerPlan& layer, float* workspace,
                  Rows input, const Pair* rounded, int64_t rows) {
  const Rows bias = {workspace + layer.forward_bias, 0};
  const Result output = {workspace + layer.output, layer.out_pad};
  if (!plan.bfloat16) {
    return Multiply(rows, layer.out_pad, layer.in, {input.data, input.row, 1},
                    {workspace + layer.forward_weight, layer.out_pad}, bias,
                    output);
  }
  const int64_t depth = PairsOf(layer.in);
  MultiplyPairs(rows, layer.out_pad, depth, {rounded, depth, 1},
                {PairsAt(workspace, layer.forward_pairs), layer.out_pad}, bias,
                output);
}

// d loss / d inputs of the layer plus `addend`, of d loss / d outputs before the
// activation, which of bfloat16 lie in plan.rounded.
void LayerBack(const MlpPlan& plan, const LayerPlan& layer, float* workspace,
               const float* delta, int64_t rows, Rows addend, float* to) {
  const Result result = {to, layer.in_pad};
  if (!plan.bfloat16) {
    return Multiply(rows, layer.in_pad, layer.out, {delta, layer.out_pad, 1},
                    {workspace + layer.backward_weight, layer.in_pad}, addend,
                    result);
  }
  const int64_t depth = PairsOf(layer.out);
  const Pair* const rounded = PairsAt(workspace, plan.rounded);
  MultiplyPairs(rows, layer.in_pad, depth, {rounded, depth, 1},
                {PairsAt(workspace, layer.backward_pairs), layer.in_pad},
                addend, result);
}

// Adds left^T right [width, columns] to `sums`, over `rows` of both, which lie in
// plan.left_pairs and plan.right_pairs.
void AddRoundedProducts(const MlpPlan& plan, float* workspace, int64_t rows,
                        int64_t width, int64_t columns, float* sums) {
  const int64_t pairs = (rows + 1) / 2;
  const int64_t width_pad = RoundUp(static_cast<int>(width));
  const Pair* const lefts = PairsAt(workspace, plan.left_pairs);
  Pair* const rights = PairsAt(workspace, plan.right_pairs);
  const Rows addend = {sums, columns};
  const Result result = {sums, columns};
#ifdef FLOTILLA_HAS_TILES
  const int64_t depth = RoundUp(static_cast<int>(pairs));
  for (int64_t i = pairs * columns; i < depth * columns; i += kLanes) {
    Store(rights + i, PairVec{});
  }
  Pair* const turned = PairsAt(workspace, plan.turned_pairs);
  TurnPairs(
      pairs, width_pad,
      [&](int64_t r, int64_t c) { return Load(lefts + r * width_pad + c); },
      depth, turned);
  MultiplyPairs(width, columns, depth, {turned, depth, 1}, {rights, columns},
                addend, result);
#else
  MultiplyPairs(width, columns, pairs, {lefts, 1, width_pad}, {rights, columns},
                addend, result);
#endif
}

// Where AddWeightGradient finds the layer's deltas and inputs in a plan of bfloat16, of
// two samples below each other.
FLOTILLA_INLINE Pair* DeltaPairs(const MlpPlan& plan, const LayerPlan& layer,
                                 float* workspace) {
  return PairsAt(workspace, layer.gradient_transposed ? plan.right_pairs
                                                      : plan.left_pairs);
}
FLOTILLA_INLINE Pair* InputPairs(const MlpPlan& plan, const LayerPlan& layer,
                                 float* workspace) {
  return PairsAt(workspace, layer.gradient_transposed ? plan.left_pairs
                                                      : plan.right_pairs);
}

// Adds delta^T input to the layer's weight gradient.
void AddWeightGradient(const MlpPlan& plan, const LayerPlan& layer,
                       float* workspace, Rows input, const float* delta,
                       int64_t rows) {
  float* gradient = workspace + layer.weight_gradient;
  if (plan.bfloat16) {
    const bool turned = layer.gradient_transposed;
    AddRoundedProducts(plan, workspace, rows, turned ? layer.in : layer.out,
                       turned ? layer.out_pad : layer.in_pad, gradient);
  } else if (layer.gradient_transposed) {
    Multiply(layer.in, layer.out_pad, rows, {input.data, 1, input.row},
             {delta, layer.out_pad}, {gradient, layer.out_pad},
             {gradient, layer.out_pad});
  } else {
    Multiply(layer.out, layer.in_pad, rows, {delta, 1, layer.out_pad}, input,
             {gradient, layer.in_pad}, {gradient, layer.in_pad});
  }
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_MLP_PRODUCTS_H_
