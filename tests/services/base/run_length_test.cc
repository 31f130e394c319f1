#include "services/base/run_length.h"

#include "gtest/gtest.h"

namespace flotilla {
namespace {

TEST(RunLengthTest, StepsCountUnlessUpdatesDo) {
  v1::RunConfig config;
  config.set_total_env_steps(1000);
  EXPECT_EQ(ShareDone(config, 99, 0), 0);
  EXPECT_EQ(ShareDone(config, 0, 250), 0.25);
  EXPECT_EQ(ShareDone(config, 0, 1000), 1);
  EXPECT_EQ(ShareDone(config, 0, 1001), 1);
  config.clear_total_env_steps();
  config.set_total_updates(3);
  EXPECT_EQ(ShareDone(config, 0, 1 << 30), 0);
  EXPECT_LT(ShareDone(config, 2, 0), 1);
  EXPECT_EQ(ShareDone(config, 3, 0), 1);
  EXPECT_EQ(ShareDone(config, 4, 0), 1);
}

}  // namespace
}  // namespace flotilla
