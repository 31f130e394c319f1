#include "envserver/envs/breakout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "services/base/random.h"

namespace flotilla {
namespace {

using Game = BreakoutGame;

float Seen(const Game& game, int index) { return game.observed()[index]; }

// The rules once more, with every brick looked at in every tick.
class PlainBreakout {
 public:
  explicit PlainBreakout(uint64_t seed) : random_(seed), gone_(108, false) {
    NewRound();
  }

  int Step(int64_t action, int ticks) {
    const int before = score_;
    for (int i = 0; i < ticks && !Over(); ++i) Tick(action);
    return score_ - before;
  }

  bool Over() const { return balls_ == 0 || score_ == 864; }

  std::vector<float> Observed() const {
    const float top = 448.0f * (1.0f / 60);
    std::vector<float> seen = {paddle_ * (1 / 576.0f),
                               312 / 330.0f,
                               x_ * (1 / 576.0f),
                               y_ * (1 / 330.0f),
                               vx_ * (1 / top),
                               vy_ * (1 / top),
                               launched_ ? 1.0f : 0.0f,
                               static_cast<float>(score_) * (1 / 864.0f),
                               static_cast<float>(balls_ - 1) * (1 / 5.0f),
                               wide_ * (1 / 62.0f)};
    for (const bool gone : gone_) seen.push_back(gone ? 1.0f : 0.0f);
    return seen;
  }

 private:
  void NewRound() {
    wide_ = 62;
    paddle_ = (576 - 62) / 2.0f;
    x_ = (576 - 32) / 2.0f;
    y_ = 135;
    vx_ = vy_ = 0;
    speed_ = 256;
    touches_ = 0;
    launched_ = false;
  }

  // The brick that (x, y) overlaps most, the first of equals; -1.
  int Overlapped(float x, float y) const {
    int found = -1;
    float most = 0;
    for (int i = 0; i < 108; ++i) {
      if (gone_[static_cast<size_t>(i)]) continue;
      const float left = static_cast<float>(i % 18) * 32;
      const float top = 50 + static_cast<float>(i / 18) * 12;
      const float w = std::min(x + 32, left + 32) - std::max(x, left);
      const float h = std::min(y + 32, top + 12) - std::max(y, top);
      if (w > 0 && h > 0 && h * w > most) {
        most = h * w;
        found = i;
      }
    }
    return found;
  }

  void Take(int brick) {
    gone_[static_cast<size_t>(brick)] = true;
    const int points[] = {7, 7, 4, 4, 1, 1};
    score_ += points[brick / 18];
    if (brick / 18 < 3) speed_ = 448;
  }

  void Tick(int64_t action) {
    const float tick = 1.0f / 60;
    if (!launched_) {
      const float angle = 3.14159265358979f / 3.25f;
      launched_ = true;
      vx_ = std::sin(angle) * 256 * tick;
      vy_ = std::cos(angle) * 256 * tick;
      if (random_.Below(2) == 0) vx_ = -vx_;
    }
    const float pace = 620 * tick;
    if (action == 1) paddle_ -= pace;
    if (action == 2) paddle_ += pace;
    paddle_ = std::min(std::max(paddle_, 0.0f), 576 - wide_);
    const float x = x_ + vx_;
    if (const int brick = Overlapped(x, y_); brick >= 0) {
      Take(brick);
      vx_ = -vx_;
    } else {
      x_ = x;
      if (x < 0 || x > 544) {
        x_ = x < 0 ? 0 : 544;
        vx_ = -vx_;
      }
    }
    const float y = y_ + vy_;
    const bool crosses = vy_ > 0 && y_ + 32 <= 312 && y + 32 >= 312;
    if (const int brick = Overlapped(x_, y); brick >= 0) {
      Take(brick);
      vy_ = -vy_;
    } else if (y < 0) {
      y_ = 0;
      vy_ = -vy_;
      wide_ = 31;
    } else if (crosses && x_ + 32 > paddle_ && x_ < paddle_ + wide_) {
      y_ = 280;
      const float part = (x_ + 16 - paddle_) / wide_;
      const float angle = (2 * std::min(std::max(part, -0.25f), 1.25f) - 1) *
                          (3.14159265358979f / 4);
      vx_ = std::sin(angle) * speed_ * tick;
      vy_ = -std::cos(angle) * speed_ * tick;
      ++touches_;
      if (touches_ % 4 == 0 && speed_ < 448) speed_ += 64;
      if (score_ == 432) gone_.assign(108, false);
    } else {
      y_ = y;
    }
    if (y_ >= 320) {
      --balls_;
      NewRound();
    }
  }

