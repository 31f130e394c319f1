#include "envserver/envs/pong.h"

#include <algorithm>
#include <cstring>

#include "envserver/envs/frame_skip.h"
#include "envserver/picture.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr float kPaddleLast = PongGame::kHeight - PongGame::kPaddleHeight;
constexpr float kBallRight = PongGame::kWidth - PongGame::kBall;
constexpr float kBallBottom = PongGame::kHeight - PongGame::kBall;

bool Meets(float paddle, float ball) {
  return ball + PongGame::kBall > paddle &&
         ball < paddle + PongGame::kPaddleHeight;
}

}  // namespace

void PongGame::Reset(uint64_t seed) {
  random_ = Random(seed);
  left_ = 0;
  right_ = 0;
  left_paddle_ = kPaddleLast / 2;
  right_paddle_ = kPaddleLast / 2;
  Serve();
}

// From the middle, to either side.
void PongGame::Serve() {
  const uint64_t way = random_.Below(4);
  ball_x_ = kBallRight / 2;
  ball_y_ = kBallBottom / 2;
  speed_x_ = (way & 1) != 0 ? kSpeedX : -kSpeedX;
  speed_y_ = (way & 2) != 0 ? kFirstSpeedY : -kFirstSpeedY;
}

int PongGame::Step(int64_t action, int ticks) {
  const int before = right_ - left_;
  const float direction = action == 1 ? -1 : action == 2 ? 1 : 0;
  for (int i = 0; i < ticks && !over(); ++i) Tick(direction);
  return right_ - left_ - before;
}

void PongGame::Tick(float direction) {
  const float towards =
      (ball_y_ + kBall / 2) - (left_paddle_ + kPaddleHeight / 2);
  const float left_step = std::clamp(towards, -kPaddleStep, kPaddleStep);
  left_paddle_ = std::clamp(left_paddle_ + left_step, 0.0f, kPaddleLast);
  right_paddle_ =
      std::clamp(right_paddle_ + direction * kPaddleStep, 0.0f, kPaddleLast);

  ball_x_ += speed_x_;
  ball_y_ += speed_y_;
  if (ball_y_ < 0 || ball_y_ > kBallBottom) {
    ball_y_ = std::clamp(ball_y_, 0.0f, kBallBottom);
    speed_y_ = -speed_y_;
  }
  const auto send_back = [&](float x, float speed_x, float spin) {
    ball_x_ = x;
    speed_x_ = speed_x;
    speed_y_ = std::clamp(speed_y_ + spin * kSpin, -kTopSpeedY, kTopSpeedY);
  };
  if (ball_x_ < kPaddleWidth) {
    if (Meets(left_paddle_, ball_y_)) {
      send_back(kPaddleWidth, kSpeedX, left_step / kPaddleStep);
    } else {
      ++right_;
      Serve();
    }
  } else if (ball_x_ > kBallRight - kPaddleWidth) {
    if (Meets(right_paddle_, ball_y_)) {
      send_back(kBallRight - kPaddleWidth, -kSpeedX, direction);
    } else {
      ++left_;
      Serve();
    }
  }
}

void PongGame::Observe(void* to) const {
  float seen[kObserved];
  seen[0] = left_paddle_ * (1 / kPaddleLast);
  seen[1] = right_paddle_ * (1 / kPaddleLast);
  seen[2] = ball_x_ * (1 / kBallRight);
  seen[3] = ball_y_ * (1 / kBallBottom);
  seen[4] = speed_x_ * (1 / kSpeedX);
  seen[5] = speed_y_ * (1 / kTopSpeedY);
  seen[6] = static_cast<float>(left_) * (1.0f / kTopScore);
  seen[7] = static_cast<float>(right_) * (1.0f / kTopScore);
  std::memcpy(to, seen, sizeof seen);
}

std::vector<EnvironmentOption> Pong::Options() {
  return {{"frame_skip", 4, "ticks that a step takes"}};
}

absl::StatusOr<std::unique_ptr<BatchEnvironment>> Pong::Make(
    const EnvironmentArguments& arguments, size_t environments) {
  ASSIGN_OR_RETURN(const int frame_skip, FrameSkip(arguments));
  return std::unique_ptr<BatchEnvironment>(new Pong(environments, frame_skip));
}

Pong::Pong(size_t environments, int frame_skip)
    : GameBatch("Pong", environments, frame_skip) {}

v1::Frame PongGame::Render() const {
  Picture picture(static_cast<int>(kWidth), static_cast<int>(kHeight),
                  {20, 22, 30});
  constexpr Color kLeft = {213, 130, 74}, kRight = {92, 186, 92};
  picture.Rectangle({0, left_paddle_},
                    {kPaddleWidth, left_paddle_ + kPaddleHeight}, kLeft);
  picture.Rectangle({kWidth - kPaddleWidth, right_paddle_},
                    {kWidth, right_paddle_ + kPaddleHeight}, kRight);
  picture.Rectangle({ball_x_, ball_y_}, {ball_x_ + kBall, ball_y_ + kBall},
                    {236, 236, 236});
  // A mark for each point.
  for (int i = 0; i < left_; ++i) {
    picture.Rectangle({30.0 + 9 * i, 10}, {35.0 + 9 * i, 24}, kLeft);
  }
  for (int i = 0; i < right_; ++i) {
    picture.Rectangle({kWidth - 35.0 - 9 * i, 10}, {kWidth - 30.0 - 9 * i, 24},
                      kRight);
  }
  return picture.frame();
}

}  // namespace flotilla
