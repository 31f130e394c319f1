#include "launcher/train_flags.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TrainFlagsTest, TorchrunsFlagsAreTaken) {
  TrainFlags flags;
  CommandLine line = TrainLine(&flags);
  const auto rest = line.Parse({"cartpole_ppo", "--nproc_per_node=2",
                                "--max_restarts=1", "--rdzv_endpoint=n01:29400",
                                "--rdzv-backend", "c10d", "--rdzv_id=7"});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_THAT(*rest, ElementsAre("cartpole_ppo"));
  EXPECT_EQ(flags.topology.nproc_per_node, "2");
  EXPECT_EQ(flags.topology.rdzv_endpoint, "n01:29400");
  EXPECT_EQ(flags.max_restarts, 1);
}

TEST(TrainFlagsTest, CleanRlsFlagsAreTaken) {
  TrainFlags flags;
  CommandLine line = TrainLine(&flags);
  const auto rest = line.Parse({"cartpole_ppo", "--total-timesteps", "1000",
                                "--env-id", "Maze", "--learning-rate=1e-3"});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_THAT(flags.overrides,
              ElementsAre("total_env_steps=1000", "env.id=Maze",
                          "optimizer.learning_rate=1e-3"));
}

TEST(TrainFlagsTest, HelpSaysWhatAResumeBegins) {
  TrainFlags flags;
  EXPECT_THAT(
      TrainLine(&flags).Help(),
      HasSubstr("with CONFIG, a folder without a run begins a new one"));
}

}  // namespace
}  // namespace flotilla
