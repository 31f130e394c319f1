#include "envserver/envs/breakout.h"

#include <algorithm>
#include <cmath>

#include "envserver/envs/frame_skip.h"
#include "envserver/picture.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr float kPi = 3.14159265358979f;
// Where a ball touches nothing.
constexpr float kFreeTop =
    BreakoutGame::kBricksTop + BreakoutGame::kRows * BreakoutGame::kBrickHeight;
constexpr float kFreeBottom = BreakoutGame::kPaddleTop - BreakoutGame::kBall;
constexpr float kRight = BreakoutGame::kWidth - BreakoutGame::kBall;

}  // namespace

void BreakoutGame::Reset(uint64_t seed) {
  random_ = Random(seed);
  score_ = 0;
  spare_balls_ = kSpareBalls;
  std::fill_n(observed_ + kNumbers, kBricks, 0.0f);
  StartRound();
  Refresh();
}

void BreakoutGame::StartRound() {
  paddle_width_ = kPaddleWidth;
  paddle_ = (kWidth - kPaddleWidth) / 2;
  speed_ = kFirstSpeed;
  hits_ = 0;
  flying_ = false;
  ball_x_ = (kWidth - kBall) / 2;
  ball_y_ = kHeight / 2 - 30;
  speed_x_ = 0;
  speed_y_ = 0;
}

// Down, to either side.
void BreakoutGame::Launch() {
  constexpr float kAngle = kPi / 3.25f;
  flying_ = true;
  speed_x_ = std::sin(kAngle) * kFirstSpeed * kTick;
  speed_y_ = std::cos(kAngle) * kFirstSpeed * kTick;
  if (random_.Below(2) == 0) speed_x_ = -speed_x_;
}

int BreakoutGame::Step(int64_t action, int ticks) {
  const int before = score_;
  const float paddle_step = action == 1   ? -kPaddleStep
                            : action == 2 ? kPaddleStep
                                          : 0;
  if (FliesFreely(ticks)) {
    const float last = kWidth - paddle_width_;
    for (int i = 0; i < ticks; ++i) {
      paddle_ = std::clamp(paddle_ + paddle_step, 0.0f, last);
      ball_x_ += speed_x_;
      ball_y_ += speed_y_;
    }
  } else {
    for (int i = 0; i < ticks && !over(); ++i) Tick(paddle_step);
  }
  Refresh();
  return score_ - before;
}

// Whether the ball meets nothing for so long: it stays in a rectangle of nothing, a
// pixel inside of it, whatever is rounded.
bool BreakoutGame::FliesFreely(int ticks) const {
  const float x = ball_x_ + static_cast<float>(ticks) * speed_x_;
  const float y = ball_y_ + static_cast<float>(ticks) * speed_y_;
  return flying_ && std::min(x, ball_x_) > 1 &&
         std::max(x, ball_x_) < kRight - 1 &&
         std::min(y, ball_y_) > kFreeTop + 1 &&
         std::max(y, ball_y_) < kFreeBottom - 1;
}

void BreakoutGame::Tick(float paddle_step) {
  if (!flying_) Launch();
  paddle_ = std::clamp(paddle_ + paddle_step, 0.0f, kWidth - paddle_width_);

  const float x = ball_x_ + speed_x_;
  if (const int brick = Struck(x, ball_y_); brick >= 0) {
    Break(brick);
    speed_x_ = -speed_x_;
  } else if (x < 0 || x > kRight) {
    ball_x_ = std::clamp(x, 0.0f, kRight);
    speed_x_ = -speed_x_;
  } else {
    ball_x_ = x;
  }

  const float y = ball_y_ + speed_y_;
  if (const int brick = Struck(ball_x_, y); brick >= 0) {
    Break(brick);
    speed_y_ = -speed_y_;
  } else if (y < 0) {
    ball_y_ = 0;
    speed_y_ = -speed_y_;
    paddle_width_ = kPaddleWidth / 2;
  } else if (speed_y_ > 0 && ball_y_ <= kFreeBottom && y >= kFreeBottom &&
             ball_x_ + kBall > paddle_ && ball_x_ < paddle_ + paddle_width_) {
    MeetPaddle();
  } else {
    ball_y_ = y;
  }
  if (ball_y_ >= kPaddleTop + kPaddleHeight) {
    --spare_balls_;
    StartRound();
  }
}

