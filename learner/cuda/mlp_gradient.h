#ifndef FLOTILLA_LEARNER_CUDA_MLP_GRADIENT_H_
#define FLOTILLA_LEARNER_CUDA_MLP_GRADIENT_H_

#include <cstdint>

#include "learner/cuda/block.h"
#include "learner/cuda/mlp_policy.h"

namespace flotilla {

// Adds to a gradient what R observations make of it, where the slopes of a loss are
// known with respect to all that the network says of them. Sums over rows are in an
// order that depends on R and the network alone. Pointers are the device's.
struct MlpGradientArgs {
  MlpLayers net;
  int64_t rows = 0;                      // R
  const float* parameters = nullptr;     // [P]
  const float* observation = nullptr;    // [R, D]
  int64_t units = 0;                     // H
  const float* kept = nullptr;           // [R, H]  of MlpForwardArgs
  const float* policy_slope = nullptr;   // [R, O]
  const float* value_slope = nullptr;    // [R]
  const float* log_std_slope = nullptr;  // [R, log_std]
  int64_t parameter_count = 0;           // P
  float* gradient = nullptr;             // [P]

  float* slope = nullptr;  // [R, H]  of what hidden units sum up
  int64_t slices = 0;      // MlpSlices
  float* parts = nullptr;  // [slices, P]
};

namespace {

// Weights [out, in] go by tiles of this many, 4 x 4 a thread, and rows by as many
// as fill what a thread carries.
constexpr int kWeightTile = 64;
constexpr int kWeightRows = 16;
static_assert(kWeightTile / 4 * kWeightTile / 4 == Block::kThreads);

FLOTILLA_INLINE int64_t WeightTiles(int n) {
  return n <= kWeightTile ? 1 : (n + kWeightTile - 1) / kWeightTile;
}

// A tile of the weights that the gradient is of: those of one layer.
struct MlpWeightTile {
  MlpLayer layer;
  const float* slope = nullptr;  // of what the layer's units sum up, row 0
  int64_t slope_stride = 0;
  const float* input = nullptr;  // what the layer sees, row 0
  int64_t input_stride = 0;
  int out = 0, in = 0;  // the tile's first
};

// The tiles of all layers, in the parameters' order. log_std is as a layer that
// sees nothing: it has biases alone.
class MlpWeightTiles {
 public:
  FLOTILLA_INLINE explicit MlpWeightTiles(const MlpGradientArgs& args)
      : a_(args) {}

  FLOTILLA_INLINE int64_t count() const {
    MlpWeightTile unused;
    return Find(-1, &unused);
  }

  // The tile of this number; returns how many were passed, all for one below 0.
  FLOTILLA_INLINE int64_t Find(int64_t number, MlpWeightTile* tile) const {
    int64_t passed = 0;
    const auto found = [&] {
      const MlpLayer& layer = tile->layer;
      const int64_t across = WeightTiles(layer.in);
      const int64_t all = across * WeightTiles(layer.out);
      if (number < passed || number >= passed + all) {
        passed += all;
        return false;
      }
      tile->out = static_cast<int>((number - passed) / across) * kWeightTile;
      tile->in = static_cast<int>((number - passed) % across) * kWeightTile;
      return true;
    };
    if (a_.net.log_std > 0) {
      tile->layer.out = a_.net.log_std;
      tile->slope = a_.log_std_slope;
      tile->slope_stride = a_.net.log_std;
      if (found()) return passed;
    }
    for (int stack = 0; stack < a_.net.stacks(); ++stack) {
      for (int l = 0; l < a_.net.layers(); ++l) {
        const MlpLayer layer = a_.net.Layer(stack, l);
        tile->layer = layer;
        if (l < a_.net.hidden_count) {
          tile->slope = a_.slope + layer.unit;
          tile->slope_stride = a_.units;
        } else {
          tile->slope =
              a_.net.IsValue(stack, l) ? a_.value_slope : a_.policy_slope;
          tile->slope_stride = layer.out;
        }
        tile->input = l == 0 ? a_.observation : a_.kept + layer.unit - layer.in;
        tile->input_stride = l == 0 ? layer.in : a_.units;
        if (found()) return passed;
      }
    }
    return passed;
  }

