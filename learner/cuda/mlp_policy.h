#ifndef FLOTILLA_LEARNER_CUDA_MLP_POLICY_H_
#define FLOTILLA_LEARNER_CUDA_MLP_POLICY_H_

#include <cmath>
#include <cstdint>

#include "learner/cuda/block.h"

namespace flotilla {

// A layer and where it is: weights [out, in] and then biases [out] in the flat
// parameters, and among the hidden units of a row its own, or of a head what comes
// behind those that it sees.
struct MlpLayer {
  int in = 0, out = 0;
  int64_t weight = 0;
  int unit = 0;
};

// An MLP actor-critic (kernels/mlp_shape.h) as numbers, laid out as ParameterLayout
// does. What is wider or deeper than this is Torch's.
struct MlpLayers {
  static constexpr int kMostHidden = 8;  // layers
  static constexpr int kWidest = 256;    // units of one, and O
  static constexpr int kMostObservations = 1 << 20;

  int observations = 0;  // D
  int hidden_count = 0;
  int hidden[kMostHidden] = {};
  int outputs = 0;  // O
  bool relu = false;
  bool share_trunk = false;
  int log_std = 0;  // numbers that come before the layers

  // What sees the observation: apart the critic, then the actor; or one trunk.
  FLOTILLA_INLINE int stacks() const { return share_trunk ? 1 : 2; }
  FLOTILLA_INLINE int heads() const { return share_trunk ? 2 : 1; }
  FLOTILLA_INLINE int layers() const { return hidden_count + heads(); }
  // Without an index that is known late: a GPU would copy all of this to find it.
  FLOTILLA_INLINE int Width(int l) const {
    int width = 0;
    FLOTILLA_UNROLL
    for (int i = 0; i < kMostHidden; ++i) width = i == l ? hidden[i] : width;
    return width;
  }
  FLOTILLA_INLINE bool IsValue(int stack, int l) const {
    return share_trunk ? l > hidden_count : l == hidden_count && stack == 0;
  }

  // Layer l of a stack: its hidden ones, then its heads. Behind the last one is
  // where the parameters and the hidden units end.
  FLOTILLA_INLINE MlpLayer Layer(int stack, int l) const {
    MlpLayer layer;
    layer.weight = log_std;
    for (int s = 0; s <= stack; ++s) {
      layer.in = observations;
      for (int j = 0; j < layers(); ++j) {
        layer.out = j < hidden_count ? Width(j) : IsValue(s, j) ? 1 : outputs;
        if (s == stack && j == l) return layer;
        layer.weight += int64_t{layer.out} * (layer.in + 1);
        if (j >= hidden_count) continue;
        layer.unit += layer.out;
        layer.in = layer.out;
      }
    }
    return layer;
  }
  FLOTILLA_INLINE MlpLayer End() const { return Layer(stacks() - 1, layers()); }
};

// What the network makes of R observations. Pointers are the device's.
struct MlpForwardArgs {
  MlpLayers net;
  int64_t rows = 0;                    // R
  const float* parameters = nullptr;   // [P]
  const float* observation = nullptr;  // [R, D]
  float* policy = nullptr;             // [R, O]
  float* value = nullptr;              // [R]
  // The hidden units of all stacks behind their activations, [R, H]; or null.
  int64_t units = 0;  // H
  float* kept = nullptr;
};

namespace {

struct alignas(16) FourFloats {
  float x[4];
};

// Rows that go through the network together, so that each weight that is read
// serves 16 of them. What they are at one unit are neighbours; a quad that is
// left out between units puts neighbouring units into different banks.
constexpr int kTileRows = 16;
constexpr int kTileQuads = kTileRows / 4;
constexpr int kTileStride = kTileQuads + 1;
constexpr int kStaged = 8;  // weights of a thread at a time

struct MlpTile {
  FourFloats rows[MlpLayers::kWidest * kTileStride];  // [unit, quad]
  // [k, lanes + 1]; at least 32 lanes, and so at most 64 k.
  float weights[kStaged * Block::kThreads + 64];
};
static_assert(sizeof(MlpTile) <= 48 * 1024, "more than a block may have");

struct StagedWeights {
  float x[kStaged];
};

// What one thread sums up: one unit, of 4 kQuads rows.
template <int kQuads>
struct RowSums {
  FourFloats quad[kQuads];
};

// Which sums of a tile are whose: threads lie beside each other by units, a warp or
// more, and behind each other by rows.
class MlpUnits {
 public:
  FLOTILLA_INLINE explicit MlpUnits(int units) : units_(units) {
    while (1 << lane_bits_ < units) ++lane_bits_;
  }

  FLOTILLA_INLINE int count() const { return units_; }
  FLOTILLA_INLINE int lane_bits() const { return lane_bits_; }

