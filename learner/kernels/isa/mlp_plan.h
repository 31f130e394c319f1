#ifndef FLOTILLA_LEARNER_KERNELS_ISA_MLP_PLAN_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_MLP_PLAN_H_

#include <cstdint>

namespace flotilla {

// Where everything of one network lies: in the flat parameters and in a
// workspace of floats. Plain data, so that kernels compiled for different
// processors share it. Offsets count floats; those into the workspace are
// multiples of kPad, so every array in it is aligned and its rows too.

// Widths are padded to this many floats, the widest vector's; padding is zero.
inline constexpr int kPad = 16;

// Rows that go through the network together, at most: what planes have room for. Sums of
// a gradient of weights are loaded and stored once for so many rows, which tiles feel.
inline constexpr int kTileRows = 192;
// Of floats: half, and activations of usual widths stay in smaller caches.
inline constexpr int kFloatTileRows = 96;
// Whole blocks of rows of all kernels: of 6 (isa/gemm.h), of two tiles, and of a tile's
// depth as pairs.
static_assert(kTileRows % 96 == 0 && kFloatTileRows % 96 == 0);

inline constexpr int RoundUp(int n) { return (n + kPad - 1) / kPad * kPad; }

// Pairs of n numbers, padded to those of a row of a tile (isa/amx_product.h).
inline constexpr int PairsOf(int n) { return RoundUp((n + 1) / 2); }

// Outputs [first, first + out) of a hidden layer, which are one tensor.
struct LayerPart {
  int first, out;
  int64_t weight, bias;  // parameters: [out, in], [out]
};

// A hidden layer: the parameters' own, or two that see the same side by side.
struct LayerPlan {
  int in, out;          // true widths
  int in_pad, out_pad;  // padded

  LayerPart parts[2];
  int part_count;

  int64_t forward_weight;  // [in, out_pad]   transposed
  int64_t forward_bias;    // [out_pad]
  int64_t output;          // [tile, out_pad]   after the activation

  // Of bfloat16 only; see isa/mlp_products.h.
  int64_t forward_pairs;   // [PairsOf(in), out_pad] pairs, of two inputs
  int64_t backward_pairs;  // [PairsOf(out), in_pad] pairs, of two outputs

  // Training only.
  int64_t backward_weight;   // [out, in_pad]; 0: no input's gradient is wanted
  int64_t weight_gradient;   // [out, in_pad], or [in, out_pad] if ...
  bool gradient_transposed;  // ... that wastes less padding
  int64_t bias_gradient;     // [out_pad]
};

// A linear output of a stack: the policy's, Q's or the value's. It sees the last
// layer's outputs [first_in, first_in + in).
struct HeadPlan {
  int rows;
  int plane;  // of its first output
  int first_in, in;
  int64_t weight, bias;  // parameters: [rows, in], [rows]
};

// Hidden layers with one or two heads on top, their rows end to end.
struct StackPlan {
  const LayerPlan* layers;
  int layer_count;
  HeadPlan heads[2];
  int head_count;
  int rows;             // of all heads
  int plane;            // of the first head
  int64_t head_weight;  // [rows, out_pad of the last layer]
  int64_t head_bias;    // [rows]

  // Training only.
  int64_t head_weight_gradient;  // as head_weight
  int64_t head_bias_gradient;    // [rows]
};

// Outputs are planes of one tile, sample by sample: planes 0 .. A-1 are the
// policy's, or Q, plane A the value. Of a squashed Gaussian 0 .. A-1 are means and
// A .. 2A-1 what log standard deviations are made of; of critics 0 is Q1 and 1 Q2.
struct MlpPlan {
  int observations, observations_pad;
  int actions;
  const int32_t* first_logit;  // [K + 1]   of each choice; then A
  int choices;                 // K
  bool relu;
  bool bfloat16;  // products of hidden layers
  int tile_rows;  // that go through together
  bool continuous;
  bool dueling;  // Q's planes are advantages until QTile has added V
  int64_t parameter_count;
  StackPlan stacks[2];  // the value's stack first, where they are apart
  int stack_count;
  int64_t log_std;  // parameters: [A]

  int64_t planes;         // [outputs, tile]
  int64_t plane_scratch;  // [outputs, tile]   exponentials, or loss gradients
  int64_t action_planes;  // [A, tile]   float, or [K, tile] int32
  int64_t gauss;          // [3, A]   log_std, std, 1 / std
  int64_t draws;  // [4, A, tile]   of a squashed Gaussian: see isa/sac.h

  // Of bfloat16 only.
  int64_t rounded;       // [tile, PairsOf(widest)] pairs
  int64_t left_pairs;    // [PairsOf(tile), widest] pairs, of two samples
  int64_t right_pairs;   // as left_pairs
  int64_t turned_pairs;  // [widest, PairsOf(tile)] pairs

  // Training only, but for critics' inputs.
  int64_t inputs;                    // [tile, observations_pad]; of bfloat16
                                     // [tile, PairsOf(observations)] pairs
  int64_t input_gradient;            // [tile, observations_pad]   of critics
  int64_t samples;                   // [4, tile]   see isa/ppo.h, q.h, sac.h
  int64_t delta[2];                  // [tile, widest layer]
  int64_t zero;                      // [widest layer, or input of critics]
  int64_t log_std_gradient;          // [A]
  int64_t gradients, gradients_end;  // all gradients lie in this range

  int64_t workspace_size;
};

// One network at work.
struct PlannedMlp {
  const MlpPlan& plan;
  float* workspace;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_MLP_PLAN_H_
