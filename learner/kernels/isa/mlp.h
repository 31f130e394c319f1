#ifndef FLOTILLA_LEARNER_KERNELS_ISA_MLP_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_MLP_H_

#include <cstdint>

#include "learner/kernels/isa/gemm.h"
#include "learner/kernels/isa/mlp_plan.h"
#include "learner/kernels/isa/mlp_products.h"
#include "learner/kernels/isa/vec.h"

// Layers: parameters in, activations and gradients out. Activations are
// [sample, feature], features in the lanes; the heads' outputs are planes
// [output, sample], samples in the lanes. Included by kernels.h alone.

namespace flotilla {
namespace {

// out[i] = in[i], or += if `kAdd`.
template <bool kAdd = false>
FLOTILLA_INLINE void CopyRow(const float* in, int64_t size, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    Store(out + i, kAdd ? Load(out + i) + Load(in + i) : Load(in + i));
  }
  if constexpr (kLanesHaveMasks) {
    if (i == size) return;
    const Vec last = LoadLanes(in + i, size - i);
    CopyLanes(kAdd ? LoadLanes(out + i, size - i) + last : last, size - i,
              out + i);
  } else {
    for (; i < size; ++i) out[i] = kAdd ? out[i] + in[i] : in[i];
  }
}

void CopyRows(const float* in, int64_t in_row, int rows, int64_t columns,
              float* out, int64_t out_row) {
  for (int j = 0; j < rows; ++j) {
    CopyRow(in + j * in_row, columns, out + j * out_row);
  }
}

void PackLayer(const LayerPlan& layer, const float* parameters,
               float* workspace) {
  for (int i = 0; i < layer.part_count; ++i) {
    const LayerPart& part = layer.parts[i];
    const float* weight = parameters + part.weight;
    CopyTransposed(weight, layer.in, part.out, layer.in,
                   workspace + layer.forward_weight + part.first,
                   layer.out_pad);
    CopyRow(parameters + part.bias, part.out,
            workspace + layer.forward_bias + part.first);
    if (layer.backward_weight != 0) {
      CopyRows(weight, layer.in, part.out, layer.in,
               workspace + layer.backward_weight +
                   int64_t{part.first} * layer.in_pad,
               layer.in_pad);
    }
  }
}

void PackHeads(const StackPlan& stack, const float* parameters,
               float* workspace) {
  const LayerPlan& last = stack.layers[stack.layer_count - 1];
  float* weight = workspace + stack.head_weight;
  float* bias = workspace + stack.head_bias;
  for (int i = 0; i < stack.head_count; ++i) {
    const HeadPlan& head = stack.heads[i];
    CopyRows(parameters + head.weight, head.in, head.rows, head.in,
             weight + head.first_in, last.out_pad);
    CopyRow(parameters + head.bias, head.rows, bias);
    weight += head.rows * last.out_pad;
    bias += head.rows;
  }
}

// Arranges the parameters for the functions below. Padding stays zero.
void Pack(const MlpPlan& plan, const float* parameters, float* workspace) {
  for (int i = 0; i < plan.stack_count; ++i) {
    const StackPlan& stack = plan.stacks[i];
    for (int j = 0; j < stack.layer_count; ++j) {
      PackLayer(stack.layers[j], parameters, workspace);
      if (plan.bfloat16) RoundWeights(stack.layers[j], workspace);
    }
    PackHeads(stack, parameters, workspace);
  }
  if (plan.continuous) {
    float* gauss = workspace + plan.gauss;
    for (int i = 0; i < plan.actions; ++i) {
      const float log_std = parameters[plan.log_std + i];
      gauss[i] = log_std;
      gauss[plan.actions + i] = Exp(Splat(log_std))[0];
      gauss[2 * plan.actions + i] = Exp(Splat(-log_std))[0];
    }
  }
}

template <bool kRelu>
FLOTILLA_INLINE Vec Activated(Vec x) {
  return kRelu ? AtLeast(x, 0.0f) : Tanh(x);
}

template <bool kRelu>
void Activate(int64_t size, float* x) {
  for (int64_t i = 0; i < size; i += kLanes) {
    Store(x + i, Activated<kRelu>(Load(x + i)));
  }
}

// The same of rows of `width`, which it also rounds to [rows, depth] pairs, 0 behind
// each.
template <bool kRelu>
void ActivateAndRound(int64_t rows, int64_t width, float* x, int64_t depth,
                      Pair* rounded) {
  auto* numbers = reinterpret_cast<Bfloat16*>(rounded);
  for (int64_t i = 0; i < rows; ++i, x += width, numbers += 2 * depth) {
    const auto run = [&](int64_t k) {
      if (k >= width) return Vec{};
      const Vec y = Activated<kRelu>(Load(x + k));
      Store(x + k, y);
      return y;
    };
    for (int64_t k = 0; k < 2 * depth; k += 2 * kLanes) {
      const Vec first = run(k), second = run(k + kLanes);
      Store(numbers + k, first, second);
    }
  }
}

// planes[r][n] = bias[r] + hidden[n] . weight[r] of kHeads rows of weights, which are
// `width` apart, kLanes samples at a time. Lanes past `rows` get the bias.
template <int kHeads>
void ForwardHeadRows(const float* weight, const float* bias, int width,
                     const float* hidden, int64_t rows, float* planes) {
  for (int64_t n = 0; n < rows; n += kLanes) {
    const int64_t count = rows - n < kLanes ? rows - n : kLanes;
    Vec sums[kHeads][kLanes] = {};
    for (int64_t i = 0; i < count; ++i) {
      const float* const row = hidden + (n + i) * width;
      Vec sum[kHeads] = {};
      for (int k = 0; k < width; k += kLanes) {
        const Vec x = Load(row + k);
        for (int r = 0; r < kHeads; ++r) {
          sum[r] = MultiplyAdd(x, Load(weight + r * width + k), sum[r]);
        }
      }
      for (int r = 0; r < kHeads; ++r) sums[r][i] = sum[r];
    }
    for (int r = 0; r < kHeads; ++r) {
      Store(planes + r * kTileRows + n, LaneSums(sums[r]) + bias[r]);
    }
  }
}

void ForwardHeads(const StackPlan& stack, const float* workspace,
                  const float* hidden, int64_t rows, float* planes) {
  const int width = stack.layers[stack.layer_count - 1].out_pad;
  const auto run = [&]<int kHeads>(int r) {
    ForwardHeadRows<kHeads>(workspace + stack.head_weight + r * width,
                            workspace + stack.head_bias + r, width, hidden,
                            rows, planes + (stack.plane + r) * kTileRows);
    return r + kHeads;
  };
  int r = 0;
  while (stack.rows - r >= 4) r = run.template operator()<4>(r);
  if (stack.rows - r >= 2) r = run.template operator()<2>(r);
  if (stack.rows > r) run.template operator()<1>(r);
}

// Runs one stack on rows [rows, observations] of `input`; at most plan.tile_rows. In a
// plan of bfloat16 `rounded` is the same as rows of pairs, or null: they are made of it.
void ForwardStack(const MlpPlan& plan, const StackPlan& stack, float* workspace,
                  Rows input, int64_t rows, const Pair* rounded = nullptr) {
  Pair* const room = PairsAt(workspace, plan.rounded);
  if (plan.bfloat16 && rounded == nullptr) {
    const int in = stack.layers[0].in;
    RoundEachRow(rows, in, input, PairsOf(in), room);
    rounded = room;
  }
  for (int i = 0; i < stack.layer_count; ++i) {
    const LayerPlan& layer = stack.layers[i];
    float* output = workspace + layer.output;
    LayerForward(plan, layer, workspace, input, rounded, rows);
    if (plan.bfloat16 && i + 1 < stack.layer_count) {
      const auto run =
          plan.relu ? ActivateAndRound<true> : ActivateAndRound<false>;
      run(rows, layer.out_pad, output, PairsOf(layer.out), room);
      rounded = room;
    } else {
      const auto run = plan.relu ? Activate<true> : Activate<false>;
      run(rows * layer.out_pad, output);
    }
    input = {output, layer.out_pad};
  }
  ForwardHeads(stack, workspace, input.data, rows, workspace + plan.planes);
}

// d loss / d (output before activation), of d loss / d output and the output.
template <bool kRelu>
FLOTILLA_INLINE Vec BeforeActivation(Vec output, Vec delta) {
  return kRelu ? (output > 0.0f ? delta : Vec{})
               : delta - delta * (output * output);
}

// The same of `size` numbers, in place of `delta`.
void ThroughActivation(bool relu, int64_t size, const float* output,
                       float* delta) {
  for (int64_t i = 0; i < size; i += kLanes) {
    const Vec y = Load(output + i), d = Load(delta + i);
    Store(delta + i,
          relu ? BeforeActivation<true>(y, d) : BeforeActivation<false>(y, d));
  }
}

// The same of rows, whose sum it adds to `bias_gradient`. V vectors of columns.
template <bool kRelu, int V>
void BackwardActivation(int64_t rows, int64_t width, const float* output,
                        float* delta, float* bias_gradient) {
  Vec sum[V];
  for (int v = 0; v < V; ++v) sum[v] = Load(bias_gradient + v * kLanes);
  for (int64_t n = 0; n < rows; ++n, output += width, delta += width) {
    for (int v = 0; v < V; ++v) {
      const Vec y = Load(output + v * kLanes);
      const Vec d = Load(delta + v * kLanes);
      const Vec before = BeforeActivation<kRelu>(y, d);
      Store(delta + v * kLanes, before);
      sum[v] += before;
    }
  }
  for (int v = 0; v < V; ++v) Store(bias_gradient + v * kLanes, sum[v]);
}

template <bool kRelu>
void BackwardActivation(int64_t rows, int64_t width, const float* output,
                        float* delta, float* bias_gradient) {
  int64_t column = 0;
  for (; column + 4 * kLanes <= width; column += 4 * kLanes) {
    BackwardActivation<kRelu, 4>(rows, width, output + column, delta + column,
                                 bias_gradient + column);
  }
  for (; column < width; column += kLanes) {
    BackwardActivation<kRelu, 1>(rows, width, output + column, delta + column,
                                 bias_gradient + column);
  }
}

// The same, rounded, in place of `delta`'s numbers: of two rows below each other to
// `pairs`, [(rows + 1) / 2, width], and beside each other to `rounded`, [rows, depth], 0
// behind each.
template <bool kRelu, int V>
void RoundBackwardColumns(int64_t rows, int64_t width, const float* output,
                          const float* delta, float* bias_gradient, Pair* pairs,
                          int64_t depth, Bfloat16* rounded) {
  Vec sum[V];
  for (int v = 0; v < V; ++v) sum[v] = Load(bias_gradient + v * kLanes);
  const auto run = [&](int64_t n, Vec* before) {
    for (int v = 0; v < V; ++v) {
      before[v] = BeforeActivation<kRelu>(Load(output + n * width + v * kLanes),
                                          Load(delta + n * width + v * kLanes));
      sum[v] += before[v];
    }
    Store(rounded + 2 * n * depth, before[0], V > 1 ? before[V - 1] : Vec{});
  };
  for (int64_t n = 0; n < rows; n += 2, pairs += width) {
    Vec first[V], second[V] = {};
    run(n, first);
    if (n + 1 < rows) run(n + 1, second);
    for (int v = 0; v < V; ++v) {
      Store(pairs + v * kLanes, RoundToPairs(first[v], second[v]));
    }
  }
  for (int v = 0; v < V; ++v) Store(bias_gradient + v * kLanes, sum[v]);
}

template <bool kRelu>
void RoundBackward(int64_t rows, int64_t width, const float* output,
                   const float* delta, float* bias_gradient, Pair* pairs,
                   int64_t depth, Pair* rounded) {
  auto* const numbers = reinterpret_cast<Bfloat16*>(rounded);
  int64_t c = 0;
  for (; c + 2 * kLanes <= width; c += 2 * kLanes) {
    RoundBackwardColumns<kRelu, 2>(rows, width, output + c, delta + c,
                                   bias_gradient + c, pairs + c, depth,
                                   numbers + c);
  }
  if (c < width) {
    RoundBackwardColumns<kRelu, 1>(rows, width, output + c, delta + c,
                                   bias_gradient + c, pairs + c, depth,
                                   numbers + c);
    c += 2 * kLanes;
  }
  for (; c < 2 * depth; c += 2 * kLanes) {
    for (int64_t n = 0; n < rows; ++n) {
      Store(numbers + 2 * n * depth + c, Vec{}, Vec{});
    }
  }
}

// Leaves d loss / d hidden in plan.delta[0], from plan.plane_scratch.
void HeadsToHidden(const MlpPlan& plan, const StackPlan& stack,
                   float* workspace, int64_t rows) {
  const LayerPlan& last = stack.layers[stack.layer_count - 1];
  const float* gradients =
      workspace + plan.plane_scratch + int64_t{stack.plane} * kTileRows;
  Multiply(rows, last.out_pad, stack.rows, {gradients, 1, kTileRows},
           {workspace + stack.head_weight, last.out_pad},
           {workspace + plan.zero, 0},
           {workspace + plan.delta[0], last.out_pad});
}

// Adds the gradient of `plane_gradients` [outputs, tile] to the heads'; returns
// with d loss / d hidden in plan.delta[0].
void BackwardHeads(const MlpPlan& plan, const StackPlan& stack,
                   float* workspace, int64_t rows) {
  const LayerPlan& last = stack.layers[stack.layer_count - 1];
  const float* gradients =
      workspace + plan.plane_scratch + int64_t{stack.plane} * kTileRows;
  float* weight_gradient = workspace + stack.head_weight_gradient;
  Multiply(stack.rows, last.out_pad, rows, {gradients, kTileRows, 1},
           {workspace + last.output, last.out_pad},
           {weight_gradient, last.out_pad}, {weight_gradient, last.out_pad});
  for (int r = 0; r < stack.rows; ++r) {
    Vec sum = {};
    for (int64_t n = 0; n < rows; n += kLanes) {
      sum += Load(gradients + r * kTileRows + n);
    }
    workspace[stack.head_bias_gradient + r] += LaneSum(sum);
  }
  HeadsToHidden(plan, stack, workspace, rows);
}

// Adds one tile's gradients, from the loss gradients in plan.plane_scratch (0
// past `rows`) down to the first layer.
void BackwardStack(const MlpPlan& plan, const StackPlan& stack,
                   float* workspace, int64_t rows) {
  BackwardHeads(plan, stack, workspace, rows);
  float* delta = workspace + plan.delta[0];
  float* next = workspace + plan.delta[1];
  for (int i = stack.layer_count - 1; i >= 0; --i) {
    const LayerPlan& layer = stack.layers[i];
    const float* const output = workspace + layer.output;
    float* const bias_gradient = workspace + layer.bias_gradient;
    const Rows input =
        i == 0 ? Rows{workspace + plan.inputs, plan.observations_pad}
               : Rows{workspace + stack.layers[i - 1].output, layer.in_pad};
    if (plan.bfloat16) {
      const auto run = plan.relu ? RoundBackward<true> : RoundBackward<false>;
      run(rows, layer.out_pad, output, delta, bias_gradient,
          DeltaPairs(plan, layer, workspace), PairsOf(layer.out),
          PairsAt(workspace, plan.rounded));
      Pair* const inputs = InputPairs(plan, layer, workspace);
      if (i == 0) {
        PairUpRoundedRows(rows, layer.in_pad, PairsOf(layer.in),
                          PairsAt(workspace, plan.inputs), inputs);
      } else {
        PairUpRows(rows, layer.in_pad, input, inputs);
      }
    } else {
      const auto run =
          plan.relu ? BackwardActivation<true> : BackwardActivation<false>;
      run(rows, layer.out_pad, output, delta, bias_gradient);
    }
    AddWeightGradient(plan, layer, workspace, input, delta, rows);
    if (i == 0) return;
    LayerBack(plan, layer, workspace, delta, rows, {workspace + plan.zero, 0},
              next);
    float* const used = delta;
    delta = next;
    next = used;
  }
}

// Down to what the network sees, of floats: writes d loss / d inputs plus `addend`, rows of
// observations_pad, to plan.input_gradient, and counts no parameter's gradient.
void BackwardToInputs(const MlpPlan& plan, const StackPlan& stack,
                      float* workspace, int64_t rows, Rows addend) {
  HeadsToHidden(plan, stack, workspace, rows);
  float* delta = workspace + plan.delta[0];
  float* next = workspace + plan.delta[1];
  for (int i = stack.layer_count - 1; i >= 0; --i) {
    const LayerPlan& layer = stack.layers[i];
    ThroughActivation(plan.relu, rows * layer.out_pad, workspace + layer.output,
                      delta);
    LayerBack(plan, layer, workspace, delta, rows,
              i == 0 ? addend : Rows{workspace + plan.zero, 0},
              i == 0 ? workspace + plan.input_gradient : next);
    float* const used = delta;
    delta = next;
    next = used;
  }
}

void ClearGradients(const MlpPlan& plan, float* workspace) {
  for (int64_t i = plan.gradients; i < plan.gradients_end; i += kLanes) {
    Store(workspace + i, Vec{});
  }
}

// Writes or adds the workspace's gradients to a flat buffer laid out as the
// parameters are.
template <bool kAdd>
struct GradientWriter {
  const float* workspace;
  float* gradient;

