#include "launcher/statistics.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::SizeIs;

// scipy.stats.trim_mean(values, 0.25) gives the same.
TEST(StatisticsTest, TheInterquartileMeanLeavesTheOuterQuartersOut) {
  EXPECT_EQ(AggregateOf({100, 2, 3, 4, 5, 6, 7, 1}, Aggregate::kIqm), 4.5);
  EXPECT_EQ(AggregateOf({9, 1, 2, 3, -50}, Aggregate::kIqm), 2);
  EXPECT_EQ(AggregateOf({1, 2, 9}, Aggregate::kIqm), 4);  // no quarter is whole
  EXPECT_EQ(AggregateOf({1, 2, 9}, Aggregate::kMean), 4);
  EXPECT_EQ(AggregateOf({7}, Aggregate::kIqm), 7);
}

TEST(StatisticsTest, ResamplesAreOfAllRunsAndTheSameEachTime) {
  const auto resamples = Resamples(3, 500);
  ASSERT_THAT(resamples, SizeIs(500));
  EXPECT_THAT(resamples, Each(SizeIs(3)));
  EXPECT_EQ(resamples, Resamples(3, 500));
  int counts[3] = {};
  for (const auto& resample : resamples) {
    for (size_t run : resample) ++counts[run];
  }
  for (int count : counts) EXPECT_NEAR(count, 500, 75);  // 4 deviations
}

// How often it holds the mean of normal values, which `flotilla plot` tells of few.
TEST(StatisticsTest, TheIntervalOfFewRunsIsTooNarrow) {
  Random random(2);
  const std::pair<size_t, double> coverage[] = {{3, 0.75}, {10, 0.90}};
  for (const auto& [runs, expected] : coverage) {
    constexpr int kRepetitions = 2000;
    const auto resamples = Resamples(runs, 2000);  // as `plot` draws
    int held = 0;
    for (int i = 0; i < kRepetitions; ++i) {
      std::vector<double> values(runs);
      for (double& value : values) value = random.Normal();
      const Interval interval =
          BootstrapInterval(values, Aggregate::kMean, resamples);
      held += interval.low <= 0 && 0 <= interval.high;
    }
    EXPECT_NEAR(held / static_cast<double>(kRepetitions), expected, 0.04)
        << runs;
  }
}

TEST(StatisticsTest, TheIntervalIsThatOfAMean) {
  Random random(1);
  std::vector<double> values;
  for (int i = 0; i < 400; ++i) values.push_back(3 + random.Normal());
  const double mean = AggregateOf(values, Aggregate::kMean);
  const Interval interval = BootstrapInterval(values, Aggregate::kMean,
                                              Resamples(values.size(), 2000));
  const double half = 1.96 / std::sqrt(400);
  EXPECT_THAT(interval.low, DoubleNear(mean - half, 0.02));
  EXPECT_THAT(interval.high, DoubleNear(mean + half, 0.02));
}

TEST(StatisticsTest, OneRunIsItsOwnInterval) {
  const Interval interval =
      BootstrapInterval({5}, Aggregate::kMean, Resamples(1, 10));
  EXPECT_EQ(interval.low, 5);
  EXPECT_EQ(interval.high, 5);
}

TEST(StatisticsTest, AnOutlierMovesTheIqmsIntervalLess) {
  std::vector<double> values(20, 10);
  values[3] = 1000;
  const auto resamples = Resamples(values.size(), 1000);
  EXPECT_EQ(BootstrapInterval(values, Aggregate::kIqm, resamples).high, 10);
  EXPECT_GT(BootstrapInterval(values, Aggregate::kMean, resamples).high, 100);
}

}  // namespace
}  // namespace flotilla
