#ifndef FLOTILLA_LEARNER_REPLAY_SUM_TREE_H_
#define FLOTILLA_LEARNER_REPLAY_SUM_TREE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "learner/kernels/sum_node.h"

namespace flotilla {

// Weights of n leaves with their sum and least positive one, each kept in
// O(log n): draws from a categorical distribution that changes all the time
// (Schaul et al. 2016, appendix B.2.1). Sums are added anew from the leaves up,
// so they do not drift. On a device: cuda/sum_tree.h.
//
// Not thread-safe.
class SumTree {
 public:
  // All weights are 0.
  explicit SumTree(int64_t leaves);

  // `weight` is at least 0.
  void Set(int64_t leaf, double weight);
  double Get(int64_t leaf) const { return nodes_[leaves_ + leaf].sum; }

  double total() const { return nodes_[1].sum; }
  // Of the weights above 0; infinite if there is none.
  double least() const { return nodes_[1].least; }

  // The leaf at `at` in [0, total()) when weights are laid end to end. Its
  // weight is above 0, however `at` was rounded. Needs total() > 0.
  int64_t Find(double at) const { return FindLeaf(nodes_.data(), leaves_, at); }
  // Find for each of `at` [n], which is used up, side by side: memory is waited for
  // once a level.
  void FindEach(std::span<double> at, int64_t* leaf) const;

  int64_t bytes() const { return nodes_.size() * sizeof(SumNode); }
  std::span<const SumNode> nodes() const { return nodes_; }

 private:
  int64_t leaves_;  // a power of two
  std::vector<SumNode> nodes_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_REPLAY_SUM_TREE_H_
