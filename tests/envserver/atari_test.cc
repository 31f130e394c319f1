#include "envserver/envs/atari.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tests/envserver/environment_harness.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kSize = 32;  // of the emulator's screen; 16 of the observation

// What the fake console did, and what it will do.
struct Script {
  // By frame of the game, counting from 1.
  std::map<int, int> reward;
  std::map<int, int> lives;  // from that frame on
  std::map<int, uint8_t> shade;
  int game_over = 0;  // 0: never
  int max_frames = 0;
  int fire_action = -1;

  std::vector<int> actions;     // of every frame of every game
  std::vector<uint64_t> games;  // seeds
  int frame = 0;
};

// A screen of one shade, which is the frame's number unless scripted.
class FakeEmulator final : public AtariEmulator {
 public:
  explicit FakeEmulator(Script* script) : script_(*script) {}

  int height() const override { return kSize; }
  int width() const override { return kSize; }
  int num_actions() const override { return 4; }
  int fire_action() const override { return script_.fire_action; }

  void NewGame(uint64_t seed) override {
    script_.games.push_back(seed);
    script_.frame = 0;
    lives_ = 3;
  }

  int Act(int action) override {
    EXPECT_FALSE(game_over()) << "played on after the game's end";
    script_.actions.push_back(action);
    ++script_.frame;
    if (script_.lives.contains(script_.frame)) {
      lives_ = script_.lives.at(script_.frame);
    }
    const auto reward = script_.reward.find(script_.frame);
    return reward == script_.reward.end() ? 0 : reward->second;
  }

  int lives() const override { return lives_; }
  bool game_over() const override {
    return script_.game_over != 0 && script_.frame >= script_.game_over;
  }
  bool out_of_frames() const override {
    return script_.max_frames != 0 && script_.frame >= script_.max_frames;
  }

  void ColorScreen(uint8_t* rgb) const override {
    std::vector<uint8_t> gray(static_cast<size_t>(height()) * width());
    Screen(gray.data());
    for (size_t i = 0; i < 3 * gray.size(); ++i) rgb[i] = gray[i / 3];
  }
  void Screen(uint8_t* gray) const override {
    const auto shade = script_.shade.find(script_.frame);
    std::fill_n(gray, kSize * kSize,
                shade == script_.shade.end()
                    ? static_cast<uint8_t>(script_.frame)
                    : shade->second);
  }

 private:
  Script& script_;
  int lives_ = 0;
};

v1::AtariOptions Plain() {
  v1::AtariOptions options;
  options.set_noop_max(0);
  options.set_episodic_life(false);
  options.set_fire_reset(false);
  options.set_clip_reward(false);
  options.set_screen_size(16);
  return options;
}

EnvironmentHarness MakeAtari(const v1::AtariOptions& options, Script* script) {
  auto env = Atari::Make("ALE/Fake-v5", options,
                         std::make_unique<FakeEmulator>(script));
  CHECK(env.ok()) << env.status();
  return EnvironmentHarness(*std::move(env));
}

std::optional<double> RawReturn(EnvironmentHarness* env) {
  v1::EpisodeEnd end;
  if (!env->environment().GameOver(&end)) return std::nullopt;
  return end.raw_return();
}

TEST(AtariTest, SpecSaysWhatTheLearnerStacks) {
  Script script;
  auto options = Plain();
  options.set_frame_stack(4);
  EnvironmentHarness env = MakeAtari(options, &script);
  const v1::EnvSpec& spec = env.environment().spec();
  EXPECT_EQ(spec.env_id(), "ALE/Fake-v5");
  EXPECT_EQ(spec.observation(0).dtype(), v1::UINT8);
  EXPECT_THAT(spec.observation(0).shape(), ElementsAre(16, 16));
  EXPECT_EQ(spec.observation(0).frame_stack(), 4);
  EXPECT_EQ(spec.action(0).num_values(), 4);
}

TEST(AtariTest, ActionLastsTheWholeSkipAndRewardsAdd) {
  Script script;
  script.reward = {{1, 1}, {3, 5}, {4, -2}, {5, 100}};
  EnvironmentHarness env = MakeAtari(Plain(), &script);
  env.Reset(1);
  const Outcome outcome = env.Step<int64_t>(3);
  EXPECT_EQ(outcome.reward, 4);
  EXPECT_THAT(script.actions, ElementsAre(3, 3, 3, 3));
  EXPECT_EQ(env.Step<int64_t>(1).reward, 100);
}

TEST(AtariTest, ObservationIsTheMaximumOfTheLastTwoFrames) {
  Script script;
  script.shade = {{1, 250}, {2, 240}, {3, 90}, {4, 60}, {7, 10}, {8, 20}};
  EnvironmentHarness env = MakeAtari(Plain(), &script);
  env.Reset(1);
  EXPECT_THAT(env.Observation<uint8_t>(), Each(0));  // frame 0
  env.Step<int64_t>(0);
  EXPECT_THAT(env.Observation<uint8_t>(), Each(90));
  env.Step<int64_t>(0);
  EXPECT_THAT(env.Observation<uint8_t>(), Each(20));
}

