#include "envserver/envs/pong.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>

namespace flotilla {
namespace {

using Seen = std::array<float, PongGame::kObserved>;

Seen Observe(const PongGame& game) {
  Seen seen;
  game.Observe(seen.data());
  return seen;
}

// Towards the ball, in pixels from the paddle's middle to the ball's.
float Away(const Seen& seen) {
  return (seen[3] * 608 + 16) - (seen[1] * 570 + 35);
}

TEST(PongTest, WhoDoesNothingLosesMostRounds) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    PongGame game;
    game.Reset(seed);
    int sum = 0, steps = 0;
    while (!game.over()) {
      sum += game.Step(0, 4);
      ASSERT_LT(++steps, 20000) << seed;
    }
    EXPECT_EQ(sum, game.right() - game.left());
    EXPECT_EQ(game.left(), PongGame::kTopScore) << seed;
  }
}

// Where the ball will be, as high as it is then, when it comes to the right.
float Arrival(const Seen& seen) {
  const float ticks = (448 - seen[2] * 468) / 10;
  float y =
      std::fmod(std::abs(seen[3] * 608 + seen[5] * 13 * ticks), 2 * 608.0f);
  return y > 608 ? 2 * 608 - y : y;
}

// The ball can be made faster than the script's paddle, by who knows where it will
// be and moves as it is met.
TEST(PongTest, WhoAddsSpinBeatsTheScript) {
  PongGame game;
  game.Reset(1);
  int ticks = 0;
  while (!game.over() && ticks < 200000) {
    const Seen seen = Observe(game);
    const float there = seen[4] > 0 ? Arrival(seen) : 304;
    const float away = (there + 16) - (seen[1] * 570 + 35);
    int64_t action = away < -8 ? 1 : away > 8 ? 2 : 0;
    if (seen[4] > 0 && seen[2] * 468 + 10 > 448) action = seen[5] < 0 ? 1 : 2;
    game.Step(action, 1);
    ++ticks;
  }
  EXPECT_EQ(game.right(), PongGame::kTopScore);
  EXPECT_LT(game.left(), 5);
}

TEST(PongTest, EveryTickIsPhysics) {
  PongGame game;
  game.Reset(4);
  Seen before = Observe(game);
  int served = 0, bounced = 0, returned = 0;
  for (int tick = 0; tick < 20000 && !game.over(); ++tick) {
    const float away = Away(before);
    const int64_t action = away < -4 ? 1 : away > 4 ? 2 : 0;
    const int points = game.Step(action, 1);
    const Seen seen = Observe(game);
    for (const float number : seen) {
      ASSERT_GE(number, -1.001f);
      ASSERT_LE(number, 1.001f);
    }
    // Nobody goes further than 8 pixels, nor does the ball more than 10 along x.
    ASSERT_LE(std::abs(seen[0] - before[0]) * 570, 8.01f);
    ASSERT_LE(std::abs(seen[1] - before[1]) * 570, 8.01f);
    ASSERT_EQ(std::abs(seen[4]), 1);
    if (points != 0) {
      ++served;
      ASSERT_FLOAT_EQ(seen[2], 0.5f);
      ASSERT_FLOAT_EQ(std::abs(seen[5]) * 13, 1);
    } else {
      ASSERT_LE(std::abs(seen[2] - before[2]) * 468, 10.01f);
      ASSERT_LE(std::abs(seen[3] - before[3]) * 608, 13.01f);
      // What turns it back is a paddle that is there.
      if (seen[4] != before[4]) {
        ++returned;
        ASSERT_FLOAT_EQ(seen[2] * 468, seen[4] < 0 ? 448 : 20);
        const float paddle = seen[4] < 0 ? seen[1] : seen[0];
        ASSERT_GT(seen[3] * 608 + 32, paddle * 570);
        ASSERT_LT(seen[3] * 608, paddle * 570 + 70);
      } else if (seen[5] == -before[5] && seen[5] != 0) {
        ++bounced;
        ASSERT_TRUE(seen[3] == 0 || seen[3] == 1) << seen[3];
      }
    }
    before = seen;
  }
  EXPECT_GT(returned, 50);
  EXPECT_GT(bounced, 10);
  EXPECT_GT(served, 0);
}

TEST(PongTest, TheSameSeedIsTheSameGame) {
  PongGame one, two, other;
  one.Reset(8);
  two.Reset(8);
  bool differs = false;
  for (uint64_t seed = 9; seed < 20; ++seed) {
    other.Reset(seed);
    differs = differs || Observe(other) != Observe(one);
  }
  EXPECT_TRUE(differs);
  for (int64_t step = 0; step < 500 && !one.over(); ++step) {
    ASSERT_EQ(one.Step(step / 7 % 3, 4), two.Step(step / 7 % 3, 4));
    ASSERT_EQ(Observe(one), Observe(two));
  }
}

TEST(PongTest, APictureShowsBothPaddlesAndTheBall) {
  PongGame game;
  game.Reset(2);
  for (int step = 0; step < 200; ++step) {
    game.Step(step / 5 % 3, 4);
    const Seen seen = Observe(game);
    const v1::Frame frame = game.Render();
    ASSERT_EQ(frame.rgb().size(), 500u * 640 * 3);
    const auto lit = [&](float x, float y) {
      const auto at = static_cast<size_t>(y) * 500 + static_cast<size_t>(x);
      return static_cast<uint8_t>(frame.rgb()[3 * at + 1]) > 100;
    };
    ASSERT_TRUE(lit(10, seen[0] * 570 + 35));
    ASSERT_TRUE(lit(490, seen[1] * 570 + 35));
    ASSERT_TRUE(lit(seen[2] * 468 + 16, seen[3] * 608 + 16));
  }
}

}  // namespace
}  // namespace flotilla
