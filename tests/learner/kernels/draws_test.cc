#include "learner/kernels/draws.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace flotilla {
namespace {

// From the authors' splitmix64.c, seed 0.
TEST(DrawsTest, BitsAreSplitmix64) {
  Draws draws(0);
  for (const uint64_t want :
       {UINT64_C(0xe220a8397b1dcdaf), UINT64_C(0x6e789e6aa1b965f4),
        UINT64_C(0x06c45d188009454f), UINT64_C(0xf88bb8a8724c81ec)}) {
    EXPECT_EQ(draws.Bits(), want);
  }
}

TEST(DrawsTest, EachNumberTakesOnePlaceAndCanBeDrawnByIt) {
  Draws draws(7);
  EXPECT_EQ(draws.Uniform(), UniformAt(7, 0));
  EXPECT_EQ(draws.Normal(), NormalAt(7, 1));
  draws.Skip(10);
  EXPECT_EQ(draws.place(), 12u);
  EXPECT_EQ(draws.Bits(), BitsAt(7, 12));
}

TEST(DrawsTest, UniformCoversTheUnitIntervalEvenly) {
  constexpr int kDraws = 100'000;
  Draws draws(1);
  std::vector<int> bins(10);
  for (int i = 0; i < kDraws; ++i) {
    const double x = draws.Uniform();
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    ++bins[static_cast<int>(x * 10)];
  }
  for (const int count : bins) EXPECT_NEAR(count, kDraws / 10, 500);
}

TEST(DrawsTest, NormalHasTheMomentsAndTailsOfOne) {
  constexpr int kDraws = 200'000;
  Draws draws(5);
  double sum = 0, squares = 0, fourths = 0;
  int beyond_two = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = draws.Normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
    beyond_two += std::abs(x) > 2;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1, 0.02);
  EXPECT_NEAR(fourths / kDraws, 3, 0.1);
  EXPECT_NEAR(beyond_two / double{kDraws}, 0.0455, 0.003);
}

}  // namespace
}  // namespace flotilla
