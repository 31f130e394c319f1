#include "services/base/nearest_name.h"

#include "gtest/gtest.h"

namespace flotilla {
namespace {

const std::vector<std::string> kNames = {"epochs", "minibatches", "discount",
                                         "CartPole-v1", "--nproc-per-node"};

TEST(NearestNameTest, FindsAFewEdits) {
  EXPECT_EQ(NearestName("epoch", kNames), "epochs");
  EXPECT_EQ(NearestName("ecpohs", kNames), "epochs");
  EXPECT_EQ(NearestName("mini_batches", kNames), "minibatches");
}

TEST(NearestNameTest, CaseAndHyphensCostNothing) {
  EXPECT_EQ(NearestName("cartpole_V1", kNames), "CartPole-v1");
  EXPECT_EQ(NearestName("--nproc_per_node", kNames), "--nproc-per-node");
}

TEST(NearestNameTest, FindsTheOnlyNameThatContainsIt) {
  EXPECT_EQ(NearestName("cartpole", kNames), "CartPole-v1");
  EXPECT_EQ(NearestName("nproc", kNames), "--nproc-per-node");
}

TEST(NearestNameTest, WordsSayMoreThanLetters) {
  const std::vector<std::string> paths = {
      "optimizer.type", "optimizer.learning_rate", "total_env_steps"};
  EXPECT_EQ(NearestName("optimizer.lr", paths), "optimizer.learning_rate");
  EXPECT_EQ(NearestName("total_steps", paths), "total_env_steps");
  EXPECT_EQ(NearestName("optimizer.typ", paths), "optimizer.type");
  EXPECT_EQ(NearestName("_", paths), "");
}

TEST(NearestNameTest, SaysNothingRatherThanGuess) {
  EXPECT_EQ(NearestName("zebra", kNames), "");
  EXPECT_EQ(NearestName("", kNames), "");
  EXPECT_EQ(NearestName("x", {}), "");
}

TEST(NearestNameTest, ANameOfAMegabyteIsNearNothing) {
  EXPECT_EQ(NearestName(std::string(1 << 20, 'x'), kNames), "");
}

TEST(NearestNameTest, DidYouMeanIsAClause) {
  EXPECT_EQ(DidYouMean("epoch", kNames), "; did you mean \"epochs\"?");
  EXPECT_EQ(DidYouMean("zebra", kNames), "");
}

}  // namespace
}  // namespace flotilla
