#include "learner/replay/sum_tree.h"

#include <algorithm>
#include <bit>

namespace flotilla {

SumTree::SumTree(int64_t leaves)
    : leaves_(
          std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, leaves)))),
      nodes_(2 * leaves_) {}

void SumTree::Set(int64_t leaf, double weight) {
  int64_t i = leaves_ + leaf;
  nodes_[i] = NodeOf(weight);
  for (i /= 2; i > 0; i /= 2) {
    nodes_[i] = NodeOver(nodes_[2 * i], nodes_[2 * i + 1]);
  }
}

}  // namespace flotilla