  // The unit and the first quad of rows that are a thread's, if it has any.
  template <int kQuads>
  FLOTILLA_INLINE bool Has(int thread) const {
    return UnitOf(thread) < units_ && QuadOf<kQuads>(thread) < kTileQuads;
  }
  FLOTILLA_INLINE int UnitOf(int thread) const {
    return thread & ((1 << lane_bits_) - 1);
  }
  template <int kQuads>
  FLOTILLA_INLINE int QuadOf(int thread) const {
    return (thread >> lane_bits_) * kQuads;
  }

 private:
  const int units_;
  int lane_bits_ = 5;
};

// Adds to sums what units make of a tile's rows:
//
//   sum over k of weight(k, unit) * row(k)
//
// where the weights are [units, depth], or if not kByUnit [depth, units]. They are
// read along their rows and go through shared memory in chunks of k; while one is
// used the next is on its way.
template <bool kByUnit>
class MlpProduct {
 public:
  FLOTILLA_INLINE MlpProduct(const float* weights, int depth, MlpUnits units)
      : weights_(weights), depth_(depth), units_(units) {
    constexpr int kStagedBits = 11;  // of kStaged * kThreads
    static_assert(1 << kStagedBits == kStaged * Block::kThreads);
    chunk_bits_ = kStagedBits - units.lane_bits();
    while (chunk_bits_ > 0 && 1 << (chunk_bits_ - 1) >= depth) --chunk_bits_;
  }

  // Of rows that are in the tile.
  template <int kQuads>
  FLOTILLA_INLINE void AddTo(const Block& block, MlpTile* tile,
                             PerThread<RowSums<kQuads>>* sums) const {
    Add(block, tile, sums, /*step=*/1 << chunk_bits_, [](int, int) {});
  }

  // Of rows [rows, depth] in memory, of which the tile has the first `count`.
  template <int kQuads>
  FLOTILLA_INLINE void AddTo(const Block& block, const float* from,
                             int64_t count, MlpTile* tile,
                             PerThread<RowSums<kQuads>>* sums) const {
    Add(block, tile, sums, /*step=*/0, [&](int first, int thread) {
      for (int i = thread; i < kTileRows << chunk_bits_; i += Block::kThreads) {
        const int k = i & ((1 << chunk_bits_) - 1), row = i >> chunk_bits_;
        if (first + k >= depth_) continue;
        tile->rows[k * kTileStride + row / 4].x[row % 4] =
            row < count ? from[int64_t{row} * depth_ + first + k] : 0;
      }
    });
  }

 private:
  // `put(first, thread)` before each chunk. `step`: what one moves on in the tile.
  template <int kQuads, typename Put>
  FLOTILLA_INLINE void Add(const Block& block, MlpTile* tile,
                           PerThread<RowSums<kQuads>>* sums, int step,
                           Put put) const {
    PerThread<StagedWeights> staged;
    block.Threads([&](int thread) { Fetch(0, thread, &staged[thread]); });
    const FourFloats* rows = tile->rows;
    for (int first = 0; first < depth_; first += 1 << chunk_bits_) {
      block.Threads([&](int thread) {
        put(first, thread);
        Place(first, thread, staged[thread], tile->weights);
      });
      block.Threads([&](int thread) {
        Fetch(first + (1 << chunk_bits_), thread, &staged[thread]);
        if (units_.Has<kQuads>(thread)) {
          AddChunk(Left(first), rows + units_.QuadOf<kQuads>(thread),
                   tile->weights + units_.UnitOf(thread), &(*sums)[thread]);
        }
      });
      rows += step * kTileStride;
    }
  }

  // In the tile: neighbouring k are in different banks, as neighbouring units are.
  FLOTILLA_INLINE int WeightStride() const {
    return (1 << units_.lane_bits()) + 1;
  }

  FLOTILLA_INLINE int Left(int first) const {
    const int left = depth_ - first;
    return left < 1 << chunk_bits_ ? left : 1 << chunk_bits_;
  }

  // What a thread carries of a chunk: of a row of the weights one number, and the
  // same of every so many rows further on.
  struct Share {
    int row, column;  // the first
    int step;         // rows
    int count;
  };
  FLOTILLA_INLINE Share ShareOf(int first, int thread) const {
    constexpr int kThreadBits = 8;
    static_assert(1 << kThreadBits == Block::kThreads);
    const int bits = kByUnit ? chunk_bits_ : units_.lane_bits();
    const int n = Left(first);
    const int rows = kByUnit ? units_.count() : n;
    const int columns = kByUnit ? n : units_.count();
    Share share = {thread >> bits, thread & ((1 << bits) - 1),
                   Block::kThreads >> bits, 0};
    if (share.column < columns) {
      share.count = (rows - share.row + share.step - 1) >> (kThreadBits - bits);
    }
    return share;
  }

  FLOTILLA_INLINE void Fetch(int first, int thread, StagedWeights* to) const {
    const Share share = ShareOf(first, thread);
    const int width = kByUnit ? depth_ : units_.count();
    const float* from = weights_ + share.row * width + share.column +
                        (kByUnit ? first : first * width);
    FLOTILLA_UNROLL
    for (int j = 0; j < kStaged; ++j, from += share.step * width) {
      if (j < share.count) to->x[j] = *from;
    }
  }

