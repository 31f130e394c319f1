#include "launcher/summary.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

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
      SummarizeFailure(Config(), std::nullopt, last, {}, "learner 1 died");
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
      SummarizeFailure(Config(), std::nullopt, std::nullopt, {}, "why");
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
      SummarizeFailure(Config(), written, last, {}, "learner 0: ...");
  EXPECT_EQ(summary.updates(), 430);
  EXPECT_EQ(summary.error(), "update 430: the loss is not finite");
  // It had saved all when another learner failed.
  written.set_status(v1::RunSummary::COMPLETED);
  written.clear_error();
  const v1::RunSummary late =
      SummarizeFailure(Config(), written, last, {}, "why");
  EXPECT_EQ(late.status(), v1::RunSummary::FAILED);
  EXPECT_EQ(late.error(), "why");
}

NewestMetrics Metrics() {
  return {{"update", 93},      {"global_step", 47616},
          {"wall_seconds", 2}, {"charts/episodes", 412},
          {"charts/SPS", 1},   {"charts/episodic_return", 201.5}};
}

TEST(SummarizeFailureTest, MetricsSayWhatTheCoordinatorDoesNotKnow) {
  v1::Status last;
  last.set_world_size(2);
  last.set_update(90);
  last.set_global_step(46080);
  last.set_failed_rows(5);
  last.mutable_evaluation()->set_round(3);
  last.mutable_evaluation()->set_update(80);
  last.mutable_evaluation()->set_episodes(10);
  last.mutable_evaluation()->set_mean_return(222);
  const v1::RunSummary summary =
      SummarizeFailure(Config(), std::nullopt, last, Metrics(), "why");
  EXPECT_EQ(summary.updates(), 93);
  EXPECT_EQ(summary.stop_update(), 93);
  EXPECT_EQ(summary.failed_rows(), 5);
  EXPECT_EQ(summary.eval_update(), 80);
  EXPECT_EQ(summary.eval_episodes(), 10);
  EXPECT_EQ(DescribeSummary(summary),
            "failed: ppo on CartPole-v1\n"
            "  evaluation return 222.0\n"
            "  training return 201.5 (last 100 of 412 episodes)\n"
            "  47,616 steps, 93 updates, 2.0 s, 23,808 steps/s, world of 2\n"
            "  error: why\n");
}

TEST(SummarizeFailureTest, ANewerStatusGoesBeforeOlderMetrics) {
  v1::Status last;
  last.set_update(95);
  last.set_global_step(48640);
  const v1::RunSummary summary =
      SummarizeFailure(Config(), std::nullopt, last, Metrics(), "why");
  EXPECT_EQ(summary.updates(), 95);
  EXPECT_EQ(summary.stop_update(), 95);
  EXPECT_EQ(summary.global_steps(), 48640);
  EXPECT_EQ(summary.steps_per_second(), 23808);
}

TEST(SummarizeFailureTest, RankZeroLeavesTheReturnToTheMetrics) {
  v1::RunSummary written;
  written.set_status(v1::RunSummary::FAILED);
  written.set_updates(93);
  written.set_episodes(50);
  const v1::RunSummary summary =
      SummarizeFailure(Config(), written, std::nullopt, Metrics(), "why");
  EXPECT_EQ(summary.mean_return(), 201.5);
  EXPECT_EQ(summary.mean_return_episodes(), 50);
  EXPECT_EQ(summary.episodes(), 50);
}

TEST(SummarizeFailureTest, NoEpisodesHaveNoReturn) {
  v1::RunSummary nothing;
  nothing.set_updates(0);
  nothing.set_episodes(0);
  const v1::RunSummary summary =
      SummarizeFailure(Config(), nothing, std::nullopt, Metrics(), "why");
  EXPECT_EQ(summary.updates(), 0);
  EXPECT_FALSE(summary.has_mean_return());
}