TEST(AtariTest, WithoutSkipEachFrameIsItsOwnObservation) {
  Script script;
  script.shade = {{1, 250}, {2, 7}};
  auto options = Plain();
  options.set_frame_skip(1);
  EnvironmentHarness env = MakeAtari(options, &script);
  env.Reset(1);
  env.Step<int64_t>(0);
  EXPECT_THAT(env.Observation<uint8_t>(), Each(250));
  env.Step<int64_t>(0);
  EXPECT_THAT(env.Observation<uint8_t>(), Each(7));
}

TEST(AtariTest, SkipEndsWithTheGame) {
  Script script;
  script.game_over = 6;
  script.reward = {{6, 3}, {7, 100}};
  EnvironmentHarness env = MakeAtari(Plain(), &script);
  env.Reset(1);
  EXPECT_FALSE(env.Step<int64_t>(1).terminated);
  const Outcome outcome = env.Step<int64_t>(1);
  EXPECT_TRUE(outcome.terminated);
  EXPECT_FALSE(outcome.truncated);
  EXPECT_EQ(outcome.reward, 3);
  EXPECT_EQ(script.actions.size(), 6u);
  // As under Gymnasium, whose buffers still hold the step before.
  EXPECT_THAT(env.Observation<uint8_t>(), Each(4));
}

TEST(AtariTest, FrameLimitTruncates) {
  Script script;
  script.max_frames = 8;
  EnvironmentHarness env = MakeAtari(Plain(), &script);
  env.Reset(1);
  EXPECT_FALSE(env.Step<int64_t>(1).truncated);
  const Outcome outcome = env.Step<int64_t>(1);
  EXPECT_TRUE(outcome.truncated);
  EXPECT_FALSE(outcome.terminated);
  env.Reset(2);
  EXPECT_THAT(script.games, ElementsAre(1, 2));
  EXPECT_TRUE(RawReturn(&env).has_value());
}

TEST(AtariTest, RewardIsClippedToItsSignAndTheReturnIsNot) {
  Script script;
  script.reward = {{1, 7}, {2, 4}, {5, -30}, {9, 2}, {10, -2}};
  script.game_over = 16;
  auto options = Plain();
  options.set_clip_reward(true);
  EnvironmentHarness env = MakeAtari(options, &script);
  env.Reset(1);
  EXPECT_EQ(env.Step<int64_t>(0).reward, 1);
  EXPECT_EQ(env.Step<int64_t>(0).reward, -1);
  EXPECT_EQ(env.Step<int64_t>(0).reward, 0);  // 2 - 2, not sign by sign
  EXPECT_TRUE(env.Step<int64_t>(0).terminated);
  env.Reset(2);
  EXPECT_EQ(RawReturn(&env), 7 + 4 - 30);
  EXPECT_EQ(RawReturn(&env), std::nullopt);
}

TEST(AtariTest, NoopsBeginAGameAndFollowTheSeed) {
  std::set<size_t> counts;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Script script;
    auto options = Plain();
    options.set_noop_max(5);
    EnvironmentHarness env = MakeAtari(options, &script);
    env.Reset(seed);
    EXPECT_THAT(script.actions, Each(0));
    EXPECT_THAT(env.Observation<uint8_t>(), Each(script.actions.size()));
    counts.insert(script.actions.size());
  }
  EXPECT_EQ(counts, (std::set<size_t>{1, 2, 3, 4, 5}));
}

TEST(AtariTest, NoopRewardsCountInTheReturn) {
  Script script;
  script.reward = {{1, 10}};
  auto options = Plain();
  options.set_noop_max(1);
  EnvironmentHarness env = MakeAtari(options, &script);
  env.Reset(1);
  script.game_over = 3;
  env.Step<int64_t>(0);
  script.game_over = 0;
  env.Reset(2);
  EXPECT_EQ(RawReturn(&env), 10);
}

TEST(AtariTest, GameThatEndsDuringNoopsBeginsAnewAndIsNotReported) {
  Script script;
  script.game_over = 2;
  auto options = Plain();
  options.set_noop_max(3);
  EnvironmentHarness env = MakeAtari(options, &script);
  uint64_t seed = 0;
  do {  // until there are more no-ops than the game lasts
    script.games.clear();
    env.Reset(seed++);
  } while (script.games.size() < 2);
  EXPECT_EQ(script.games[0], script.games[1]);
  EXPECT_EQ(RawReturn(&env), std::nullopt);
}

v1::AtariOptions EpisodicLife() {
  auto options = Plain();
  options.set_episodic_life(true);
  return options;
}

