#include "learner/training/run_metrics.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/collective/solo_collective.h"
#include "learner/training/run_clock.h"
#include "tests/learner/collective/ranks.h"
#include "tests/learner/training/fakes.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::Contains;
using testing::Each;
using testing::Key;
using testing::Not;
using testing::Pair;
using testing::UnorderedElementsAre;

v1::RunConfig WindowOf(int episodes) {
  v1::RunConfig config = FakeConfig();
  config.mutable_metrics()->set_episode_window(episodes);
  return config;
}

Experience Ended(std::vector<CollectStats::Episode> episodes) {
  Experience experience;
  experience.stats.episodes = std::move(episodes);
  return experience;
}

// One update of one rank alone.
void AddAlone(const Experience& experience, RunMetrics* metrics) {
  SoloCollective alone;
  Agreement agreement(0, 1);
  metrics->Add(experience, {}, 0, &agreement);
  ASSERT_THAT(agreement.Reduce(&alone), IsOk());
  metrics->Take(agreement);
}

// One update of each of `world` ranks; `check` gets what each has of it.
void AddOnRanks(
    int world, const v1::RunConfig& config,
    const std::function<Experience(int rank)>& experience,
    const std::function<std::vector<Metric>(int rank)>& learnt,
    const std::function<void(const RunMetrics&, const Agreement&)>& check) {
  RunRanks(world, [&](const v1::Assignment& assignment,
                      FakeCoordinatorClient* coordinator) {
    const auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                           coordinator, torch::kCPU);
    ASSERT_THAT(collective.status(), IsOk());
    const int rank = assignment.rank();
    EpisodeWindow episodes(config.metrics().episode_window(), 1);
    RunMetrics metrics({"success"}, &episodes);
    Agreement agreement(rank, world);
    metrics.Add(experience(rank), learnt(rank), rank, &agreement);
    ASSERT_THAT(agreement.Reduce(collective->get()), IsOk());
    metrics.Take(agreement);
    check(metrics, agreement);
  });
}

TEST(RunMetricsTest, EveryNameIsThereAndEveryRankHasTheSame) {
  const auto experience = [](int rank) {
    Experience e = Ended({{0, 10.0 * (rank + 1), 5, {1.0 * rank}}});
    e.policy_lag = rank;
    e.dropped = 2;
    e.stats.preempted = rank == 1;
    e.stats.seconds = 3;
    e.stats.env_seconds = 2;
    e.stats.inference_seconds = 1;
    return e;
  };
  const auto learnt = [](int rank) {
    return std::vector<Metric>{{"losses/policy_loss", rank + 1.0},
                               {"losses/entropy", rank + 1.0, 3.0 - 2 * rank},
                               {"losses/q", 7.0, 0.0}};
  };
  Progress progress;
  progress.update = 1;
  progress.global_step = 600;
  progress.wall_seconds = 3;
  progress.episodes = 42;
  progress.env_restarts = 4;
  progress.failed_rows = 7;
  AddOnRanks(
      2, WindowOf(100), experience, learnt,
      [&](const RunMetrics& metrics, const Agreement& agreement) {
        EXPECT_THAT(
            ByName(metrics.Line(agreement, progress)),
            UnorderedElementsAre(
                Pair("charts/episodic_return", 15),
                Pair("charts/episodic_length", 5), Pair("metrics/success", 0.5),
                Pair("charts/SPS", 200), Pair("charts/episodes", 42),
                Pair("losses/policy_loss", 1.5), Pair("losses/entropy", 1.25),
                Pair("losses/q", 0),
                // Learning took 0 and 1 s.
                Pair("perf/env_wait_fraction", 2 / 3.5),
                Pair("perf/inference_fraction", 1 / 3.5),
                Pair("perf/update_fraction", 0.5 / 3.5),
                Pair("sync/preempted_ranks", 1), Pair("env/restarts", 4),
                Pair("env/failed_rows", 7), Pair("policy/lag_mean", 0.5),
                Pair("policy/lag_max", 1), Pair("rollout/dropped", 4)));
      });
}

