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

void SumTree::FindEach(std::span<double> at, int64_t* leaf) const {
  constexpr size_t kTogether = 16;
  while (!at.empty()) {
    const std::span<double> some = at.first(std::min(kTogether, at.size()));
    std::fill_n(leaf, some.size(), int64_t{1});
    for (int64_t level = 1; level < leaves_; level *= 2) {
      for (size_t i = 0; i < some.size(); ++i) {
        GoDown(nodes_.data(), &leaf[i], &some[i]);
      }
    }
    for (size_t i = 0; i < some.size(); ++i) *leaf++ -= leaves_;
    at = at.subspan(some.size());
  }
}

}  // namespace flotilla
