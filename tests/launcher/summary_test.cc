#include "launcher/summary.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

using ::testing::HasSubstr;

v1::RunSummary Solved() {
  v1::RunSummary summary;
  summary.set_status(v1::RunSummary::SOLVED);
  summary.set_env_id("CartPole-v1");
  summary.set_algorithm("ppo");
  summary.set_world_size(2);
  summary.set_global_steps(212992);
  summary.set_updates(52);
  summary.set_episodes(1234);
  summary.set_mean_return(441.5);
  summary.set_mean_return_episodes(100);
  summary.set_eval_mean_return(487.25);
  summary.set_wall_seconds(35.21);
  summary.set_steps_per_second(6050.3);
  summary.mutable_restarts()->set_learner(1);
  summary.add_parameters_sha256("abcdef0123456789");
  summary.add_parameters_sha256("abcdef0123456789");
  return summary;
}

TEST(SummaryTest, TellsTheResult) {
  EXPECT_EQ(DescribeSummary(Solved()),
            "solved: ppo on CartPole-v1\n"
            "  evaluation return 487.2\n"
            "  training return 441.5 (last 100 of 1,234 episodes)\n"
            "  212,992 steps, 52 updates, 35.2 s, 6,050 steps/s, world of 2\n"
            "  restarts: 1 learner, 0 env workers\n"
            "  parameters equal on all 2 ranks (sha256 abcdef012345)\n");
}

TEST(SummaryTest, SaysWhenRanksDiffer) {
  v1::RunSummary summary = Solved();
  summary.set_parameters_sha256(1, "b");
  EXPECT_THAT(DescribeSummary(summary),
              HasSubstr("parameters DIFFER between the 2 ranks"));
}

TEST(SummaryTest, CountsAWindowThatIsNotFullYet) {
  v1::RunSummary summary = Solved();
  summary.set_episodes(1);
  summary.set_mean_return_episodes(1);
  EXPECT_THAT(DescribeSummary(summary),
              HasSubstr("training return 441.5 (1 episode)\n"));
}

TEST(SummaryTest, LeavesOutWhatThereIsNot) {
  v1::RunSummary summary;
  summary.set_status(v1::RunSummary::STOPPED);
  summary.set_algorithm("ppo");
  summary.set_env_id("Maze");
  EXPECT_EQ(DescribeSummary(summary), "stopped: ppo on Maze\n");
  summary.set_episodes(0);
  summary.set_updates(0);
  summary.set_error("why");
  EXPECT_EQ(DescribeSummary(summary),
            "stopped: ppo on Maze\n  0 updates\n  error: why\n");
}

}  // namespace
}  // namespace flotilla
