#include "learner/training/self_play.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "learner/collective/solo_collective.h"
#include "tests/learner/training/fakes.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::testing::ElementsAre;

v1::SelfPlayConfig Config(int pool_size, int every) {
  v1::SelfPlayConfig config;
  config.set_pool_size(pool_size);
  config.set_snapshot_every_updates(every);
  config.set_latest_share(0.25);
  return config;
}

class SelfPlayTest : public ::testing::Test {
 protected:
  void SetWeight(float weight) {
    algorithm_.Weights()[0].tensor.fill_(weight);
    algorithm_.StateWasReplaced();
  }
  // An update in which these games were played, by this rank alone.
  void Update(SelfPlay* self_play, const std::vector<GameResult>& games) {
    Agreement agreement(0, 1);
    self_play->Add(games, &agreement);
    SoloCollective alone;
    ASSERT_OK(agreement.Reduce(&alone));
    self_play->Take(agreement);
  }
  static std::vector<float> WeightsOf(const Opponents& opponents) {
    std::vector<float> weights;
    for (const Opponents::Player& player : opponents.players) {
      weights.push_back(static_cast<FakePolicy*>(player.policy.get())->weight);
    }
    return weights;
  }
  static std::vector<double> SharesOf(const Opponents& opponents) {
    std::vector<double> shares;
    for (const auto& player : opponents.players) shares.push_back(player.share);
    return shares;
  }
  static double MetricOf(const SelfPlay& self_play, const std::string& name) {
    std::vector<Metric> line;
    self_play.AppendTo(&line);
    for (const Metric& metric : line) {
      if (metric.name == name) return metric.value;
    }
    return std::nan("");
  }

  FakeAlgorithm algorithm_;
};

TEST_F(SelfPlayTest, SnapshotsAreTakenWhenTheyAreDueAndTheOldestGoes) {
  SelfPlay self_play(Config(/*pool_size=*/3, /*every=*/2), &algorithm_);
  for (int update = 0; update <= 8; ++update) {
    SetWeight(static_cast<float>(update));
    self_play.Committed(update);
  }
  EXPECT_THAT(WeightsOf(*self_play.Now()), ElementsAre(4, 6, 8));
  EXPECT_EQ(self_play.Now()->players[0].snapshot, 4);
  EXPECT_EQ(self_play.Now()->latest_share, 0.25);
  // The newest weights are as they were.
  EXPECT_EQ(algorithm_.Weights()[0].tensor[0].item<float>(), 8);
}

TEST_F(SelfPlayTest, ACollectorsPoliciesAreNotAnEvaluations) {
  SelfPlay self_play(Config(2, 1), &algorithm_);
  self_play.Committed(0);
  const auto now = self_play.Now(), evaluated = self_play.ForEvaluation();
  EXPECT_EQ(now, self_play.Now());
  EXPECT_NE(now->players[0].policy, evaluated->players[0].policy);
  EXPECT_EQ(evaluated->latest_share, 0);
}

TEST_F(SelfPlayTest, NoSnapshotBeforeEnoughIsWon) {
  v1::SelfPlayConfig config = Config(4, 1);
  config.set_win_rate_to_snapshot(0.6);
  SelfPlay self_play(config, &algorithm_);
  self_play.Committed(0);
  self_play.Committed(1);  // without a game
  Update(&self_play, {{0, 1}, {0, 0}});
  self_play.Committed(2);
  EXPECT_EQ(self_play.snapshots(), 1);
  Update(&self_play, {{0, 1}, {0, 0.5}});  // 2.5 of 4, that is 0.625
  self_play.Committed(3);
  EXPECT_EQ(self_play.snapshots(), 2);
  self_play.Committed(4);  // it counts anew
  EXPECT_EQ(self_play.snapshots(), 2);
}

