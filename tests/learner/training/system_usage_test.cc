#include "learner/training/system_usage.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/learner/collective/ranks.h"

namespace flotilla {
namespace {

// A host of 100 ticks a second whose clock, load and GPU are to order.
class SystemUsageTest : public ::testing::Test {
 protected:
  SystemUsage::Means Advance(double seconds, double busy) {
    now_ += seconds;
    ticks_.all += static_cast<int64_t>(100 * seconds);
    ticks_.busy += static_cast<int64_t>(100 * seconds * busy);
    return usage_.Sample();
  }

  double now_ = 1000;
  SystemUsage::CpuTicks ticks_ = {.busy = 5000, .all = 7000};
  double memory_ = 0;
  GpuUse gpu_;
  int gpu_asked_ = 0;
  SystemUsage usage_{
      SystemUsage::Sources{.seconds = [this] { return now_; },
                           .cpu = [this] { return ticks_; },
                           .memory_bytes = [this] { return memory_; },
                           .gpu =
                               [this] {
                                 ++gpu_asked_;
                                 return gpu_;
                               }}};
};

TEST_F(SystemUsageTest, TellsNothingBeforeThereIsAnything) {
  const SystemUsage::Means means = usage_.Sample();
  EXPECT_FALSE(means[SystemUsage::kCpuPercent].has_value());
  EXPECT_FALSE(means[SystemUsage::kGpuPercent].has_value());
  EXPECT_FALSE(means[SystemUsage::kGpuMemoryBytes].has_value());
}

TEST_F(SystemUsageTest, MeansAreOverTwentySeconds) {
  SystemUsage::Means means;
  for (int second = 1; second <= 20; ++second) {
    memory_ = second <= 10 ? 100 : 300;
    gpu_.percent = second <= 10 ? 20 : 60;
    gpu_.memory_bytes = 8;
    means = Advance(1, second <= 10 ? 0.25 : 0.75);
  }
  EXPECT_DOUBLE_EQ(*means[SystemUsage::kCpuPercent], 50);
  EXPECT_DOUBLE_EQ(*means[SystemUsage::kMemoryBytes], 200);
  EXPECT_DOUBLE_EQ(*means[SystemUsage::kGpuPercent], 40);
  EXPECT_DOUBLE_EQ(*means[SystemUsage::kGpuMemoryBytes], 8);
  for (int second = 1; second <= 10; ++second) means = Advance(1, 0.75);
  EXPECT_DOUBLE_EQ(*means[SystemUsage::kCpuPercent], 75);  // the first are old
  EXPECT_DOUBLE_EQ(*means[SystemUsage::kMemoryBytes], 300);
  EXPECT_DOUBLE_EQ(*means[SystemUsage::kGpuPercent], 60);
}

TEST_F(SystemUsageTest, WhatAClocksFirstTicksTellIsToldOnceTheyAreThere) {
  EXPECT_FALSE(Advance(0.001, 1)[SystemUsage::kCpuPercent].has_value());
  EXPECT_FALSE(Advance(0.001, 1)[SystemUsage::kCpuPercent].has_value());
  EXPECT_EQ(Advance(0.01, 1)[SystemUsage::kCpuPercent], 100);
  EXPECT_EQ(Advance(0.01, 0)[SystemUsage::kCpuPercent], 100);  // not asked
  EXPECT_EQ(gpu_asked_, 2);
}

TEST_F(SystemUsageTest, AsksOnceASecondHoweverOftenItIsAsked) {
  for (int i = 0; i < 100; ++i) Advance(0.1, 0.5);
  EXPECT_LE(gpu_asked_, 12);
  EXPECT_GE(gpu_asked_, 9);
}

// An update that takes minutes: what there is, is told.
TEST_F(SystemUsageTest, SamplesFarApartStillTell) {
  memory_ = 7;
  const SystemUsage::Means means = Advance(300, 0.5);
  EXPECT_DOUBLE_EQ(*means[SystemUsage::kCpuPercent], 50);
  EXPECT_DOUBLE_EQ(*means[SystemUsage::kMemoryBytes], 7);
}

// A driver that fails for a while, or has no percentage (MIG).
TEST_F(SystemUsageTest, WhatTheDriverDoesNotTellIsLeftOut) {
  gpu_.memory_bytes = 10;
  SystemUsage::Means means = Advance(1, 0);
  EXPECT_FALSE(means[SystemUsage::kGpuPercent].has_value());
  EXPECT_DOUBLE_EQ(*means[SystemUsage::kGpuMemoryBytes], 10);
  gpu_ = {};
  means = Advance(1, 0);
  EXPECT_DOUBLE_EQ(*means[SystemUsage::kGpuMemoryBytes], 10);
  means = Advance(30, 0);
  EXPECT_FALSE(means[SystemUsage::kGpuMemoryBytes].has_value());
}

// Rank 1 has no GPU.
TEST(UsageOfRanksTest, EveryRanksUseIsNamedAndWhatIsUnknownLeftOut) {
  RunRanks(2, [](const v1::Assignment& assignment,
                 FakeCoordinatorClient* coordinator) {
    const auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                           coordinator, torch::kCPU)
                                .value();
    SystemUsage::Means mine;
    mine[SystemUsage::kCpuPercent] = assignment.rank() == 0 ? 0 : 30;
    if (assignment.rank() == 0) mine[SystemUsage::kGpuPercent] = 80;
    Agreement agreement(assignment.rank(), 2);
    const UsageOfRanks usage(mine, &agreement);
    ASSERT_TRUE(agreement.Reduce(collective.get()).ok());
    std::vector<Metric> line;
    usage.AppendTo(agreement, &line);
    std::map<std::string, double> got;
    for (const Metric& metric : line) got[metric.name] = metric.value;
    EXPECT_EQ(got, (std::map<std::string, double>{
                       {"system/cpu_percent", 15},
                       {"system/cpu_percent/rank_0", 0},
                       {"system/cpu_percent/rank_1", 30},
                       {"system/gpu_percent", 80},
                       {"system/gpu_percent/rank_0", 80}}));
  });
}

TEST(SystemUsageOfThisHostTest, IsPlausible) {
  SystemUsage usage(torch::kCPU);
  const SystemUsage::Means means = usage.Sample();
  ASSERT_TRUE(means[SystemUsage::kMemoryBytes].has_value());
  EXPECT_GT(*means[SystemUsage::kMemoryBytes], 1e6);
  EXPECT_FALSE(means[SystemUsage::kGpuPercent].has_value());
}

}  // namespace
}  // namespace flotilla