  Random random_;
  std::vector<bool> gone_;
  float paddle_, wide_, x_, y_, vx_, vy_, speed_;
  int touches_, balls_ = 6, score_ = 0;
  bool launched_;
};

// Goes to where the ball is, and meets it with another part of the paddle each
// time.
int64_t Follow(const Game& game, float aim) {
  const float ball = Seen(game, 2) * 576 + 16;
  const float middle = Seen(game, 0) * 576 + Seen(game, 9) * 62 * aim;
  return ball < middle - 6 ? 1 : ball > middle + 6 ? 2 : 0;
}

TEST(BreakoutTest, IsWhatItsRulesSayTickByTick) {
  for (const uint64_t seed : {1u, 2u, 3u, 4u}) {
    for (const int ticks : {1, 4, 7}) {
      Game game;
      game.Reset(seed);
      PlainBreakout plain(seed);
      std::minstd_rand random(static_cast<unsigned>(seed));
      for (int step = 0; step < 4000 && !game.over(); ++step) {
        // Mostly well, so that there is something to see.
        const int64_t action =
            random() % 8 == 0
                ? static_cast<int64_t>(random() >> 8) % 3
                : Follow(game,
                         0.2f + 0.06f * static_cast<float>(step / 64 % 10));
        ASSERT_EQ(game.Step(action, ticks), plain.Step(action, ticks));
        ASSERT_EQ(std::vector<float>(game.observed(),
                                     game.observed() + Game::kObserved),
                  plain.Observed())
            << "seed " << seed << ", step " << step;
        ASSERT_EQ(game.over(), plain.Over());
      }
    }
  }
}

TEST(BreakoutTest, WhoFollowsTheBallClearsBothWallsFor864Points) {
  int best = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Game game;
    game.Reset(seed);
    Random random(seed);
    float aim = 0.5f;
    bool second = false;
    for (int tick = 0; tick < 200000 && !game.over(); ++tick) {
      if (tick % 97 == 0) aim = static_cast<float>(random.Uniform(0.1, 0.9));
      const int before = game.score();
      game.Step(Follow(game, aim), 1);
      ASSERT_GE(game.score(), before);
      if (game.score() < 432) {
        ASSERT_FALSE(second);
      }
      second = second || game.score() > 432;
    }
    EXPECT_LE(game.score(), 864);
    if (game.score() == 864) {
      EXPECT_TRUE(game.over());
      EXPECT_TRUE(std::all_of(game.observed() + Game::kNumbers,
                              game.observed() + Game::kObserved,
                              [](float gone) { return gone == 1; }));
    }
    best = std::max(best, game.score());
  }
  EXPECT_EQ(best, 864);
}

TEST(BreakoutTest, WhoDoesNothingLosesSixBalls) {
  Game game;
  game.Reset(3);
  int steps = 0;
  while (!game.over()) {
    const int before = game.spare_balls();
    game.Step(0, 4);
    EXPECT_LE(before - game.spare_balls(), 1);
    ASSERT_LT(++steps, 10000);
  }
  EXPECT_EQ(game.spare_balls(), -1);
  EXPECT_GE(steps, 6 * 10);
}

TEST(BreakoutTest, WallsArePointsOf432) {
  int points = 0;
  for (int brick = 0; brick < Game::kBricks; ++brick) {
    points += Game::Points(brick);
  }
  EXPECT_EQ(points, Game::kWallScore);
  EXPECT_EQ(Game::Points(0), 7);
  EXPECT_EQ(Game::Points(107), 1);
}

TEST(BreakoutTest, WhatIsObservedIsOfMagnitudeOne) {
  Game game;
  game.Reset(5);
  std::minstd_rand random(5);
  for (int step = 0; step < 5000 && !game.over(); ++step) {
    game.Step(Follow(game, 0.3f), 4);
    for (int i = 0; i < Game::kObserved; ++i) {
      ASSERT_GE(Seen(game, i), -1.001f) << i;
      ASSERT_LE(Seen(game, i), 1.001f) << i;
    }
  }
}

TEST(BreakoutTest, APictureShowsBallPaddleAndBricks) {
  Game game;
  game.Reset(5);
  for (int step = 0; step < 300 && !game.over(); ++step) {
    game.Step(Follow(game, 0.3f), 4);
    const v1::Frame frame = game.Render();
    ASSERT_EQ(frame.width(), 576);
    ASSERT_EQ(frame.height(), 330);
    const auto lit = [&](float x, float y) {
      const auto at = static_cast<size_t>(y) * 576 + static_cast<size_t>(x);
      return static_cast<uint8_t>(frame.rgb()[3 * at]) > 60;
    };
    ASSERT_TRUE(lit(Seen(game, 2) * 576 + 16, Seen(game, 3) * 330 + 16));
    ASSERT_TRUE(lit(Seen(game, 0) * 576 + 5, 316));
    const float beside = Seen(game, 0) * 576 - 3;
    if (beside >= 0) {
      ASSERT_FALSE(lit(beside, 316));
    }
    // A brick that the ball is far from.
    ASSERT_EQ(lit(16, 50 + 5 * 12 + 6) || Seen(game, 2) * 576 < 40,
              Seen(game, 10 + 5 * 18) == 0 || Seen(game, 2) * 576 < 40);
  }
}

}  // namespace
}  // namespace flotilla
