#ifndef FLOTILLA_ENVSERVER_ENVS_BREAKOUT_H_
#define FLOTILLA_ENVSERVER_ENVS_BREAKOUT_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "envserver/environment_arguments.h"
#include "envserver/envs/game_batch.h"
#include "services/base/random.h"

namespace flotilla {

// One game of Breakout, in pixels and ticks of 1/60 s. (0, 0) is the upper left.
//
// A tick moves the paddle, then the ball along x, then along y; at most one brick
// breaks with each. Nothing moves further than a brick is high, so nothing passes
// through anything.
class BreakoutGame {
 public:
  static constexpr float kWidth = 576, kHeight = 330;
  static constexpr int kColumns = 18, kRows = 6, kBricks = kColumns * kRows;
  static constexpr float kBrickWidth = 32, kBrickHeight = 12, kBricksTop = 50;
  static constexpr float kBall = 32;  // a square
  static constexpr float kPaddleWidth = 62, kPaddleTop = 312, kPaddleHeight = 8;
  static constexpr float kTick = 1.0f / 60;
  static constexpr float kPaddleStep = 620 * kTick;
  static constexpr float kFirstSpeed = 256, kTopSpeed = 448;  // a second
  static constexpr int kSpareBalls = 5;
  static constexpr int kWallScore = 432, kMaxScore = 2 * kWallScore;
  static constexpr int kNumbers = 10, kObserved = kNumbers + kBricks;
  static constexpr int kActions = 3, kMaxSteps = 10000;
  static constexpr float kRewardOfAPoint = 1;

  static constexpr int Points(int brick) {
    return 7 - 3 * (brick / kColumns / 2);
  }

  void Reset(uint64_t seed);

  // Takes an action for `ticks` ticks, or until the game is over. Returns the
  // points that were made.
  int Step(int64_t action, int ticks);

  bool over() const { return spare_balls_ < 0 || score_ == kMaxScore; }
  int score() const { return score_; }
  int spare_balls() const { return spare_balls_; }

  // What Breakout observes: [kObserved].
  const float* observed() const { return observed_; }
  void Observe(void* to) const { std::memcpy(to, observed_, sizeof observed_); }

  v1::Frame Render() const;

 private:
  void StartRound();
  void Launch();
  void Tick(float paddle_step);
  bool FliesFreely(int ticks) const;
  // The standing brick that a ball at (x, y) covers most of; -1: none.
  int Struck(float x, float y) const;
  void Break(int brick);
  void MeetPaddle();
  void Refresh();

  float ball_x_, ball_y_, speed_x_, speed_y_;  // the latter a tick
  float paddle_, paddle_width_;
  float speed_;  // of the next touch of the paddle, a second
  int hits_;     // of the paddle, in this round
  int spare_balls_, score_;
  bool flying_;
  Random random_{0};
  float observed_[kObserved];
};

// Breakout: a ball, a paddle and two walls of 108 bricks, one after the other.
//
//   observation  float32 [118]  paddle's x / 576 and y / 330; ball's x / 576 and
//                               y / 330; its speed along x and y / 448 px/s;
//                               whether it flies; score / 864; spare balls / 5;
//                               paddle's width / 62; then each brick, row by row
//                               from the top: 1 if it is gone
//   action       int64 []       stay, left, right
//   reward       a brick's points: 7, 7, 4, 4, 1, 1 by row from the top
//   ends         when the sixth ball is lost, or at 864 points, which clear both
//                walls; a time limit ends it after 10,000 steps
//
// frame_skip (4): ticks of 1/60 s that a step takes.
//
// Sizes, speeds, points and balls are those of Breakout in PufferLib 3.0
// (breakout.ini), so are what makes the ball faster (each fourth touch of the
// paddle in a round; at once the fastest from the upper three rows on) and the
// paddle shorter (the wall behind the bricks). All code is ours. What differs:
// how the ball meets a brick is decided along one axis after the other; the paddle
// sends it off at 67.5 degrees at most, where there a short paddle's edge may send
// it down; speeds are observed in units of the fastest, not of 512 px a tick; and
// the time limit.
class Breakout final : public GameBatch<BreakoutGame> {
 public:
  static std::vector<EnvironmentOption> Options();
  // Errors: kInvalidArgument if an option does not fit.
  static absl::StatusOr<std::unique_ptr<BatchEnvironment>> Make(
      const EnvironmentArguments& arguments, size_t environments);

 private:
  Breakout(size_t environments, int frame_skip);
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_BREAKOUT_H_
