#ifndef FLOTILLA_LEARNER_KERNELS_SUM_NODE_H_
#define FLOTILLA_LEARNER_KERNELS_SUM_NODE_H_

#include <cmath>
#include <cstdint>

#include "learner/kernels/lane.h"

namespace flotilla {

// A binary tree of the weights of L leaves, L a power of two, as an array [2 L]: the
// children of node i are 2 i and 2 i + 1, the root is node 1, and leaves come last. A
// host and a device do this alike, so that they find the same leaves.
struct alignas(16) SumNode {
  double sum = 0;           // of the weights below
  double least = INFINITY;  // of those above 0; infinite if there is none
};

// A leaf.
FLOTILLA_INLINE SumNode NodeOf(double weight) {
  return {weight, weight > 0 ? weight : static_cast<double>(INFINITY)};
}

FLOTILLA_INLINE SumNode NodeOver(const SumNode& left, const SumNode& right) {
  return {left.sum + right.sum,
          right.least < left.least ? right.least : left.least};
}

// From node `i` to that of its children which holds `at`, which is counted from where the
// node's weights begin. Without a branch, as which way it goes cannot be foretold.
FLOTILLA_INLINE void GoDown(const SumNode* nodes, int64_t* i, double* at) {
  const SumNode* const left = nodes + 2 * *i;
  // Rounding must not lead into a part that weighs nothing.
  const bool right = !((*at < left->sum) | (left[1].sum == 0));
  *at -= static_cast<double>(right) * left->sum;
  *i = 2 * *i + right;
}

// The leaf at `at` in [0, the root's sum) when weights are laid end to end. Its weight
// is above 0, however `at` was rounded, if any is.
FLOTILLA_INLINE int64_t FindLeaf(const SumNode* nodes, int64_t leaves,
                                 double at) {
  int64_t i = 1;
  while (i < leaves) GoDown(nodes, &i, &at);
  return i - leaves;
}

// x ^ y for x above 0, and 1 for x = 1: less of a GPU than pow.
FLOTILLA_INLINE double PowerOf(double x, double y) {
  return std::exp(y * std::log(x));
}

// priority ^ alpha (Schaul et al. 2016, section 3.3, proportional).
FLOTILLA_INLINE double WeightOf(float td_error, double alpha) {
  // Keeps a transition that was learned perfectly within reach.
  constexpr double kLeastPriority = 1e-6;
  return PowerOf(std::abs(static_cast<double>(td_error)) + kLeastPriority,
                 alpha);
}

// The importance weight, 1 at most, of a leaf that is drawn by `weight`.
FLOTILLA_INLINE float ImportanceOf(double least, double weight, double beta) {
  return static_cast<float>(PowerOf(least / weight, beta));
}

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_SUM_NODE_H_