TEST(AtariTest, LostLifeEndsTheEpisodeButNotTheGame) {
  Script script;
  script.lives = {{6, 2}};
  script.reward = {{1, 5}, {9, 6}, {13, 7}};
  EnvironmentHarness env = MakeAtari(EpisodicLife(), &script);
  env.Reset(1);
  EXPECT_FALSE(env.Step<int64_t>(1).terminated);
  const Outcome outcome = env.Step<int64_t>(1);
  EXPECT_TRUE(outcome.terminated);
  EXPECT_THAT(env.Observation<uint8_t>(), Each(8));  // the whole skip is played
  env.Reset(2);
  EXPECT_EQ(RawReturn(&env), std::nullopt);
  EXPECT_THAT(script.games, ElementsAre(1));
  // One action of nothing, whose frames are seen.
  EXPECT_THAT(
      std::vector<int>(script.actions.begin() + 8, script.actions.end()),
      ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(env.Observation<uint8_t>(), Each(12));
  script.game_over = 16;
  EXPECT_TRUE(env.Step<int64_t>(1).terminated);
  env.Reset(3);
  EXPECT_EQ(RawReturn(&env), 5 + 6 + 7);
  EXPECT_THAT(script.games, ElementsAre(1, 3));
}

TEST(AtariTest, GainedLifeEndsNothing) {
  Script script;
  script.lives = {{2, 4}, {6, 3}};
  EnvironmentHarness env = MakeAtari(EpisodicLife(), &script);
  env.Reset(1);
  EXPECT_FALSE(env.Step<int64_t>(1).terminated);
  EXPECT_TRUE(env.Step<int64_t>(1).terminated);  // 4 -> 3
}

TEST(AtariTest, NoLivesShownIsNotALostLife) {
  Script script;
  script.lives = {{2, 0}};
  EnvironmentHarness env = MakeAtari(EpisodicLife(), &script);
  env.Reset(1);
  EXPECT_FALSE(env.Step<int64_t>(1).terminated);
  script.game_over = 8;
  EXPECT_TRUE(env.Step<int64_t>(1).terminated);
  env.Reset(2);
  EXPECT_THAT(script.games, ElementsAre(1, 2));
}

TEST(AtariTest, GameThatEndsWhileAdvancingFromALostLifeIsReported) {
  Script script;
  script.lives = {{2, 2}};
  script.reward = {{1, 9}};
  EnvironmentHarness env = MakeAtari(EpisodicLife(), &script);
  env.Reset(1);
  EXPECT_TRUE(env.Step<int64_t>(1).terminated);
  script.game_over = 6;
  env.Reset(2);
  EXPECT_THAT(script.games, ElementsAre(1, 2));
  EXPECT_EQ(RawReturn(&env), 9);
}

TEST(AtariTest, StepLimitFromOutsideEndsTheGame) {
  Script script;
  script.reward = {{1, 9}};
  EnvironmentHarness env = MakeAtari(EpisodicLife(), &script);
  env.Reset(1);
  env.Step<int64_t>(1);
  env.Reset(2);  // ThreadVectorEnv cut it short
  EXPECT_THAT(script.games, ElementsAre(1, 2));
  EXPECT_EQ(RawReturn(&env), 9);
}

TEST(AtariTest, FireThenActionTwoBeginEveryEpisode) {
  Script script;
  script.fire_action = 1;
  script.lives = {{11, 2}};
  auto options = EpisodicLife();
  options.set_fire_reset(true);
  EnvironmentHarness env = MakeAtari(options, &script);
  env.Reset(1);
  EXPECT_THAT(script.actions, ElementsAre(1, 1, 1, 1, 2, 2, 2, 2));
  EXPECT_THAT(env.Observation<uint8_t>(), Each(8));
  EXPECT_TRUE(env.Step<int64_t>(3).terminated);
  script.actions.clear();
  env.Reset(2);
  EXPECT_THAT(script.actions, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2));
}

TEST(AtariTest, GamesWithoutFireAreNotFired) {
  Script script;
  auto options = Plain();
  options.set_fire_reset(true);
  EnvironmentHarness env = MakeAtari(options, &script);
  env.Reset(1);
  EXPECT_TRUE(script.actions.empty());
}

TEST(AtariTest, GameThatFireEndsBeginsAnew) {
  Script script;
  script.fire_action = 1;
  script.game_over = 7;  // in the second action
  auto options = Plain();
  options.set_fire_reset(true);
  EnvironmentHarness env = MakeAtari(options, &script);
  env.Reset(1);
  EXPECT_THAT(script.games, ElementsAre(1, 1));
  EXPECT_EQ(script.frame, 0);
  EXPECT_EQ(RawReturn(&env), std::nullopt);
}

TEST(AtariTest, OptionsOutOfRangeAreRefusedByName) {
  Script script;
  auto options = Plain();
  options.set_frame_skip(0);
  EXPECT_THAT(
      Atari::Make("ALE/Fake-v5", options,
                  std::make_unique<FakeEmulator>(&script)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("env.options.atari.frame_skip is 0, want 1 to")));
  options.set_frame_skip(4);
  options.set_repeat_action_probability(1.5);
  EXPECT_THAT(Atari::Make("ALE/Fake-v5", options,
                          std::make_unique<FakeEmulator>(&script)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("repeat_action_probability is 1.5")));
}

}  // namespace
}  // namespace flotilla
