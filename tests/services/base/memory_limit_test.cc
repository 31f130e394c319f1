#include "services/base/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::HasSubstr;

class MemoryLimitTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  int64_t Limit() { return MemoryLimitBytes(root_.path()); }

  TempDir root_;
};

TEST_F(MemoryLimitTest, IsTheHostsMemoryWithoutACgroup) {
  EXPECT_EQ(Limit(), 0);
  Write("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:    10 kB\n");
  EXPECT_EQ(Limit(), 1024000);
  Write("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(Limit(), 1024000);
}

TEST_F(MemoryLimitTest, IsTheLeastOfTheCgroupsAround) {
  Write("/proc/meminfo", "MemTotal:       1000 kB\n");
  Write("/proc/self/cgroup", "0::/job/step\n");
  Write("/sys/fs/cgroup/job/memory.max", "5000\n");
  Write("/sys/fs/cgroup/job/step/memory.max", "max\n");
  EXPECT_EQ(Limit(), 5000);
  Write("/sys/fs/cgroup/job/step/memory.max", "4000\n");
  EXPECT_EQ(Limit(), 4000);
  Write("/sys/fs/cgroup/job/step/memory.max", "9000000000000\n");
  EXPECT_EQ(Limit(), 5000);
  // A container sees its own as the root.
  Write("/sys/fs/cgroup/memory.max", "3000\n");
  EXPECT_EQ(Limit(), 3000);
}

TEST_F(MemoryLimitTest, OldCgroupsCountToo) {
  Write("/proc/meminfo", "MemTotal:       1000 kB\n");
  Write("/proc/self/cgroup", "5:cpu:/a\n4:memory:/a/b\n");
  Write("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
        "9223372036854771712\n");
  EXPECT_EQ(Limit(), 1024000);
  Write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "7000\n");
  EXPECT_EQ(Limit(), 7000);
}

TEST_F(MemoryLimitTest, BudgetIsHalfSharedByTheLearnersUnlessSet) {
  v1::RuntimeConfig config;
  EXPECT_EQ(MemoryBudgetOf(config, 4, 8000).bytes, 1000);
  EXPECT_THAT(MemoryBudgetOf(config, 4, 8000).origin,
              HasSubstr("half of the 8.0 kB that this host or cgroup has, by 4 "
                        "learners"));
  EXPECT_TRUE(std::isinf(MemoryBudgetOf(config, 1, 0).bytes));
  config.set_memory_budget_bytes(123);
  EXPECT_EQ(MemoryBudgetOf(config, 4, 8000).bytes, 123);
  EXPECT_EQ(MemoryBudgetOf(config, 4, 8000).origin,
            "runtime.memory_budget_bytes");
}

TEST(FormatBytesTest, HasOneDecimalAndAUnit) {
  EXPECT_EQ(FormatBytes(999), "999 bytes");
  EXPECT_EQ(FormatBytes(1500), "1.5 kB");
  EXPECT_EQ(FormatBytes(2.25e15), "2.2 PB");
  EXPECT_EQ(FormatBytes(1e30), "1000000000000.0 EB");
}

}  // namespace
}  // namespace flotilla
