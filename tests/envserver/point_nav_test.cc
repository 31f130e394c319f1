#include "envserver/envs/point_nav.h"

#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "envserver/registry.h"
#include "tests/envserver/point_nav_players.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using Kwargs = std::map<std::string, std::string>;

// One registry, so that scenes are made once.
absl::StatusOr<std::unique_ptr<Environment>> MakeEnvironment(
    const Kwargs& kwargs) {
  static const EnvironmentRegistry registry;
  v1::EnvOptions options;
  options.mutable_kwargs()->insert(kwargs.begin(), kwargs.end());
  auto made = registry.Make("PointNav", options, 0);
  if (!made.ok()) return made.status();
  return std::unique_ptr<Environment>(
      dynamic_cast<Environment*>(made->release()));
}

// Called as ThreadVectorEnv calls it, with memory that is not aligned.
class Player {
 public:
  Player() : Player(Kwargs{{"plans", "20"}, {"split", "eval"}}) {}

  explicit Player(const Kwargs& kwargs) {
    auto made = MakeEnvironment(kwargs);
    CHECK(made.ok()) << made.status();
    environment_ = *std::move(made);
  }

  const PointNav& env() const {
    return dynamic_cast<const PointNav&>(*environment_);
  }
  const v1::EnvSpec& spec() const { return environment_->spec(); }

  void Reset(uint64_t seed) {
    const absl::Status status = environment_->Reset(seed, row_);
    CHECK(status.ok()) << status;
    steps = 0;
    total_reward = way_taken = 0;
  }

  Outcome Step(int64_t action) {
    const Point before = env().position();
    const auto bytes = std::as_bytes(std::span(&action, 1));
    const auto outcome = environment_->Step({&bytes, 1}, row_);
    CHECK(outcome.ok()) << outcome.status();
    ++steps;
    total_reward += outcome->reward;
    way_taken += Distance(before, env().position());
    return *outcome;
  }

  // Until it ends, for at most 500 steps. Returns the episode's metrics.
  template <typename Act>
  std::map<std::string, double> Finish(Act act) {
    while (steps < 500 && !Step(act()).terminated) {
    }
    return Metrics();
  }

  std::map<std::string, double> Metrics() {
    v1::EpisodeEnd end;
    EXPECT_TRUE(environment_->GameOver(&end));
    return {end.metric().begin(), end.metric().end()};
  }

  float Goal(size_t i) const { return ReadValue<float>(row_[1], i); }
  const std::vector<std::byte>& memory() const { return memory_; }
  std::span<const std::byte> Depth() const { return row_[0]; }

  int steps = 0;
  double total_reward = 0;
  double way_taken = 0;

 private:
  std::unique_ptr<Environment> environment_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(1 + 64 * 64 + 12);
  std::vector<std::span<std::byte>> row_ = {
      std::span(memory_).subspan(1, 64 * 64),
      std::span(memory_).subspan(1 + 64 * 64)};
};

int64_t WalkOn(const Player& player) {
  return ShortestWay().Act(player.env().scene().space, player.env().goal(),
                           player.env().position(), player.env().heading());
}

TEST(PointNavTest, SaysWhatItIs) {
  const Player player;
  EXPECT_EQ(player.spec().max_episode_steps(), 500);
  EXPECT_THAT(player.spec().observation(0).shape(), ElementsAre(64, 64, 1));
  EXPECT_EQ(player.spec().observation(1).path(), "goal");
  EXPECT_EQ(player.spec().action(0).num_values(), 4);
  EXPECT_THAT(player.spec().episode_metric(),
              ElementsAre("collisions", "distance_to_goal", "spl", "success"));
}

TEST(PointNavTest, WhoeverWalksTheShortestWaySucceeds) {
  Player player;
  double spl = 0;
  constexpr int kEpisodes = 60;
  for (int i = 0; i < kEpisodes; ++i) {
    player.Reset(i);
    const auto metrics = player.Finish([&] { return WalkOn(player); });
    EXPECT_EQ(metrics.at("success"), 1) << "episode " << i;
    EXPECT_LT(metrics.at("distance_to_goal"), 0.2);
    spl += metrics.at("spl") / kEpisodes;
    // Rewards: what the way became shorter, the steps, and how short it was.
    EXPECT_NEAR(player.total_reward,
                player.env().episode().distance -
                    metrics.at("distance_to_goal") - 0.01 * player.steps +
                    2.5 * metrics.at("spl"),
                1e-3);
  }
  EXPECT_GT(spl, 0.95);
}

