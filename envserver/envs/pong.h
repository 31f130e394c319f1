#ifndef FLOTILLA_ENVSERVER_ENVS_PONG_H_
#define FLOTILLA_ENVSERVER_ENVS_PONG_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "envserver/environment_arguments.h"
#include "envserver/envs/game_batch.h"
#include "services/base/random.h"

namespace flotilla {

// One game of Pong, in pixels and ticks. (0, 0) is the upper left; the paddles
// guard the left and the right edge.
//
// A tick moves both paddles, then the ball.
class PongGame {
 public:
  static constexpr float kWidth = 500, kHeight = 640;
  static constexpr float kPaddleWidth = 20, kPaddleHeight = 70;
  static constexpr float kPaddleStep = 8;
  static constexpr float kBall = 32;  // a square
  static constexpr float kSpeedX = 10, kFirstSpeedY = 1;
  static constexpr float kSpin = 3, kTopSpeedY = 13;
  static constexpr int kTopScore = 21;
  static constexpr int kObserved = 8, kActions = 3, kMaxSteps = 20000;
  static constexpr float kRewardOfAPoint = 1;

  void Reset(uint64_t seed);

  // Takes an action for `ticks` ticks, or until the game is over. Returns the
  // points made by the right less those by the left.
  int Step(int64_t action, int ticks);

  bool over() const { return left_ == kTopScore || right_ == kTopScore; }
  int left() const { return left_; }
  int right() const { return right_; }

  // What Pong observes, [kObserved].
  void Observe(void* to) const;

  v1::Frame Render() const;

 private:
  void Serve();
  void Tick(float direction);

  float left_paddle_, right_paddle_;  // their upper ends
  float ball_x_, ball_y_, speed_x_, speed_y_;
  int left_, right_;  // points
  Random random_{0};
};

// Pong to 21 points: the agent is the right paddle, a script the left one, which
// goes towards the ball, as fast as the agent.
//
//   observation  float32 [8]  left and right paddle's y / 570; ball's x / 468 and
//                             y / 608; its speed along x / 10 and y / 13; the left's
//                             and the right's points / 21
//   action       int64 []     stay, up, down
//   reward       1 for a point, -1 for the other's
//   ends         when one of both has 21 points; a time limit ends it after 20,000
//                steps
//
// frame_skip (4): ticks that a step takes.
//
// Sizes, speeds and points are those of Pong in PufferLib 3.0 (pong.ini), so is that
// a paddle which wants to move as it meets the ball, even if an edge keeps it where it
// is, makes the ball faster up or down: 13 pixels a tick at most, which a paddle's 8
// cannot follow. All code is ours. What differs: the script, which goes towards where
// the ball is in every tick; how what is observed is scaled; and the time limit.
class Pong final : public GameBatch<PongGame> {
 public:
  static std::vector<EnvironmentOption> Options();
  // Errors: kInvalidArgument if an option does not fit.
  static absl::StatusOr<std::unique_ptr<BatchEnvironment>> Make(
      const EnvironmentArguments& arguments, size_t environments);

 private:
  Pong(size_t environments, int frame_skip);
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_PONG_H_
