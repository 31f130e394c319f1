#ifndef FLOTILLA_LEARNER_REPLAY_SUM_TREE_H_
#define FLOTILLA_LEARNER_REPLAY_SUM_TREE_H_

#include <cstdint>
#include <vector>

namespace flotilla {

// Weights of n leaves with their sum and least positive one, each kept in
// O(log n): draws from a categorical distribution that changes all the time
// (Schaul et al. 2016, appendix B.2.1). Sums are added anew from the leaves up,
// so they do not drift.
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
  int64_t Find(double at) const;

  int64_t bytes() const { return nodes_.size() * sizeof(Node); }

 private:
  struct Node {
    double sum;
    double least;
  };

  int64_t leaves_;           // a power of two
  std::vector<Node> nodes_;  // children of i: 2 i, 2 i + 1; leaves last
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_REPLAY_SUM_TREE_H_