// What can be asked of whoever learns it.
TEST(PointNavTest, WhoeverSeesAndRemembersSucceedsByDetours) {
  Player player(Kwargs{{"plans", "20"}, {"split", "eval"}});
  double success = 0, spl = 0;
  constexpr int kEpisodes = 40;
  for (int i = 0; i < kEpisodes; ++i) {
    player.Reset(i);
    Mapper mapper(player.env().goal().point);
    const auto metrics = player.Finish([&] {
      return mapper.Act(player.env().scene().plan, player.env().position(),
                        player.env().heading());
    });
    success += metrics.at("success") / kEpisodes;
    spl += metrics.at("spl") / kEpisodes;
  }
  EXPECT_GT(success, 0.95);
  EXPECT_GT(spl, 0.75);
  EXPECT_LT(spl, 0.95) << "the houses hide nothing";
}

TEST(PointNavTest, SplIsTheShortestWayOverTheWayTaken) {
  Player player;
  player.Reset(1);
  const double shortest = player.env().episode().distance;
  // There, back by about face, and there again.
  for (int i = 0; i < 40; ++i) player.Step(WalkOn(player));
  for (int i = 0; i < 18; ++i) player.Step(PointNav::kLeft);
  for (int i = 0; i < 12; ++i) player.Step(PointNav::kForward);
  const auto metrics = player.Finish([&] { return WalkOn(player); });
  EXPECT_EQ(metrics.at("success"), 1);
  EXPECT_GT(player.way_taken, shortest + 2);
  EXPECT_NEAR(metrics.at("spl"), shortest / player.way_taken, 1e-9);
  // They are of the episode that ended, also once the next has begun.
  player.Reset(2);
  EXPECT_EQ(player.Metrics(), metrics);
}

TEST(PointNavTest, AStopElsewhereFails) {
  Player player;
  player.Reset(3);
  const Outcome outcome = player.Step(PointNav::kStop);
  EXPECT_TRUE(outcome.terminated);
  EXPECT_FLOAT_EQ(outcome.reward, -0.01f);
  const auto metrics = player.Metrics();
  EXPECT_EQ(metrics.at("success"), 0);
  EXPECT_EQ(metrics.at("spl"), 0);
  EXPECT_EQ(metrics.at("distance_to_goal"), player.env().episode().distance);
}

TEST(PointNavTest, CollisionsAreCounted) {
  Player player;
  player.Reset(4);
  int collisions = 0;
  for (int i = 0; i < 100; ++i) {
    const double before = player.way_taken;
    player.Step(PointNav::kForward);
    if (player.way_taken - before < 0.2499) ++collisions;
  }
  EXPECT_GT(collisions, 0);
  EXPECT_GE(player.Metrics().at("collisions"), collisions);
  EXPECT_LE(player.Metrics().at("collisions"), 100);
}

TEST(PointNavTest, TheGoalIsSeenFromTheAgent) {
  Player player;
  for (int i = 0; i < 20; ++i) {
    player.Reset(i);
    // What the compass says, walked from where the agent is, ends at the goal.
    const double angle = player.env().heading() * kPlayerPi / 18 +
                         std::atan2(player.Goal(2), player.Goal(1));
    const Point& at = player.env().position();
    EXPECT_NEAR(at.x + player.Goal(0) * std::cos(angle),
                player.env().goal().point.x, 1e-4);
    EXPECT_NEAR(at.y - player.Goal(0) * std::sin(angle),
                player.env().goal().point.y, 1e-4);
  }
}

TEST(PointNavTest, WaysAreLongerThanTheyLook) {
  for (const SceneSplit split : {SceneSplit::kTrain, SceneSplit::kEval}) {
    SceneLibrary library;
    double ratio = 0;
    int episodes = 0, near = 0;
    for (uint64_t i = 0; i < 20; ++i) {
      const auto scene = library.Get(split, i);
      for (const auto& episode : scene->episodes) {
        const double straight =
            Distance(episode.start, scene->goals[episode.goal].point);
        EXPECT_TRUE(std::isfinite(episode.distance));
        // Every second one of the train split is there to find goals at all.
        const size_t number = &episode - scene->episodes.data();
        if (split == SceneSplit::kTrain && number % 2 == 1) {
          EXPECT_LE(straight, 8);
          if (episode.distance < 5) ++near;
          continue;
        }
        EXPECT_GE(episode.distance, 1);
        EXPECT_LE(episode.distance, 30);
        EXPECT_GE(episode.distance, 1.1 * straight);
        ratio += episode.distance / straight;
        ++episodes;
      }
    }
    EXPECT_GE(ratio / episodes, 1.7);
    EXPECT_EQ(near > episodes / 2, split == SceneSplit::kTrain);
  }
}