 private:
  const MlpGradientArgs& a_;
};

// Into how many slices rows go, so that there is enough to do at once.
inline int64_t MlpSlices(const MlpGradientArgs& args) {
  constexpr int64_t kBlocks = 512, kRows = 64;  // that are worth a slice
  const int64_t wanted = kBlocks / MlpWeightTiles(args).count() + 1;
  const int64_t most = (args.rows + kRows - 1) / kRows;
  return wanted < most ? wanted : most < 1 ? 1 : most;
}

// Slopes of what hidden units sum up, from the heads down: a tile of rows of one
// stack a block.
struct MlpSlopeKernel {
  static constexpr int kAtOnce = 2;

  MlpGradientArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    FLOTILLA_SHARED MlpTile tile;
    const int stack = static_cast<int>(block.index() % a.net.stacks());
    const int64_t first = block.index() / a.net.stacks() * kTileRows;
    for (int l = a.net.hidden_count - 1; l >= 0; --l) {
      WithQuads(a.net.Width(l), [&]<int kQuads>() {
        Run<kQuads>(block, stack, l, first, &tile);
      });
    }
  }

 private:
  template <int kQuads>
  FLOTILLA_INLINE void Run(const Block& block, int stack, int l, int64_t first,
                           MlpTile* tile) const {
    PerThread<RowSums<kQuads>> sums;
    block.Threads([&](int thread) { sums[thread] = {}; });
    const MlpLayer layer = a.net.Layer(stack, l);
    const MlpUnits units(layer.out);
    const int64_t count = a.rows - first;
    const bool last = l + 1 == a.net.hidden_count;
    for (int h = 0; h < (last ? a.net.heads() : 1); ++h) {
      const MlpLayer above = a.net.Layer(stack, l + 1 + h);
      const MlpProduct<false> product(a.parameters + above.weight, above.out,
                                      units);
      if (last) {
        const float* const slope =
            a.net.IsValue(stack, l + 1 + h) ? a.value_slope : a.policy_slope;
        product.AddTo(block, slope + first * above.out, count, tile, &sums);
      } else {
        product.AddTo(block, tile, &sums);
      }
    }
    block.Threads([&](int thread) {
      if (!units.Has<kQuads>(thread)) return;
      const int unit = units.UnitOf(thread);
      const int quad = units.QuadOf<kQuads>(thread);
      FLOTILLA_UNROLL
      for (int q = 0; q < kQuads; ++q) {
        FourFloats x = sums[thread].quad[q];
        FLOTILLA_UNROLL
        for (int j = 0; j < 4; ++j) {
          const int row = (quad + q) * 4 + j;
          if (row >= count) continue;
          const int64_t at = (first + row) * a.units + layer.unit + unit;
          x.x[j] *= Slope(a.kept[at]);
          a.slope[at] = x.x[j];
        }
        tile->rows[unit * kTileStride + quad + q] = x;
      }
    });
  }

  // Of the activation, from what it gave.
  FLOTILLA_INLINE float Slope(float y) const {
    return !a.net.relu ? 1 - y * y : y > 0 ? 1.0f : 0.0f;
  }
};

// Sums over a slice of rows, of a tile of one layer's weights: slopes times what the
// layer sees. Slices are neighbours.
struct MlpPartsKernel {
  MlpGradientArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    FLOTILLA_SHARED FourFloats slopes[kWeightRows * kWeightTile / 4];
    FLOTILLA_SHARED FourFloats inputs[kWeightRows * kWeightTile / 4];
    MlpWeightTile tile;
    MlpWeightTiles(a).Find(block.index() / a.slices, &tile);
    const int64_t slice = block.index() % a.slices;
    const int64_t size = (a.rows + a.slices - 1) / a.slices;
    const int64_t begin = slice * size;
    const int64_t end = begin + size < a.rows ? begin + size : a.rows;
    PerThread<Sums> sums;
    PerThread<Carried> next;
    block.Threads([&](int thread) {
      sums[thread] = {};
      Fetch(tile, begin, end, thread, &next[thread]);
    });
    for (int64_t row = begin; row < end; row += kWeightRows) {
      block.Threads([&](int thread) {
        slopes[thread] = next[thread].slope;
        inputs[thread] = next[thread].input;
      });
      block.Threads([&](int thread) {
        Fetch(tile, row + kWeightRows, end, thread, &next[thread]);
        Add(slopes + OutOf(thread) / 4, inputs + InOf(thread) / 4,
            &sums[thread]);
      });
    }
    float* const to = a.parts + slice * a.parameter_count + tile.layer.weight;
    block.Threads([&](int thread) { Leave(tile, thread, sums[thread], to); });
  }

