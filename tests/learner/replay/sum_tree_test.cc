#include "learner/replay/sum_tree.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

TEST(SumTreeTest, FindsWhatALoopOverTheWeightsFinds) {
  for (int64_t n : {1, 2, 7, 64, 100}) {
    SumTree tree(n);
    std::vector<double> weights(n, 0);
    Random rng(n);
    for (int round = 0; round < 200; ++round) {
      const int64_t leaf = rng.Below(n);
      // Small whole numbers: sums are exact in any order.
      weights[leaf] = static_cast<double>(rng.Below(4));
      tree.Set(leaf, weights[leaf]);
      double total = 0, least = INFINITY;
      for (double w : weights) {
        total += w;
        if (w > 0) least = std::min(least, w);
      }
      ASSERT_EQ(tree.total(), total);
      ASSERT_EQ(tree.least(), least);
      ASSERT_EQ(tree.Get(leaf), weights[leaf]);
      if (total == 0) continue;
      const double at = rng.Uniform() * total;
      int64_t want = 0;
      for (double left = at; left >= weights[want]; ++want) {
        left -= weights[want];
      }
      ASSERT_EQ(tree.Find(at), want) << "at " << at << " of " << total;
    }
  }
}

TEST(SumTreeTest, RoundingNeverFindsWhatWeighsNothing) {
  SumTree tree(8);
  tree.Set(2, 0.1);
  tree.Set(5, 1e-17);
  EXPECT_EQ(tree.Find(0), 2);
  EXPECT_EQ(tree.Find(tree.total()), 5);  // one step past the end
  tree.Set(5, 0);
  EXPECT_EQ(tree.Find(tree.total() * (1 + 1e-15)), 2);
}

}  // namespace
}  // namespace flotilla
