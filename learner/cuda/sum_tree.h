#ifndef FLOTILLA_LEARNER_CUDA_SUM_TREE_H_
#define FLOTILLA_LEARNER_CUDA_SUM_TREE_H_

#include <cstdint>

#include "learner/cuda/block.h"
#include "learner/kernels/draws.h"
#include "learner/kernels/sum_node.h"

namespace flotilla {

// The sum tree of a replay (replay/sum_tree.h): after the same changes it is the host's
// to the bit, but for what exp and log round. Pointers are the device's.

// Gives n leaves, no two of them alike, the weight that is meant.
struct MarkLeavesArgs {
  enum Mark { kNothing, kLargest, kAsBefore };

  int64_t leaves = 0;               // L
  SumNode* nodes = nullptr;         // [2 L]
  const double* largest = nullptr;  // [1]
  int64_t count = 0;                // n
  const int32_t* leaf = nullptr;    // [n]
  const int32_t* mark = nullptr;    // [n]
};

// The weights of n leaves are those of their errors; of one that comes twice, the
// last. Raises `largest` to the largest.
struct SetErrorsArgs {
  int64_t leaves = 0;             // L
  SumNode* nodes = nullptr;       // [2 L]
  double* largest = nullptr;      // [1]
  int64_t count = 0;              // n
  const int32_t* leaf = nullptr;  // [n]
  const float* error = nullptr;   // [n]
  double alpha = 0;
  double* weight = nullptr;  // [n]
};

// Draws n leaves in proportion to their weights, one place of a stream each.
struct FindLeavesArgs {
  int64_t leaves = 0;              // L
  const SumNode* nodes = nullptr;  // [2 L]
  uint64_t seed = 0;               // draws.h
  uint64_t place = 0;
  double beta = 0;
  int64_t count = 0;            // n
  int32_t* leaf = nullptr;      // [n]
  float* importance = nullptr;  // [n]
};

namespace {

// Adds up anew what is above n leaves, from the leaves up. For one block.
FLOTILLA_INLINE void AddUp(const Block& block, SumNode* nodes, int64_t leaves,
                           const int32_t* leaf, int64_t n) {
  for (int level = 1; leaves >> level > 0; ++level) {
    const int64_t width = leaves >> level;
    const bool all = width <= n;
    block.Each(all ? width : n, [&](int64_t i) {
      // Where two leaves are below one node, two threads write the same to it.
      const int64_t node = all ? width + i : (leaves + leaf[i]) >> level;
      nodes[node] = NodeOver(nodes[2 * node], nodes[2 * node + 1]);
    });
  }
}

struct MarkLeavesKernel {
  MarkLeavesArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    block.Each(a.count, [&](int64_t i) {
      if (a.mark[i] == MarkLeavesArgs::kAsBefore) return;
      const bool largest = a.mark[i] == MarkLeavesArgs::kLargest;
      a.nodes[a.leaves + a.leaf[i]] = NodeOf(largest ? *a.largest : 0);
    });
    AddUp(block, a.nodes, a.leaves, a.leaf, a.count);
  }
};

template <typename Run>
void RunKernels(const MarkLeavesArgs& args, Run run) {
  run(MarkLeavesKernel{args}, 1);
}

struct SetErrorsKernel {
  SetErrorsArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    block.Each(a.count,
               [&](int64_t i) { a.weight[i] = WeightOf(a.error[i], a.alpha); });
    block.Each(a.count, [&](int64_t i) {
      if (IsLast(i)) a.nodes[a.leaves + a.leaf[i]] = NodeOf(a.weight[i]);
    });
    block.Once([&] {
      double largest = *a.largest;
      for (int64_t i = 0; i < a.count; ++i) {
        if (a.weight[i] > largest) largest = a.weight[i];
      }
      *a.largest = largest;
    });
    AddUp(block, a.nodes, a.leaves, a.leaf, a.count);
  }

 private:
  // As where they are set one by one.
  FLOTILLA_INLINE bool IsLast(int64_t i) const {
    for (int64_t j = i + 1; j < a.count; ++j) {
      if (a.leaf[j] == a.leaf[i]) return false;
    }
    return true;
  }
};

template <typename Run>
void RunKernels(const SetErrorsArgs& args, Run run) {
  run(SetErrorsKernel{args}, 1);
}

struct FindLeavesKernel {
  FindLeavesArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    const SumNode root = a.nodes[1];
    block.Each(a.count, [&](int64_t i) {
      const double u = UniformAt(a.seed, a.place + static_cast<uint64_t>(i));
      const int64_t leaf = FindLeaf(a.nodes, a.leaves, Rounded(u, root.sum));
      a.leaf[i] = static_cast<int32_t>(leaf);
      a.importance[i] =
          ImportanceOf(root.least, a.nodes[a.leaves + leaf].sum, a.beta);
    });
  }

 private:
  // The product, never a part of a fused one, which rounds otherwise.
  FLOTILLA_INLINE static double Rounded(double u, double sum) {
#ifdef __CUDA_ARCH__
    return __dmul_rn(u, sum);
#else
    const volatile double product = u * sum;
    return product;
#endif
  }
};

template <typename Run>
void RunKernels(const FindLeavesArgs& args, Run run) {
  run(FindLeavesKernel{args}, BlocksFor(args.count));
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CUDA_SUM_TREE_H_
