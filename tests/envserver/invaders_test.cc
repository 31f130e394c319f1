#include "envserver/envs/invaders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace flotilla {
namespace {

constexpr int kFire = 1, kRight = 2, kLeft = 3;

// What is observed, in pixels and by name.
class Seen {
 public:
  explicit Seen(const InvadersGame& game) { game.Observe(all.data()); }

  float cannon() const { return all[0] * 152; }
  bool shot_flies() const { return all[1] == 1; }
  float shot_x() const { return all[2] * 160; }
  float shot_y() const { return all[3] * 192; }
  int lives() const { return static_cast<int>(std::lround(all[4] * 3)); }
  int waves() const { return static_cast<int>(std::lround(all[5] * 5)); }
  bool their_shot_flies(int i) const { return all[6 + 3 * i] == 1; }
  float their_shot_x(int i) const {  // from the cannon's middle
    return all[7 + 3 * i] * 160;
  }
  float their_shot_y(int i) const { return all[8 + 3 * i] * 192; }
  float left() const { return (all[15] * 160 + 160 - 88) / 2; }
  float top() const { return all[16] * 192; }
  float direction() const { return all[17]; }
  const float* invaders() const { return all.data() + 19; }
  int alive() const {
    return static_cast<int>(std::accumulate(invaders(), invaders() + 36, 0.0f));
  }
  int cells() const {
    return static_cast<int>(std::accumulate(all.end() - 24, all.end(), 0.0f));
  }

  std::array<float, InvadersGame::kObserved> all;
};

// Walks under whoever it can hit and shoots, and out of the way of what falls.
int64_t Play(const Seen& seen) {
  const float middle = seen.cannon() + 4;
  for (int i = 0; i < 3; ++i) {
    if (!seen.their_shot_flies(i)) continue;
    const float x = seen.their_shot_x(i), y = seen.their_shot_y(i);
    if (y > 100 && std::abs(x) < 8) {
      // From the wall there is one way only.
      const bool right = middle < 12 ? true : middle > 148 ? false : x <= 0;
      return right ? kRight : kLeft;
    }
  }
  if (seen.shot_flies()) return 0;
  // The nearest column, as it will be when a shot is there.
  float best = 1000;
  for (int i = 0; i < 36; ++i) {
    if (seen.invaders()[i] == 0) continue;
    const float speed = 2.0f / static_cast<float>(1 + seen.alive() / 3);
    const float rise =
        (166 - (seen.top() + 16.0f * static_cast<float>(i / 6))) / 4;
    float x = seen.left() + 16.0f * static_cast<float>(i % 6) + 4 +
              seen.direction() * speed * rise;
    x = std::clamp(x, 4.0f, 156.0f);
    if (std::abs(x - middle) < std::abs(best)) best = x - middle;
  }
  return std::abs(best) < 3 ? kFire : best > 0 ? kRight : kLeft;
}

TEST(InvadersTest, WhoDodgesAndAimsShootsWavesDown) {
  int score = 0, best = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    InvadersGame game;
    game.Reset(seed);
    int made = 0, ticks = 0;
    while (!game.over() && ++ticks < 100000)
      made += game.Step(Play(Seen(game)), 1);
    EXPECT_TRUE(game.over());
    EXPECT_EQ(made, game.score());
    EXPECT_GE(game.score(), game.waves() * InvadersGame::kWaveScore);
    score += made;
    best = std::max(best, game.waves());
  }
  EXPECT_GT(score, 10 * InvadersGame::kWaveScore);
  EXPECT_GE(best, 2);
}

TEST(InvadersTest, WhoDoesNothingIsShotOrInvaded) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    InvadersGame game;
    game.Reset(seed);
    int ticks = 0;
    while (!game.over()) {
      EXPECT_EQ(game.Step(0, 1), 0);
      ASSERT_LT(++ticks, 20000);
    }
    EXPECT_EQ(game.score(), 0);
    const Seen seen(game);
    // The lowest row reaches the cannon, if a life is left until then.
    if (game.lives() > 0) {
      EXPECT_GT(seen.top() + 5 * 16 + 8, 172);
    }
  }
}