 private:
  struct Sums {
    FourFloats weight[4];  // [out, in]
    FourFloats bias;
  };
  struct Carried {
    FourFloats slope, input;
  };

  // The first of 4 x 4 that are a thread's, in the tile.
  FLOTILLA_INLINE static int OutOf(int thread) {
    return thread / (kWeightTile / 4) * 4;
  }
  FLOTILLA_INLINE static int InOf(int thread) {
    return thread % (kWeightTile / 4) * 4;
  }

  // Four neighbours of one of the rows, zeros beyond what there is.
  FLOTILLA_INLINE static void Fetch(const MlpWeightTile& tile, int64_t first,
                                    int64_t end, int thread, Carried* to) {
    const int64_t row = first + thread / (kWeightTile / 4);
    const int column = thread % (kWeightTile / 4) * 4;
    FLOTILLA_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int out = tile.out + column + j, in = tile.in + column + j;
      const bool there = row < end;
      to->slope.x[j] = there && out < tile.layer.out
                           ? tile.slope[row * tile.slope_stride + out]
                           : 0;
      to->input.x[j] = there && in < tile.layer.in
                           ? tile.input[row * tile.input_stride + in]
                           : 0;
    }
  }

  FLOTILLA_INLINE static void Add(const FourFloats* slopes,
                                  const FourFloats* inputs, Sums* sums) {
    FLOTILLA_UNROLL
    for (int row = 0; row < kWeightRows; ++row) {
      const FourFloats slope = slopes[row * kWeightTile / 4];
      const FourFloats input = inputs[row * kWeightTile / 4];
      FLOTILLA_UNROLL
      for (int i = 0; i < 4; ++i) {
        sums->bias.x[i] += slope.x[i];
        FLOTILLA_UNROLL
        for (int j = 0; j < 4; ++j) {
          sums->weight[i].x[j] += slope.x[i] * input.x[j];
        }
      }
    }
  }

  // `to`: the layer's first weight.
  FLOTILLA_INLINE static void Leave(const MlpWeightTile& tile, int thread,
                                    const Sums& sums, float* to) {
    const MlpLayer& layer = tile.layer;
    FLOTILLA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int out = tile.out + OutOf(thread) + i;
      if (out >= layer.out) continue;
      FLOTILLA_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int in = tile.in + InOf(thread) + j;
        if (in < layer.in) to[out * layer.in + in] = sums.weight[i].x[j];
      }
      if (tile.in + InOf(thread) == 0) {
        to[layer.out * layer.in + out] = sums.bias.x[i];
      }
    }
  }
};

// Adds up what the slices left.
struct MlpSumKernel {
  MlpGradientArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    block.Each(a.parameter_count, [&](int64_t i) {
      float sum = 0;
      for (int64_t s = 0; s < a.slices; ++s) {
        sum += a.parts[s * a.parameter_count + i];
      }
      a.gradient[i] += sum;
    });
  }
};

template <typename Run>
void RunKernels(const MlpGradientArgs& args, Run run) {
  if (args.rows == 0) return;
  run(MlpSlopeKernel{args}, MlpBlocks(args.net, args.rows));
  run(MlpPartsKernel{args}, MlpWeightTiles(args).count() * args.slices);
  run(MlpSumKernel{args}, BlocksFor(args.parameter_count));
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CUDA_MLP_GRADIENT_H_
