#include "launcher/run_comparison.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/curve.h"
#include "services/base/config.h"
#include "services/base/jsonl_sink.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class RunComparisonTest : public testing::Test {
 protected:
  // A run with a value of charts/episodic_return every 100 steps, or 2 seconds.
  RunRecord Make(const std::string& name, const std::vector<double>& returns,
                 const std::vector<std::string>& overrides = {}) {
    const RunFolder folder(folder_ / name);
    EXPECT_TRUE(folder.Make().ok());
    v1::RunConfig config;
    config.mutable_ppo();
    for (const std::string& text : overrides) {
      EXPECT_TRUE(ApplyOverride(text, &config).ok()) << text;
    }
    WriteFile(folder.config(), FormatResolved(config));
    auto sink = *JsonlSink::Open(folder.metrics());
    for (size_t i = 0; i < returns.size(); ++i) {
      const Metric metric = {"charts/episodic_return", returns[i]};
      const int64_t update = static_cast<int64_t>(i) + 1;
      sink->Write(100 * update, update, 2.0 * static_cast<double>(update),
                  std::span(&metric, 1));
    }
    return ReadRunRecord(folder.path(), absl::Now());
  }

  static Comparison Compared(const std::vector<RunRecord>& runs,
                             const ComparisonOptions& options = {}) {
    const auto comparison = CompareRuns(runs, options);
    EXPECT_TRUE(comparison.ok()) << comparison.status();
    return comparison.value_or(Comparison());
  }

  static std::string Refusal(const std::vector<RunRecord>& runs,
                             const ComparisonOptions& options = {}) {
    const auto comparison = CompareRuns(runs, options);
    EXPECT_EQ(comparison.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(comparison.status().message());
  }

  static std::vector<std::string> Labels(const Comparison& comparison) {
    std::vector<std::string> labels;
    for (const auto& series : comparison.chart.series) {
      labels.push_back(series.label);
    }
    return labels;
  }

  TempDir folder_;
};

TEST_F(RunComparisonTest, RunsOfOneConfigurationAreOneLine) {
  const std::vector<RunRecord> runs = {Make("a", {0, 10}),
                                       Make("b", {0, 30}, {"seed=2"}),
                                       Make("c", {5, 5}, {"ppo.epochs=8"})};
  const Comparison comparison = Compared(runs);
  EXPECT_THAT(Labels(comparison),
              ElementsAre("ppo.epochs=4 (2 runs)", "ppo.epochs=8 (1 run)"));
  const auto& points = comparison.chart.series[0].points;
  EXPECT_EQ(points.front().x, 100);
  EXPECT_EQ(points.front().y, 0);
  EXPECT_EQ(points.back().x, 200);
  EXPECT_EQ(points.back().y, 20);
  EXPECT_EQ(points.back().low, 10);  // of two runs: from the one to the other
  EXPECT_EQ(points.back().high, 30);
  EXPECT_THAT(comparison.table,
              HasSubstr("| ppo.epochs=4 | 2 | 20 | 10 to 30 | 20 | 10 | 30 | "
                        "200 | 4s |\n"));
  EXPECT_THAT(comparison.table,
              HasSubstr("| ppo.epochs=8 | 1 | 5 | one run |"));
}

TEST_F(RunComparisonTest, GroupsAreWhatIsAskedFor) {
  const std::vector<RunRecord> runs = {
      Make("a", {1}), Make("b", {2}, {"seed=2", "rollout.length=64"}),
      Make("c", {3}, {"ppo.epochs=8"})};
  EXPECT_THAT(Labels(Compared(runs, {.group_by = "none"})),
              ElementsAre("all runs (3 runs)"));
  EXPECT_THAT(Labels(Compared(runs, {.group_by = "ppo.epochs"})),
              ElementsAre("ppo.epochs=4 (2 runs)", "ppo.epochs=8 (1 run)"));
  EXPECT_THAT(Labels(Compared(runs, {.group_by = "seed,rollout.length"})),
              ElementsAre("seed=1 rollout.length=128 (2 runs)",
                          "seed=2 rollout.length=64 (1 run)"));
  EXPECT_EQ(Labels(Compared(runs, {.group_by = "run"})).size(), 3);
  EXPECT_THAT(Refusal(runs, {.group_by = "ppo.epoch"}),
              HasSubstr("did you mean \"ppo.epochs\""));
}

TEST_F(RunComparisonTest, AlgorithmsAreToldApart) {
  EXPECT_THAT(
      Labels(Compared({Make("a", {1}), Make("b", {2}, {"ppo.epochs=8"})})),
      ElementsAre("ppo.epochs=4 (1 run)", "ppo.epochs=8 (1 run)"));
  RunRecord dqn = Make("c", {3});
  dqn.config.mutable_dqn();
  EXPECT_THAT(Labels(Compared({Make("d", {1}), dqn})),
              ElementsAre("ppo (1 run)", "dqn (1 run)"));
}

TEST_F(RunComparisonTest, ManyRunsAreSummedUpByTheirMiddle) {
  std::vector<RunRecord> runs;
  for (int i = 0; i < 10; ++i) {
    runs.push_back(Make(absl::StrCat("run", i), {i == 9 ? 1000.0 : 1.0},
                        {absl::StrCat("seed=", i)}));
  }
  Comparison comparison = Compared(runs);
  EXPECT_THAT(comparison.chart.caption, HasSubstr("Interquartile mean"));
  EXPECT_EQ(comparison.chart.series[0].points[0].y, 1);
  EXPECT_THAT(comparison.notes, IsEmpty());
  comparison = Compared(runs, {.aggregate = "mean"});
  EXPECT_EQ(comparison.chart.series[0].points[0].y, 100.9);
}