TEST(InvadersTest, EveryTickIsByTheRules) {
  int hits = 0, dropped = 0, died = 0, worn = 0, begun = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    InvadersGame game;
    game.Reset(seed);
    Seen before(game);
    while (!game.over()) {
      const int points = game.Step(Play(before), 1);
      const Seen seen(game);
      for (const float number : seen.all) {
        ASSERT_GE(number, -1.5f);
        ASSERT_LE(number, 1.5f);
      }
      if (seen.waves() > before.waves()) {  // all of it anew
        EXPECT_EQ(before.alive(), 1);       // the last one, in this tick
        if (!game.over()) {
          ++begun;
          EXPECT_EQ(seen.alive(), 36);
          EXPECT_EQ(seen.cells(), 24);
          EXPECT_NEAR(seen.top(), 30 + 8 * seen.waves(), 1e-3);
        }
        before = seen;
        continue;
      }
      // At most one is shot a tick: points are its row's, and its shot is spent.
      ASSERT_LE(before.alive() - seen.alive(), 1);
      if (points != 0) {
        ++hits;
        EXPECT_FALSE(seen.shot_flies());
        const float* gone =
            std::mismatch(before.invaders(), before.invaders() + 36,
                          seen.invaders())
                .first;
        const auto index = static_cast<int>(gone - before.invaders());
        EXPECT_EQ(points, 5 * (6 - index / 6));
        const float x = before.shot_x() - before.left() -
                        16.0f * static_cast<float>(index % 6);
        EXPECT_GE(x, -1e-3);
        EXPECT_LT(x, 8);
      } else {
        EXPECT_EQ(before.alive(), seen.alive());
      }
      if (before.shot_flies() && seen.shot_flies()) {
        EXPECT_NEAR(before.shot_y() - seen.shot_y(), 4, 1e-3);
        EXPECT_NEAR(before.shot_x(), seen.shot_x(), 1e-3);
      }
      // Along a side, or a step down at it.
      if (seen.top() != before.top()) {
        ++dropped;
        EXPECT_NEAR(seen.top() - before.top(), 6, 1e-3);
        EXPECT_EQ(seen.direction(), -before.direction());
        EXPECT_NEAR(seen.left(), before.left(), 1e-3);
      } else {
        EXPECT_EQ(seen.direction(), before.direction());
        EXPECT_LE(std::abs(seen.left() - before.left()), 2.001f);
      }
      if (seen.lives() < before.lives()) {
        ++died;
        EXPECT_EQ(seen.lives(), before.lives() - 1);
        for (int i = 0; i < 3; ++i) EXPECT_FALSE(seen.their_shot_flies(i));
        EXPECT_NEAR(seen.cannon(), 76, 1e-3);
      } else {
        EXPECT_LE(std::abs(seen.cannon() - before.cannon()), 1.001f);
      }
      if (seen.cells() < before.cells()) ++worn;
      before = seen;
    }
  }
  EXPECT_GT(hits, 300);
  EXPECT_GT(dropped, 20);
  EXPECT_GT(died, 5);
  EXPECT_GT(worn, 100);
  EXPECT_GT(begun, 5);
}

TEST(InvadersTest, TheSameSeedIsTheSameGame) {
  InvadersGame one, two, other;
  one.Reset(8);
  two.Reset(8);
  bool differs = false;
  for (int64_t step = 0; step < 500 && !one.over(); ++step) {
    ASSERT_EQ(one.Step(step / 7 % 6, 4), two.Step(step / 7 % 6, 4));
    ASSERT_EQ(Seen(one).all, Seen(two).all);
  }
  for (uint64_t seed = 9; seed < 20; ++seed) {
    one.Reset(8);
    other.Reset(seed);
    differs = differs || Seen(other).all != Seen(one).all;
  }
  EXPECT_TRUE(differs);
}

TEST(InvadersTest, APictureShowsCannonShotAndInvaders) {
  InvadersGame game;
  game.Reset(2);
  int shots = 0;
  for (int step = 0; step < 100 && !game.over(); ++step) {
    game.Step(step / 5 % 6, 4);
    const Seen seen(game);
    const v1::Frame frame = game.Render();
    ASSERT_EQ(frame.rgb().size(), 480u * 576 * 3);
    const auto lit = [&](float x, float y) {
      const auto at =
          static_cast<size_t>(3 * y + 1) * 480 + static_cast<size_t>(3 * x + 1);
      return static_cast<uint8_t>(frame.rgb()[3 * at + 1]) > 60;
    };
    ASSERT_TRUE(lit(seen.cannon() + 4, 177));
    if (seen.shot_flies()) {
      ++shots;
      ASSERT_TRUE(
          lit(std::round(seen.shot_x()), std::round(seen.shot_y()) + 2));
    }
    for (int i = 0; i < 36; ++i) {
      if (seen.invaders()[i] == 0) continue;
      ASSERT_TRUE(
          lit(std::round(seen.left()) + 16.0f * static_cast<float>(i % 6) + 4,
              std::round(seen.top()) + 16.0f * static_cast<float>(i / 6) + 4));
    }
  }
  EXPECT_GT(shots, 10);
}

}  // namespace
}  // namespace flotilla