TEST(SummarizeFailureTest, TheErrorIsFreeOfLogLines) {
  const v1::RunSummary died = SummarizeFailure(
      Config(), {}, {}, {},
      "learner 0 died (signal 9 (Killed)); --max-restarts is 0\n"
      "  | I20261122 13:51:57.699138 24052 training_loop.cc:112] generation 1\n"
      "log: run/logs/rank_0.log");
  EXPECT_EQ(died.error(),
            "learner 0 died (signal 9 (Killed)); --max-restarts is 0; log: "
            "run/logs/rank_0.log");
  const v1::RunSummary logged = SummarizeFailure(
      Config(), {}, {}, {},
      "E20261122 13:51:57.699138 24052 main.cc:9] address in use [::1]");
  EXPECT_EQ(logged.error(), "address in use [::1]");
}

TEST(NewestMetricsTest, AreOfWholeLinesAndFinite) {
  TempDir folder;
  std::ofstream(folder / "metrics.jsonl")
      << R"({"update":1,"charts/episodes":3.0,"losses/value_loss":2.5})"
         "\n"
      << R"({"update":1,"eval/mean_return":9.0})"
         "\n"
      << R"({"update":2,"losses/value_loss":null})"
         "\n"
      << R"({"update":3,"charts/epis)";
  EXPECT_THAT(ReadNewestMetrics(folder / "metrics.jsonl"),
              UnorderedElementsAre(
                  Pair("update", 2), Pair("charts/episodes", 3),
                  Pair("eval/mean_return", 9), Pair("losses/value_loss", 2.5)));
  EXPECT_THAT(ReadNewestMetrics(folder / "none"), IsEmpty());
}

// So many bytes of lines that are no metrics.
std::string Lines(size_t bytes) {
  std::string lines(bytes, 'x');
  for (size_t i = 99; i < bytes; i += 100) lines[i] = '\n';
  if (bytes > 0) lines.back() = '\n';
  return lines;
}

TEST(NewestMetricsTest, OneIsFoundWhereverInTheFileItIs) {
  TempDir folder;
  const std::string path = folder / "metrics.jsonl";
  const std::string other = R"({"update":1,"eval/mean_return":9.0})"
                            "\n";
  const std::string newest = R"({"update":2,"eval/mean_return":-7.5})"
                             "\n";
  // What is no number, or of another name, does not count.
  const std::string later = R"({"update":3,"eval/mean_return":null})"
                            "\n"
                            R"({"update":4,"eval/mean_return_of":"eval"})"
                            "\n";
  for (const size_t megabytes : {0, 1, 5}) {
    WriteFile(path, other + newest + later + Lines(megabytes << 20));
    EXPECT_EQ(FindNewestMetric(path, "eval/mean_return"), -7.5) << megabytes;
    EXPECT_EQ(FindNewestMetric(path, "eval/none"), std::nullopt);
  }
  // Also one that lies in two of the blocks that are read.
  for (size_t in_later = 0; in_later <= newest.size() + 1; ++in_later) {
    WriteFile(path, Lines(3000) + other + newest + Lines((1 << 20) - in_later));
    EXPECT_EQ(FindNewestMetric(path, "eval/mean_return"), -7.5) << in_later;
  }
  // A disk that lost power may leave zeros, in a line of any length.
  WriteFile(path, other + newest + std::string(5 << 20, '\0') + "\n" + later);
  EXPECT_EQ(FindNewestMetric(path, "eval/mean_return"), -7.5);
  EXPECT_EQ(FindNewestMetric(folder / "none", "update"), std::nullopt);
  // No further back than is asked for, whether that is in the middle of a line or not.
  WriteFile(path, other + newest + Lines(3 << 20));
  const int64_t back = static_cast<int64_t>(newest.size()) + (3 << 20);
  EXPECT_EQ(FindNewestMetric(path, "eval/mean_return", back + 1), -7.5);
  EXPECT_EQ(FindNewestMetric(path, "eval/mean_return", back - 1), std::nullopt);
  EXPECT_EQ(FindNewestMetric(path, "eval/mean_return", 1000), std::nullopt);
}

}  // namespace
}  // namespace flotilla
