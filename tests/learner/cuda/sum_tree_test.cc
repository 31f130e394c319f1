// flotilla::find_leaves, mark_leaves and set_leaf_errors: to the bit what the host's
// SumTree does, one leaf after the other, but for what exp and log round on a GPU.

#include "learner/replay/sum_tree.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "learner/cuda/operators.h"
#include "learner/cuda/sum_tree.h"
#include "learner/kernels/draws.h"
#include "tests/learner/cuda/on_gpu.h"

namespace flotilla {
namespace {

constexpr double kAlpha = 0.6, kBeta = 0.4;

// Both, and the largest weight so far.
class Twins {
 public:
  explicit Twins(int64_t leaves) : leaves_(leaves), host_(leaves) {
    const auto numbers = static_cast<int64_t>(2 * host_.nodes().size());
    tree_.nodes = torch::empty({numbers / 2, 2}, torch::kFloat64);
    std::memcpy(tree_.nodes.data_ptr(), host_.nodes().data(),
                tree_.nodes.nbytes());
    tree_.largest = torch::ones({1}, torch::kFloat64);
  }

  void Mark(const std::map<int32_t, int32_t>& marks) {
    std::vector<int32_t> leaf, mark;
    for (const auto& [l, m] : marks) {
      leaf.push_back(l);
      mark.push_back(m);
      if (m == MarkLeavesArgs::kAsBefore) continue;
      host_.Set(l, m == MarkLeavesArgs::kLargest ? largest_ : 0);
    }
    MarkLeaves(tree_, torch::tensor(leaf, torch::kInt32),
               torch::tensor(mark, torch::kInt32));
  }

  void SetErrors(const std::vector<int32_t>& leaf,
                 const std::vector<float>& error) {
    for (size_t i = 0; i < leaf.size(); ++i) {
      const double weight = WeightOf(error[i], kAlpha);
      largest_ = std::max(largest_, weight);
      host_.Set(leaf[i], weight);
    }
    SetLeafErrors(tree_, torch::tensor(leaf, torch::kInt32),
                  torch::tensor(error), kAlpha);
  }

  // Returns what was drawn.
  std::vector<int32_t> ExpectTheSame(Draws* draws, int64_t n) {
    // Of a weight, by an exp of a log, and of sums of thousands.
    const double apart = KernelsOnGpu() ? 1e-13 : 0;
    const torch::Tensor nodes =
        torch::from_blob(const_cast<SumNode*>(host_.nodes().data()),
                         tree_.nodes.sizes(), torch::kFloat64);
    EXPECT_TRUE(torch::allclose(tree_.nodes, nodes, apart, 0));
    EXPECT_NEAR(tree_.largest.item<double>(), largest_, apart * largest_);
    std::vector<int32_t> drawn;
    if (host_.total() == 0) return drawn;
    const FoundLeaves found =
        FindLeaves(tree_, draws->seed(), draws->place(), kBeta, n);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t leaf = host_.Find(draws->Uniform() * host_.total());
      EXPECT_LT(leaf, leaves_);
      EXPECT_EQ(found.leaf[i].item<int32_t>(), leaf);
      const float importance =
          ImportanceOf(host_.least(), host_.Get(leaf), kBeta);
      EXPECT_NEAR(found.importance[i].item<float>(), importance,
                  KernelsOnGpu() ? 1e-6 * importance : 0);
      drawn.push_back(static_cast<int32_t>(leaf));
    }
    return drawn;
  }

 private:
  const int64_t leaves_;
  SumTree host_;
  double largest_ = 1;
  SumTreeTensors tree_;
};

// Leaves come and go as in a replay, more at once than a block has threads, and errors
// are of what was drawn, with replacement.
TEST(SumTreeOperatorsTest, AreTheHostsTreeToTheBit) {
  for (const int64_t leaves : {1, 2, 3, 64, 1000, 5000}) {
    SCOPED_TRACE(leaves);
    Twins twins(leaves);
    Draws draws(leaves), chance(3);
    const auto below = [&](int64_t n) {
      return static_cast<int32_t>(chance.Uniform() * static_cast<double>(n));
    };
    twins.ExpectTheSame(&draws, 1);
    for (int round = 0; round < 20; ++round) {
      std::map<int32_t, int32_t> marks;
      const int64_t most =
          round % 5 == 4 ? leaves : std::min<int64_t>(leaves, 9);
      for (int64_t i = 0; i < most; ++i) marks[below(leaves)] = below(3);
      // A round in which all goes.
      if (round == 10) {
        for (int32_t l = 0; l < leaves; ++l)
          marks[l] = MarkLeavesArgs::kNothing;
      }
      twins.Mark(marks);
      const std::vector<int32_t> drawn =
          twins.ExpectTheSame(&draws, round % 2 == 0 ? 40 : 300);
      std::vector<float> errors;
      for (size_t i = 0; i < drawn.size(); ++i) {
        // Some are 0, some are large.
        errors.push_back(i % 7 == 0 ? 0.0f
                                    : static_cast<float>(9 * chance.Normal()));
      }
      if (!drawn.empty()) twins.SetErrors(drawn, errors);
      twins.ExpectTheSame(&draws, 20);
      if (testing::Test::HasFailure()) FAIL() << "round " << round;
    }
  }
}

TEST(SumTreeOperatorsTest, TheLastErrorOfALeafCounts) {
  Twins twins(700);
  Draws draws(1);
  std::vector<int32_t> leaf;
  std::vector<float> error;
  // The same leaf in one block's first and last round.
  for (int i = 0; i < 600; ++i) {
    leaf.push_back(i % 5);
    error.push_back(static_cast<float>(600 - i));
  }
  twins.SetErrors(leaf, error);
  twins.ExpectTheSame(&draws, 100);
}

TEST(SumTreeOperatorsTest, NameWhatDoesNotFit) {
  const SumTreeTensors tree = {torch::zeros({6, 2}, torch::kFloat64),
                               torch::ones({1}, torch::kFloat64)};
  try {
    FindLeaves(tree, 1, 0, kBeta, 1);
    FAIL() << "it took three leaves";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what_without_backtrace())
                  .find("a tree of nodes [6, 2], want [2 L, 2]"),
              std::string::npos)
        << error.what_without_backtrace();
  }
}

}  // namespace
}  // namespace flotilla
