#include "services/base/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::ElementsAre;

TEST(CoresTest, PinningHoldsForWhatIsStartedLaterUntilItIsUndoneThere) {
  const std::vector<int> all = UsableCores();
  ASSERT_FALSE(all.empty());
  EXPECT_FALSE(IsPinned());
  EXPECT_FALSE(PinTo({}));
  EXPECT_FALSE(IsPinned());
  ASSERT_TRUE(PinTo({all.back()}));
  EXPECT_TRUE(IsPinned());
  EXPECT_THAT(UsableCores(), ElementsAre(all.back()));
  std::thread([&] {
    EXPECT_THAT(UsableCores(), ElementsAre(all.back()));
    Unpin();
    EXPECT_EQ(UsableCores(), all);
  }).join();
  EXPECT_THAT(UsableCores(), ElementsAre(all.back()));
  ASSERT_TRUE(PinTo({all.front()}));
  Unpin();
  EXPECT_EQ(UsableCores(), all);
}

class CpuQuotaTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<double> Quota() { return CpuQuota(root_.path()); }

  TempDir root_;
};

TEST_F(CpuQuotaTest, IsTheLeastOfTheCgroupsAround) {
  EXPECT_EQ(Quota(), std::nullopt);
  Write("/proc/self/cgroup", "0::/pod/learner\n");
  EXPECT_EQ(Quota(), std::nullopt);
  Write("/sys/fs/cgroup/pod/learner/cpu.max", "max 100000\n");
  EXPECT_EQ(Quota(), std::nullopt);
  Write("/sys/fs/cgroup/pod/cpu.max", "400000 100000\n");
  EXPECT_EQ(Quota(), 4.0);
  Write("/sys/fs/cgroup/pod/learner/cpu.max", "75000 50000\n");
  EXPECT_EQ(Quota(), 1.5);
  // A container sees its own as the root.
  Write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(Quota(), 0.5);
}

TEST_F(CpuQuotaTest, OldCgroupsCountToo) {
  Write("/proc/self/cgroup", "5:memory:/m\n3:cpu,cpuacct:/a/b\n");
  Write("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), std::nullopt);
  Write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000\n");
  Write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), 3.0);
}

TEST_F(CpuQuotaTest, WhatIsNoQuotaIsNone) {
  Write("/proc/self/cgroup", "0::/\n");
  for (const char* text :
       {"", "max", "0 100000", "100000", "1 0", "-5 10", "a b", "1 2 3"}) {
    Write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(Quota(), std::nullopt) << text;
  }
}

TEST(CoresToFillTest, IsAPartOfTheCoresAndWhatHasBegunOfAQuota) {
  struct Case {
    int cores, sharers;
    std::optional<double> quota;
    int filled;
  };
  for (const Case& c : {Case{64, 1, std::nullopt, 64},
                        {64, 3, std::nullopt, 21},
                        {2, 4, std::nullopt, 1},
                        {64, 1, 2.0, 2},
                        {64, 1, 1.5, 2},
                        {64, 1, 0.25, 1},
                        {64, 2, 8.0, 4},
                        {64, 4, 2.0, 1},
                        {4, 1, 8.0, 4},
                        {4, 3, 4.0, 1},
                        {4, 0, std::nullopt, 4}}) {
    EXPECT_EQ(CoresToFill(c.cores, c.sharers, c.quota), c.filled)
        << c.cores << " " << c.sharers << " " << c.quota.value_or(-1);
  }
}

}  // namespace
}  // namespace flotilla
