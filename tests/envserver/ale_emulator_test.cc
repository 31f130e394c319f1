#include "envserver/envs/ale_emulator.h"

#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::Contains;
using testing::HasSubstr;

class AleEmulatorTest : public testing::Test {
 protected:
  void SetUp() override {
    if (ListAtariGames().empty()) GTEST_SKIP() << "no emulator in this build";
  }
};

std::vector<uint8_t> Screen(const AtariEmulator& emulator) {
  std::vector<uint8_t> gray(emulator.height() * emulator.width());
  emulator.Screen(gray.data());
  return gray;
}

TEST_F(AleEmulatorTest, GamesHaveTheNamesOfAlePy) {
  EXPECT_THAT(ListAtariGames(), Contains("ALE/Breakout-v5"));
  EXPECT_THAT(ListAtariGames(), Contains("ALE/SpaceInvaders-v5"));
  EXPECT_THAT(ListAtariGames(), Contains("ALE/TicTacToe3D-v5"));
}

TEST_F(AleEmulatorTest, BreakoutHasItsFourActionsAndFiveLives) {
  ASSERT_OK_AND_ASSIGN(const auto emulator,
                       OpenAleEmulator("ALE/Breakout-v5", {}));
  emulator->NewGame(1);
  EXPECT_EQ(emulator->num_actions(), 4);
  EXPECT_EQ(emulator->fire_action(), 1);
  EXPECT_EQ(emulator->lives(), 5);
  EXPECT_EQ(emulator->height(), 210);
  EXPECT_EQ(emulator->width(), 160);
  EXPECT_FALSE(emulator->game_over());
}

TEST_F(AleEmulatorTest, FullActionSpaceHasEighteen) {
  v1::AtariOptions options;
  options.set_full_action_space(true);
  ASSERT_OK_AND_ASSIGN(const auto emulator,
                       OpenAleEmulator("ALE/Breakout-v5", options));
  EXPECT_EQ(emulator->num_actions(), 18);
}

TEST_F(AleEmulatorTest, StickyActionsFollowTheSeed) {
  v1::AtariOptions options;
  options.set_repeat_action_probability(0.5);
  const auto play = [&](uint64_t seed) {
    auto emulator = OpenAleEmulator("ALE/Pong-v5", options);
    CHECK(emulator.ok()) << emulator.status();
    (*emulator)->NewGame(seed);
    for (int i = 0; i < 200; ++i) (*emulator)->Act(i / 5 % 2 == 0 ? 2 : 3);
    return Screen(**emulator);
  };
  EXPECT_EQ(play(1), play(1));
  EXPECT_NE(play(1), play(2));
}

// Screens, lives and rewards of 500 frames of a new game.
std::vector<int> Play(uint64_t seed, AtariEmulator* emulator) {
  std::vector<int> seen;
  emulator->NewGame(seed);
  for (int i = 0; i < 500; ++i) {
    seen.push_back(emulator->Act(i / 5 * 7 % emulator->num_actions()));
    seen.push_back(emulator->lives());
    if (i % 20 != 0) continue;
    const std::vector<uint8_t> screen = Screen(*emulator);
    seen.insert(seen.end(), screen.begin(), screen.end());
  }
  return seen;
}

TEST_F(AleEmulatorTest, GameIsItsSeedAndActionsWhateverWasPlayedBefore) {
  for (const char* game :
       {"Breakout", "Pong", "SpaceInvaders", "Seaquest", "Qbert", "BeamRider",
        "MontezumaRevenge", "Asteroids", "Pitfall2", "Tetris", "VideoPinball",
        "Frostbite"}) {
    const std::string env_id = std::string("ALE/") + game + "-v5";
    ASSERT_OK_AND_ASSIGN(const auto fresh, OpenAleEmulator(env_id, {}));
    const std::vector<int> first = Play(1, fresh.get());
    ASSERT_OK_AND_ASSIGN(const auto played, OpenAleEmulator(env_id, {}));
    Play(7, played.get());
    // Not EXPECT_EQ, which would print the screens.
    EXPECT_TRUE(Play(1, played.get()) == first) << env_id;
  }
}

TEST_F(AleEmulatorTest, FrameLimitIsNotTheGamesEnd) {
  v1::AtariOptions options;
  options.set_max_frames(10);
  ASSERT_OK_AND_ASSIGN(const auto emulator,
                       OpenAleEmulator("ALE/Pong-v5", options));
  emulator->NewGame(1);
  for (int i = 0; i < 9; ++i) emulator->Act(0);
  EXPECT_FALSE(emulator->out_of_frames());
  emulator->Act(0);
  EXPECT_TRUE(emulator->out_of_frames());
  EXPECT_FALSE(emulator->game_over());
  emulator->NewGame(2);
  EXPECT_FALSE(emulator->out_of_frames());
}

TEST_F(AleEmulatorTest, UnknownGameNamesTheNearest) {
  EXPECT_THAT(OpenAleEmulator("ALE/Breakuot-v5", {}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("did you mean \"ALE/Breakout-v5\"")));
}

TEST_F(AleEmulatorTest, MissingRomsSayHowToGetThem) {
  const TempDir empty;
  setenv("FLOTILLA_ALE_ROMS", empty.path().c_str(), 1);
  EXPECT_THAT(OpenAleEmulator("ALE/Pong-v5", {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("cmake/setup.sh")));
  EXPECT_TRUE(ListAtariGames().empty());
  unsetenv("FLOTILLA_ALE_ROMS");
}

}  // namespace
}  // namespace flotilla