  void Put(const float* in, int64_t in_row, int rows, int64_t columns,
           int64_t at) const {
    for (int j = 0; j < rows; ++j) {
      CopyRow<kAdd>(in + j * in_row, columns, gradient + at + j * columns);
    }
  }

  void PutTransposed(const float* in, int64_t in_row, int rows, int64_t columns,
                     int64_t at) const {
    for (int j = 0; j < rows; ++j) {
      float* out = gradient + at + j * columns;
      for (int64_t i = 0; i < columns; ++i) {
        out[i] = kAdd ? out[i] + in[i * in_row + j] : in[i * in_row + j];
      }
    }
  }

  void PutLayer(const LayerPlan& layer) const {
    const float* weight = workspace + layer.weight_gradient;
    for (int i = 0; i < layer.part_count; ++i) {
      const LayerPart& part = layer.parts[i];
      if (layer.gradient_transposed) {
        PutTransposed(weight + part.first, layer.out_pad, part.out, layer.in,
                      part.weight);
      } else {
        Put(weight + int64_t{part.first} * layer.in_pad, layer.in_pad, part.out,
            layer.in, part.weight);
      }
      Put(workspace + layer.bias_gradient + part.first, 0, 1, part.out,
          part.bias);
    }
  }

  void PutHeads(const StackPlan& stack) const {
    const LayerPlan& last = stack.layers[stack.layer_count - 1];
    const float* weight = workspace + stack.head_weight_gradient;
    const float* bias = workspace + stack.head_bias_gradient;
    for (int i = 0; i < stack.head_count; ++i) {
      const HeadPlan& head = stack.heads[i];
      Put(weight + head.first_in, last.out_pad, head.rows, head.in,
          head.weight);
      Put(bias, 0, 1, head.rows, head.bias);
      weight += head.rows * last.out_pad;
      bias += head.rows;
    }
  }

  void PutAll(const MlpPlan& plan) const {
    if (plan.continuous) {
      Put(workspace + plan.log_std_gradient, 0, 1, plan.actions, plan.log_std);
    }
    for (int i = 0; i < plan.stack_count; ++i) {
      const StackPlan& stack = plan.stacks[i];
      for (int j = 0; j < stack.layer_count; ++j) PutLayer(stack.layers[j]);
      PutHeads(stack);
    }
  }
};

// Writes the workspace's gradients to a flat buffer, or adds them.
void PutGradients(const MlpPlan& plan, const float* workspace, bool accumulate,
                  float* gradient) {
  if (accumulate) {
    GradientWriter<true>{workspace, gradient}.PutAll(plan);
  } else {
    GradientWriter<false>{workspace, gradient}.PutAll(plan);
  }
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_MLP_H_
