#include "learner/replay/sum_tree.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace flotilla {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

SumTree::SumTree(int64_t leaves)
    : leaves_(
          std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, leaves)))),
      nodes_(2 * leaves_, Node{0, kInfinity}) {}

void SumTree::Set(int64_t leaf, double weight) {
  int64_t i = leaves_ + leaf;
  nodes_[i] = {weight, weight > 0 ? weight : kInfinity};
  for (i /= 2; i > 0; i /= 2) {
    const Node &left = nodes_[2 * i], &right = nodes_[2 * i + 1];
    nodes_[i] = {left.sum + right.sum, std::min(left.least, right.least)};
  }
}

int64_t SumTree::Find(double at) const {
  int64_t i = 1;
  while (i < leaves_) {
    const double left = nodes_[2 * i].sum;
    // Rounding must not lead into a part that weighs nothing.
    const bool go_left = at < left ? true : nodes_[2 * i + 1].sum == 0;
    if (!go_left) at -= left;
    i = 2 * i + !go_left;
  }
  return i - leaves_;
}

}  // namespace flotilla