TEST_F(SelfPlayTest, RatingsAreElos) {
  SelfPlay self_play(Config(2, 1), &algorithm_);
  self_play.Committed(0);
  EXPECT_EQ(MetricOf(self_play, "charts/elo"), 1000);
  Update(&self_play, {{0, 1}});
  EXPECT_DOUBLE_EQ(MetricOf(self_play, "charts/elo"), 1004);  // K / 2
  // Nine of ten won, for long: ten to the (400 / 400) is nine, nearly.
  std::vector<GameResult> games(10, {0, 1});
  games[0].score = 0;
  for (int i = 0; i < 500; ++i) Update(&self_play, games);
  const double mine = MetricOf(self_play, "charts/elo");
  // Ratings move against each other, about the 1000 that both began with.
  EXPECT_NEAR(2 * (mine - 1000), 400 * std::log10(9), 1e-6);
  EXPECT_DOUBLE_EQ(MetricOf(self_play, "selfplay/win_rate"), 0.9);
  EXPECT_EQ(MetricOf(self_play, "selfplay/games"), 5001);
  // A snapshot is as good as what it is one of; one that is gone counts nowhere.
  self_play.Committed(1);
  Update(&self_play, {{1, 0.5}, {17, 0}});
  EXPECT_DOUBLE_EQ(MetricOf(self_play, "charts/elo"), mine);
}

TEST_F(SelfPlayTest, OpponentsAreChosenAsAsked) {
  v1::SelfPlayConfig config = Config(4, 1);
  const auto shares = [&](v1::Opponents mode) {
    config.set_opponents(mode);
    SelfPlay self_play(config, &algorithm_);
    for (int i = 0; i < 4; ++i) self_play.Committed(i);
    // All are beaten but the second, which wins.
    std::vector<GameResult> games(98, {1, 0});
    for (int i : {0, 2, 3}) games.insert(games.end(), 98, {i, 1});
    Update(&self_play, games);
    return SharesOf(*self_play.Now());
  };
  EXPECT_THAT(shares(v1::UNIFORM), ElementsAre(0.25, 0.25, 0.25, 0.25));
  const std::vector<double> recent = shares(v1::RECENT);
  EXPECT_NEAR(recent[3] / recent[1], 2, 1e-9);  // half the pool older
  EXPECT_NEAR(recent[0] + recent[1] + recent[2] + recent[3], 1, 1e-9);
  const std::vector<double> rated = shares(v1::RATED);
  // (1 - wins)^2, each with two games drawn beside: 0.01 and 0.99.
  EXPECT_NEAR(rated[1] / rated[0], 99. * 99, 1);
}

TEST_F(SelfPlayTest, ItGoesOnFromItsState) {
  SelfPlay before(Config(3, 1), &algorithm_), after(Config(3, 1), &algorithm_);
  for (int update = 0; update < 3; ++update) {
    SetWeight(static_cast<float>(update));
    before.Committed(update);
  }
  Update(&before, {{1, 1}});
  const std::vector<NamedTensor> from = before.State(), to = after.State();
  ASSERT_EQ(from.size(), to.size());
  // Of an update that others made anew, under the same number.
  SetWeight(7);
  after.Committed(1);
  EXPECT_THAT(WeightsOf(*after.Now()), ElementsAre(7));
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].name, to[i].name);
    to[i].tensor.copy_(from[i].tensor);
  }
  after.StateWasReplaced();
  EXPECT_THAT(WeightsOf(*after.Now()), ElementsAre(0, 1, 2));
  for (const char* name : {"charts/elo", "selfplay/games"}) {
    EXPECT_EQ(MetricOf(after, name), MetricOf(before, name));
  }
}

TEST(OpponentsTest, GamesAreSharedOut) {
  Opponents opponents;
  opponents.latest_share = 0.5;
  const auto policy = std::make_shared<FakePolicy>(0.0f);
  opponents.players = {{1, policy, 0.25}, {2, policy, 0.75}};
  Draws draws(1);
  std::map<int64_t, int> chosen;
  for (int i = 0; i < 8000; ++i) {
    const Opponents::Player player = opponents.Choose(&draws);
    ++chosen[player.policy == nullptr ? 0 : player.snapshot];
  }
  EXPECT_NEAR(chosen[0], 4000, 200);
  EXPECT_NEAR(chosen[1], 1000, 150);
  EXPECT_NEAR(chosen[2], 3000, 200);
}

}  // namespace
}  // namespace flotilla