// Success of one who reads the goal alone.
template <typename Blind>
double SuccessOf(Blind make) {
  Player player(Kwargs{{"plans", "20"}, {"split", "eval"}, {"blind", "true"}});
  constexpr int kEpisodes = 200;
  double success = 0;
  for (int i = 0; i < kEpisodes; ++i) {
    player.Reset(i);
    auto blind = make(i);
    const auto metrics = player.Finish([&] {
      return blind.Act(player.Goal(0), player.Goal(1), player.Goal(2));
    });
    success += metrics.at("success") / kEpisodes;
  }
  return success;
}

TEST(PointNavTest, TheBlindDoNotFindTheWay) {
  // They do find some: whoever never succeeded would show nothing.
  for (const bool left : {true, false}) {
    const double success = SuccessOf([&](int) { return Bug(left); });
    EXPECT_LT(success, 0.5);
    EXPECT_GT(success, 0.05);
  }
  EXPECT_LT(SuccessOf([](int) { return Bug(true, true); }), 0.5);
  EXPECT_LT(SuccessOf([](int i) { return Bouncer(i); }), 0.5);
}

TEST(PointNavTest, TheBlindSeeNothing) {
  Player player(Kwargs{{"blind", "true"}});
  player.Reset(1);
  EXPECT_THAT(player.Depth(), Each(std::byte{0}));
  EXPECT_GT(player.Goal(0), 0);
}

TEST(PointNavTest, EpisodesFollowTheSeed) {
  const auto play = [](uint64_t seed) {
    Player player(Kwargs{{"plans", "3"}});
    Random random(9);
    player.Reset(seed);
    std::vector<std::byte> all = player.memory();
    for (int i = 0; i < 50; ++i) {
      player.Step(1 + static_cast<int64_t>(random.Below(3)));
      all.insert(all.end(), player.memory().begin(), player.memory().end());
    }
    return std::pair(all, player.total_reward);
  };
  EXPECT_EQ(play(1), play(1));
  EXPECT_NE(play(1).first, play(2).first);
}

TEST(PointNavTest, SplitsShareNoPlan) {
  SceneLibrary library;
  for (uint64_t i = 0; i < 20; ++i) {
    for (uint64_t j = 0; j < 20; ++j) {
      EXPECT_FALSE(library.Get(SceneSplit::kTrain, i)->plan ==
                   library.Get(SceneSplit::kEval, j)->plan);
    }
  }
  // What an environment plays in is of its split, and of the first plans.
  Player player(Kwargs{{"plans", "2"}, {"split", "eval"}});
  for (int i = 0; i < 10; ++i) {
    player.Reset(i);
    const FloorPlan& plan = player.env().scene().plan;
    EXPECT_TRUE(plan == library.Get(SceneSplit::kEval, 0)->plan ||
                plan == library.Get(SceneSplit::kEval, 1)->plan);
  }
}

TEST(PointNavTest, ScenesThatWereAskedForLongestAgoAreNotKept) {
  SceneLibrary library(/*most_kept=*/2);
  const auto get = [&](uint64_t i) {
    return library.Get(SceneSplit::kTrain, i);
  };
  const auto first = get(0);
  std::weak_ptr<const Scene> second = get(1);
  EXPECT_EQ(get(0), first);
  EXPECT_FALSE(second.expired());
  const auto third = get(2);
  EXPECT_TRUE(second.expired());
  EXPECT_EQ(get(0), first);
  EXPECT_EQ(get(2), third);
  // Who plays in one keeps it, and what is made again is the same.
  get(1);
  const auto again = get(0);
  EXPECT_NE(again, first);
  EXPECT_TRUE(again->plan == first->plan);
  ASSERT_EQ(again->episodes.size(), first->episodes.size());
  for (size_t i = 0; i < first->episodes.size(); ++i) {
    EXPECT_EQ(again->episodes[i].distance, first->episodes[i].distance);
  }
}

TEST(PointNavTest, OptionsOutOfRangeAreRefusedByName) {
  EXPECT_THAT(MakeEnvironment({{"split", "test"}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("kwargs.split is \"test\", want train or")));
  EXPECT_THAT(MakeEnvironment({{"plans", "0"}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("kwargs.plans is 0, want 1 to")));
  EXPECT_THAT(MakeEnvironment({{"plan", "1"}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no such option")));
}

}  // namespace
}  // namespace flotilla
