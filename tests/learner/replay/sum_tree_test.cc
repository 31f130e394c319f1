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

TEST(SumTreeTest, FindsEachAsAlone) {
  Random rng(3);
  for (int64_t leaves : {1, 5, 1000}) {
    SumTree tree(leaves);
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      // Also nothing, and what rounds.
      if (leaf == 0 || rng.Below(3) > 0) tree.Set(leaf, rng.Uniform());
    }
    for (int64_t n : {0, 1, 15, 16, 33, 500}) {
      std::vector<double> at(n);
      std::vector<int64_t> found(n, -1), want(n);
      for (double& one : at) one = rng.Uniform() * tree.total();
      if (n > 0) at.back() = tree.total();
      for (int64_t i = 0; i < n; ++i) want[i] = tree.Find(at[i]);
      tree.FindEach(at, found.data());
      EXPECT_EQ(found, want);
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