TEST(RunMetricsTest, WhatNeedsAnEpisodesEndIsLeftOutUntilThereIsOne) {
  EpisodeWindow episodes(100, 1);
  RunMetrics metrics({"success"}, &episodes);
  SoloCollective alone;
  Agreement agreement(0, 1);
  metrics.Add(Experience(), {}, 0, &agreement);
  ASSERT_THAT(agreement.Reduce(&alone), IsOk());
  metrics.Take(agreement);
  EXPECT_EQ(metrics.window().episodes, 0);
  const auto line = ByName(metrics.Line(agreement, Progress()));
  for (const char* name : {"charts/episodic_return", "charts/episodic_length",
                           "metrics/success"}) {
    EXPECT_THAT(line, Not(Contains(Key(name))));
  }
}

TEST(RunMetricsTest, TheWindowHoldsTheNewestEpisodes) {
  EpisodeWindow episodes(3, 0);
  RunMetrics metrics({}, &episodes);
  AddAlone(Ended({{0, 1, 10}, {0, 2, 20}}), &metrics);
  EXPECT_EQ(metrics.window().episodes, 2);
  EXPECT_EQ(metrics.window().mean_return, 1.5);
  AddAlone(Ended({{0, 6, 30}, {0, 7, 40}}), &metrics);
  EXPECT_EQ(metrics.window().episodes, 3);
  EXPECT_EQ(metrics.window().mean_return, 5);
  EXPECT_EQ(metrics.window().mean_length, 30);
  // An update in which none ended changes nothing.
  AddAlone(Experience(), &metrics);
  EXPECT_EQ(metrics.window().mean_return, 5);
}

TEST(RunMetricsTest, TheWindowIsFullHoweverManyRanksShareIt) {
  const auto many = [](int) {
    return Ended(std::vector<CollectStats::Episode>(20, {0, 1, 1, {0}}));
  };
  AddOnRanks(
      4, WindowOf(10), many, [](int) { return std::vector<Metric>(); },
      [](const RunMetrics& metrics, const Agreement&) {
        EXPECT_EQ(metrics.window().episodes, 10);
      });
}

TEST(RunMetricsTest, StepsPerSecondGoOnOverAResume) {
  FakeClock time;
  const auto now = [&] { return time.Now(); };
  Progress progress;
  EXPECT_EQ(StepsPerSecond(progress), 0);
  RunClock first(now);
  first.Set(progress.wall_seconds);
  time.Advance(absl::Seconds(10));
  progress.global_step = 1000;
  progress.wall_seconds = first.Seconds();
  EXPECT_EQ(StepsPerSecond(progress), 100);
  // Another process, a night later.
  time.Advance(absl::Hours(8));
  RunClock second(now);
  EXPECT_FALSE(second.runs());
  second.Set(progress.wall_seconds);
  time.Advance(absl::Seconds(10));
  progress.global_step += 3000;
  progress.wall_seconds = second.Seconds();
  EXPECT_EQ(progress.wall_seconds, 20);
  EXPECT_EQ(StepsPerSecond(progress), 200);
}

TEST(RunMetricsTest, AgentsAreToldApart) {
  EpisodeWindow episodes(100, 0);
  RunMetrics metrics({}, &episodes, /*agents=*/2);
  std::map<std::string, double> line;
  const auto update = [&](std::vector<CollectStats::Episode> ended) {
    SoloCollective alone;
    Agreement agreement(0, 1);
    metrics.Add(Ended(std::move(ended)), {}, 0, &agreement);
    ASSERT_THAT(agreement.Reduce(&alone), IsOk());
    metrics.Take(agreement);
    line.clear();
    for (const Metric& m : metrics.Line(agreement, Progress())) {
      line[m.name] = m.value;
    }
  };
  const auto of = [](int agent, double raw_return) {
    return CollectStats::Episode{
        .raw_return = raw_return, .length = 1, .agent = agent};
  };
  update({of(1, 3), of(1, 5)});
  EXPECT_THAT(line, Contains(Pair("agents/return_1", 4)));
  EXPECT_THAT(line, Not(Contains(Key("agents/return_0"))));
  EXPECT_THAT(line, Not(Contains(Key("agents/return_sum"))));
  update({of(0, -1)});
  EXPECT_THAT(line, Contains(Pair("agents/return_0", -1)));
  EXPECT_THAT(line, Contains(Pair("agents/return_1", 4)));
  EXPECT_THAT(line, Contains(Pair("agents/return_sum", 3)));
}

}  // namespace
}  // namespace flotilla