TEST_F(RunComparisonTest, TimeIsAnAxisToo) {
  const Comparison comparison =
      Compared({Make("a", {1, 2, 3})}, {.over_time = true});
  EXPECT_EQ(comparison.chart.x_label, "wall time (seconds)");
  EXPECT_EQ(comparison.chart.series[0].points.back().x, 6);
}

TEST_F(RunComparisonTest, ARunThatEndedEarlyCountsOn) {
  const Comparison comparison =
      Compared({Make("a", {1, 1, 1, 1}), Make("b", {9, 9}, {"seed=2"})});
  EXPECT_EQ(comparison.chart.series[0].points.back().y, 5);
  EXPECT_THAT(comparison.notes,
              ElementsAre(HasSubstr("b is unfinished at 200 of its group's 400 "
                                    "steps, and counts on"),
                          HasSubstr("interval of 2 runs is too narrow")));
}

TEST_F(RunComparisonTest, DifferentEnvironmentsAreRefused) {
  EXPECT_THAT(
      Refusal({Make("a", {1}), Make("b", {1}, {"env.id=Pendulum-v1"})}),
      AllOf(HasSubstr("a is of CartPole-v1 and "),
            HasSubstr("b of Pendulum-v1"), HasSubstr("look at them apart")));
}

TEST_F(RunComparisonTest, AMetricThatIsNotThereGetsTheNearestName) {
  const std::vector<RunRecord> runs = {Make("a", {1}), Make("b", {2})};
  EXPECT_THAT(Refusal(runs, {.metric = "charts/episodic_retrun"}),
              AllOf(HasSubstr("in any of the 2 runs"),
                    HasSubstr("did you mean \"charts/episodic_return\"?")));
}

TEST_F(RunComparisonTest, AnEmptyRunIsLeftOut) {
  const RunRecord empty = Make("empty", {});
  EXPECT_EQ(Refusal({empty}),
            absl::StrCat(folder_ / "empty", " has no metrics yet"));
  EXPECT_THAT(Refusal({empty, Make("empty2", {})}),
              HasSubstr("there is nothing to plot in 2 runs"));
  const Comparison comparison = Compared({empty, Make("a", {1})});
  EXPECT_THAT(comparison.notes,
              ElementsAre(HasSubstr("empty has no metrics yet, and is left")));
  EXPECT_EQ(comparison.chart.series.size(), 1);
}

TEST_F(RunComparisonTest, WhatIsNotFiniteIsLeftOut) {
  const Comparison comparison =
      Compared({Make("a", {1, std::nan(""), 3, INFINITY})});
  EXPECT_THAT(comparison.notes,
              ElementsAre(HasSubstr("2 of 4 values of charts/episodic_return "
                                    "are not finite")));
  EXPECT_EQ(comparison.chart.series[0].points.back().y, 3);
  EXPECT_THAT(Refusal({Make("b", {std::nan("")})}),
              HasSubstr("b has no finite value of charts/episodic_return"));
}

TEST_F(RunComparisonTest, AnUnreadableRunIsLeftOut) {
  RunRecord broken = Make("broken", {1});
  WriteFile(RunFolder(broken.path).config(), "pp {}");
  broken = ReadRunRecord(broken.path, absl::Now());
  EXPECT_THAT(Refusal({broken}), HasSubstr("there is no field \"pp\""));
  EXPECT_THAT(Compared({broken, Make("a", {1})}).notes,
              ElementsAre(HasSubstr("is left out")));
}

TEST_F(RunComparisonTest, ACurveIsReadAsFarAsItIsWhole) {
  const RunRecord run = Make("a", {1, 2});
  const std::string path = RunFolder(run.path).metrics();
  WriteFile(path, ReadFile(path) +
                      "{\"global_step\":300,\"charts/episodic_return\":5");
  const Curve curve = ReadCurve(path, "charts/episodic_return", "global_step");
  EXPECT_THAT(curve.points, ElementsAre(Pair(100, 1), Pair(200, 2)));
  EXPECT_EQ(ValueAt(curve, 50), 1);
  EXPECT_EQ(ValueAt(curve, 150), 1.5);
  EXPECT_EQ(ValueAt(curve, 900), 2);
  EXPECT_THAT(ReadCurve(path, "x", "global_step").other_names,
              testing::Contains("charts/episodic_return"));
  EXPECT_THAT(ReadCurve(path + "none", "x", "global_step").other_names,
              IsEmpty());
}

TEST_F(RunComparisonTest, AnEvaluationStandsAtTheUpdateThatItIsOf) {
  const std::string path = folder_ / "metrics.jsonl";
  WriteFile(path,
            "{\"global_step\":300,\"update\":3,\"eval/mean_return\":5,"
            "\"eval/update\":2}\n"
            "{\"global_step\":0,\"update\":0,\"eval/mean_return\":1,"
            "\"eval/update\":0}\n");
  EXPECT_THAT(ReadCurve(path, "eval/mean_return", "global_step").points,
              ElementsAre(Pair(0, 1), Pair(200, 5)));
}

}  // namespace
}  // namespace flotilla