int BreakoutGame::Struck(float x, float y) const {
  if (y >= kFreeTop || y + kBall <= kBricksTop) return -1;
  const auto index = [](float at, int last) {
    return std::clamp(static_cast<int>(std::floor(at)), 0, last);
  };
  const int left = index(x / kBrickWidth, kColumns - 1);
  const int right = index((x + kBall) / kBrickWidth, kColumns - 1);
  const int top = index((y - kBricksTop) / kBrickHeight, kRows - 1);
  const int bottom = index((y + kBall - kBricksTop) / kBrickHeight, kRows - 1);
  int struck = -1;
  float most = 0;
  for (int row = top; row <= bottom; ++row) {
    const float brick_y = kBricksTop + static_cast<float>(row) * kBrickHeight;
    const float high =
        std::min(y + kBall, brick_y + kBrickHeight) - std::max(y, brick_y);
    for (int column = left; column <= right; ++column) {
      if (observed_[kNumbers + row * kColumns + column] != 0) continue;
      const float brick_x = static_cast<float>(column) * kBrickWidth;
      const float wide =
          std::min(x + kBall, brick_x + kBrickWidth) - std::max(x, brick_x);
      if (high <= 0 || wide <= 0 || high * wide <= most) continue;
      most = high * wide;
      struck = row * kColumns + column;
    }
  }
  return struck;
}

void BreakoutGame::Break(int brick) {
  score_ += Points(brick);
  observed_[kNumbers + brick] = 1;
  if (brick < kBricks / 2) speed_ = kTopSpeed;
}

void BreakoutGame::MeetPaddle() {
  ball_y_ = kFreeBottom;
  const float where = (ball_x_ + kBall / 2 - paddle_) / paddle_width_;
  const float angle = (2 * std::clamp(where, -0.25f, 1.25f) - 1) * (kPi / 4);
  // As fast as it was to be before this touch counted.
  speed_x_ = std::sin(angle) * speed_ * kTick;
  speed_y_ = -std::cos(angle) * speed_ * kTick;
  if (++hits_ % 4 == 0 && speed_ < kTopSpeed) speed_ += 64;
  if (score_ == kWallScore) std::fill_n(observed_ + kNumbers, kBricks, 0.0f);
}

void BreakoutGame::Refresh() {
  constexpr float kFastest = 1 / (kTopSpeed * kTick);
  observed_[0] = paddle_ * (1 / kWidth);
  observed_[1] = kPaddleTop / kHeight;
  observed_[2] = ball_x_ * (1 / kWidth);
  observed_[3] = ball_y_ * (1 / kHeight);
  observed_[4] = speed_x_ * kFastest;
  observed_[5] = speed_y_ * kFastest;
  observed_[6] = flying_ ? 1 : 0;
  observed_[7] = static_cast<float>(score_) * (1.0f / kMaxScore);
  observed_[8] = static_cast<float>(spare_balls_) * (1.0f / kSpareBalls);
  observed_[9] = paddle_width_ * (1 / kPaddleWidth);
}

std::vector<EnvironmentOption> Breakout::Options() {
  return {{"frame_skip", 4, "ticks of 1/60 s that a step takes"}};
}

absl::StatusOr<std::unique_ptr<BatchEnvironment>> Breakout::Make(
    const EnvironmentArguments& arguments, size_t environments) {
  ASSIGN_OR_RETURN(const int frame_skip, FrameSkip(arguments));
  return std::unique_ptr<BatchEnvironment>(
      new Breakout(environments, frame_skip));
}

Breakout::Breakout(size_t environments, int frame_skip)
    : GameBatch("Breakout", environments, frame_skip) {}

v1::Frame BreakoutGame::Render() const {
  constexpr Color kRowColors[] = {{200, 72, 72},  {198, 108, 58},
                                  {180, 122, 48}, {162, 162, 42},
                                  {72, 160, 72},  {66, 72, 200}};
  constexpr Color kOwn = {230, 230, 235};
  Picture picture(static_cast<int>(kWidth), static_cast<int>(kHeight),
                  {20, 22, 30});
  for (int brick = 0; brick < kBricks; ++brick) {
    if (observed_[kNumbers + brick] != 0) continue;
    const double x = brick % kColumns * kBrickWidth;
    const double y = kBricksTop + brick / kColumns * kBrickHeight;
    picture.Rectangle({x + 1, y + 1},
                      {x + kBrickWidth - 1, y + kBrickHeight - 1},
                      kRowColors[brick / kColumns]);
  }
  picture.Rectangle({paddle_, kPaddleTop},
                    {paddle_ + paddle_width_, kPaddleTop + kPaddleHeight},
                    kOwn);
  picture.Rectangle({ball_x_, ball_y_}, {ball_x_ + kBall, ball_y_ + kBall},
                    kOwn);
  for (int ball = 0; ball < spare_balls_; ++ball) {
    picture.Disc({14.0 + 20 * ball, 14}, 7, kOwn);
  }
  return picture.frame();
}

}  // namespace flotilla