  FLOTILLA_INLINE void Place(int first, int thread, const StagedWeights& from,
                             float* to) const {
    const Share share = ShareOf(first, thread);
    const int stride = WeightStride();
    to += kByUnit ? share.column * stride + share.row
                  : share.row * stride + share.column;
    FLOTILLA_UNROLL
    for (int j = 0; j < kStaged; ++j) {
      if (j < share.count) *to = from.x[j];
      to += kByUnit ? share.step : share.step * stride;
    }
  }

  template <int kQuads>
  FLOTILLA_INLINE void AddChunk(int n, const FourFloats* rows,
                                const float* weights,
                                RowSums<kQuads>* sums) const {
    FLOTILLA_UNROLL_BY(2)
    for (int k = 0; k < n; ++k) {
      const float weight = weights[k * WeightStride()];
      FLOTILLA_UNROLL
      for (int q = 0; q < kQuads; ++q) {
        const FourFloats row = rows[k * kTileStride + q];
        FLOTILLA_UNROLL
        for (int j = 0; j < 4; ++j) {
          sums->quad[q].x[j] += weight * row.x[j];
        }
      }
    }
  }

  const float* const weights_;
  const int depth_;
  const MlpUnits units_;
  int chunk_bits_;
};

// f.template operator()<kQuads>() with as many threads as there are for `units`.
template <typename F>
FLOTILLA_INLINE void WithQuads(int units, F f) {
  if (units > 128) {
    f.template operator()<4>();
  } else if (units > 64) {
    f.template operator()<2>();
  } else {
    f.template operator()<1>();
  }
}

// A tile of rows of one stack a block.
struct MlpForwardKernel {
  static constexpr int kAtOnce = 2;

  MlpForwardArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    FLOTILLA_SHARED MlpTile tile;
    const int stack = static_cast<int>(block.index() % a.net.stacks());
    const int64_t first = block.index() / a.net.stacks() * kTileRows;
    for (int l = 0; l < a.net.layers(); ++l) {
      const MlpLayer layer = a.net.Layer(stack, l);
      WithQuads(layer.out, [&]<int kQuads>() {
        Run<kQuads>(block, layer, stack, l, first, &tile);
      });
    }
  }

 private:
  template <int kQuads>
  FLOTILLA_INLINE void Run(const Block& block, const MlpLayer& layer, int stack,
                           int l, int64_t first, MlpTile* tile) const {
    PerThread<RowSums<kQuads>> sums;
    block.Threads([&](int thread) { sums[thread] = {}; });
    const MlpUnits units(layer.out);
    const MlpProduct<true> product(a.parameters + layer.weight, layer.in,
                                   units);
    const int64_t count = a.rows - first;
    if (l == 0) {
      product.AddTo(block, a.observation + first * layer.in, count, tile,
                    &sums);
    } else {
      product.AddTo(block, tile, &sums);
    }
    const float* const biases =
        a.parameters + layer.weight + layer.out * layer.in;
    const bool hidden = l < a.net.hidden_count;
    float* const out = hidden                    ? a.kept
                       : a.net.IsValue(stack, l) ? a.value
                                                 : a.policy;
    const int64_t stride = hidden ? a.units : layer.out;
    block.Threads([&](int thread) {
      if (!units.Has<kQuads>(thread)) return;
      const int unit = units.UnitOf(thread);
      const int quad = units.QuadOf<kQuads>(thread);
      const float bias = biases[unit];
      FLOTILLA_UNROLL
      for (int q = 0; q < kQuads; ++q) {
        FourFloats x = sums[thread].quad[q];
        FLOTILLA_UNROLL
        for (int j = 0; j < 4; ++j) {
          x.x[j] += bias;
          if (hidden) x.x[j] = Activate(x.x[j]);
          const int row = (quad + q) * 4 + j;
          if (out != nullptr && row < count) {
            out[(first + row) * stride + (hidden ? layer.unit : 0) + unit] =
                x.x[j];
          }
        }
        if (hidden) tile->rows[unit * kTileStride + quad + q] = x;
      }
    });
  }

  // Hands on a NaN.
  FLOTILLA_INLINE float Activate(float x) const {
    return a.net.relu ? AtLeast(x, 0.0f) : std::tanh(x);
  }
};

FLOTILLA_INLINE int64_t MlpBlocks(const MlpLayers& net, int64_t rows) {
  return (rows + kTileRows - 1) / kTileRows * net.stacks();
}

template <typename Run>
void RunKernels(const MlpForwardArgs& args, Run run) {
  if (args.rows > 0)
    run(MlpForwardKernel{args}, MlpBlocks(args.net, args.rows));
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CUDA_MLP_POLICY_H_
