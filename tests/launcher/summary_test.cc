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

v1::RunConfig Config() {
  v1::RunConfig config;
  config.mutable_ppo();
  config.set_seed(7);
  return config;
}

TEST(SummarizeFailureTest, SaysWhatTheCoordinatorKnewLast) {
  v1::Status last;
  last.set_world_size(2);
  last.set_update(428);
  last.set_global_step(876544);
  last.set_learner_restarts(3);
  last.set_started_over("no checkpoint");
  const v1::RunSummary summary =
      SummarizeFailure(Config(), std::nullopt, last, "learner 1 died");
  EXPECT_EQ(summary.status(), v1::RunSummary::FAILED);
  EXPECT_EQ(summary.error(), "learner 1 died");
  EXPECT_EQ(summary.updates(), 428);
  EXPECT_EQ(summary.global_steps(), 876544);
  EXPECT_EQ(summary.seed(), 7);
  EXPECT_EQ(DescribeSummary(summary),
            "failed: ppo on CartPole-v1\n"
            "  876,544 steps, 428 updates, world of 2\n"
            "  restarts: 3 learners, 0 env workers\n"
            "  no checkpoint\n"
            "  error: learner 1 died\n");
}

TEST(SummarizeFailureTest, WithoutACoordinatorNothingIsCounted) {
  const v1::RunSummary summary =
      SummarizeFailure(Config(), std::nullopt, std::nullopt, "why");
  EXPECT_EQ(summary.status(), v1::RunSummary::FAILED);
  EXPECT_EQ(summary.algorithm(), "ppo");
  EXPECT_FALSE(summary.has_updates());
}

TEST(SummarizeFailureTest, WhatRankZeroWroteStands) {
  v1::RunSummary written;
  written.set_status(v1::RunSummary::FAILED);
  written.set_updates(430);
  written.set_error("update 430: the loss is not finite");
  v1::Status last;
  last.set_update(428);
  const v1::RunSummary summary =
      SummarizeFailure(Config(), written, last, "learner 0: ...");
  EXPECT_EQ(summary.updates(), 430);
  EXPECT_EQ(summary.error(), "update 430: the loss is not finite");
  // It had saved all when another learner failed.
  written.set_status(v1::RunSummary::COMPLETED);
  written.clear_error();
  const v1::RunSummary late = SummarizeFailure(Config(), written, last, "why");
  EXPECT_EQ(late.status(), v1::RunSummary::FAILED);
  EXPECT_EQ(late.error(), "why");
}

}  // namespace
}  // namespace flotilla
