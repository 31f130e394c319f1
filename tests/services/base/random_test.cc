#include "services/base/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

namespace flotilla {
namespace {

using ::testing::ElementsAre;

// From the authors' splitmix64.c, seed 0.
TEST(RandomTest, SeedFillsTheStateWithSplitmix64) {
  EXPECT_THAT(Random(0).state(),
              ElementsAre(0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4,
                          0x06c45d188009454f, 0xf88bb8a8724c81ec));
}

// From the authors' xoshiro256plusplus.c, state {1, 2, 3, 4}.
TEST(RandomTest, DrawsAreXoshiro256PlusPlus) {
  Random random(0);
  random.set_state({1, 2, 3, 4});
  for (uint64_t want :
       {UINT64_C(41943041), UINT64_C(58720359), UINT64_C(3588806011781223),
        UINT64_C(3591011842654386), UINT64_C(9228616714210784205),
        UINT64_C(9973669472204895162)}) {
    EXPECT_EQ(random.Next(), want);
  }
}

TEST(RandomTest, StateIsEverythingLaterDrawsDependOn) {
  Random first(7);
  first.Normal();
  Random second(8);
  second.set_state(first.state());
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(first.Normal(), second.Normal());
    EXPECT_EQ(first.Uniform(), second.Uniform());
    EXPECT_EQ(first.Below(17), second.Below(17));
  }
}

TEST(RandomTest, UniformCoversTheUnitIntervalEvenly) {
  constexpr int kDraws = 100'000;
  Random random(1);
  std::vector<int> bins(10);
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.Uniform();
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    ++bins[static_cast<int>(x * 10)];
  }
  for (int count : bins) EXPECT_NEAR(count, kDraws / 10, 500);
}

TEST(RandomTest, UniformOfARangeStaysInIt) {
  Random random(2);
  for (int i = 0; i < 1000; ++i) {
    const double x = random.Uniform(-0.05, 0.05);
    EXPECT_GE(x, -0.05);
    EXPECT_LE(x, 0.05);
  }
}

TEST(RandomTest, BelowIsEvenOverEveryValue) {
  constexpr int kDraws = 70'000;
  Random random(3);
  std::vector<int> counts(7);
  for (int i = 0; i < kDraws; ++i) ++counts.at(random.Below(7));
  for (int count : counts) EXPECT_NEAR(count, kDraws / 7, 500);
  EXPECT_EQ(random.Below(1), 0u);
}

// 2/3 of 2^64: without rejection the lower half would come twice as often.
TEST(RandomTest, BelowRejectsWhatWouldBiasIt) {
  constexpr uint64_t kN = UINT64_C(0xaaaaaaaaaaaaaaaa);
  constexpr int kDraws = 30'000;
  Random random(4);
  int low = 0;
  for (int i = 0; i < kDraws; ++i) low += random.Below(kN) < kN / 2;
  EXPECT_NEAR(low, kDraws / 2, 600);
}

TEST(RandomTest, NormalHasMeanZeroVarianceOneAndTails) {
  constexpr int kDraws = 200'000;
  Random random(5);
  double sum = 0, squares = 0;
  int beyond_two = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.Normal();
    sum += x;
    squares += x * x;
    beyond_two += std::abs(x) > 2;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1, 0.02);
  EXPECT_NEAR(beyond_two / double{kDraws}, 0.0455, 0.003);
}

// Recorded: a change here changes what every run's seed means.
TEST(HashSeedTest, NeverChangesBetweenReleases) {
  EXPECT_EQ(HashSeed({}), 0u);
  EXPECT_EQ(HashSeed({0}), UINT64_C(0x910a2dec89025cc1));  // splitmix64(1)
  EXPECT_EQ(EpisodeSeed(1, 2, 3, 4, 5), UINT64_C(0x565aca5474eb19c7));
  EXPECT_EQ(SamplingSeed(1, 2, 3), UINT64_C(0x6f75db67bb277b40));
}

TEST(HashSeedTest, OrderAndLengthCount) {
  EXPECT_NE(HashSeed({1, 2}), HashSeed({2, 1}));
  EXPECT_NE(HashSeed({0}), HashSeed({0, 0}));
  EXPECT_NE(HashSeed({1}), HashSeed({1, 0}));
}

TEST(HashSeedTest, EpisodeAndSamplingSeedsDoNotMeet) {
  std::set<uint64_t> seeds;
  size_t count = 0;
  for (uint64_t worker = 0; worker < 8; ++worker) {
    for (uint64_t row = 0; row < 16; ++row) {
      for (uint64_t incarnation = 0; incarnation < 3; ++incarnation) {
        for (uint64_t episode = 0; episode < 10; ++episode, ++count) {
          seeds.insert(EpisodeSeed(0, worker, row, incarnation, episode));
        }
      }
    }
  }
  for (uint64_t rank = 0; rank < 8; ++rank) {
    for (uint64_t update = 0; update < 100; ++update, ++count) {
      seeds.insert(SamplingSeed(0, rank, update));
    }
  }
  EXPECT_EQ(seeds.size(), count);
}

}  // namespace
}  // namespace flotilla
