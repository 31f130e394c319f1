#include "envserver/envs/cartpole.h"

#include <cmath>
#include <limits>

#include "envserver/picture.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

constexpr double kGravity = 9.8;
constexpr double kPoleMass = 0.1;
constexpr double kTotalMass = kPoleMass + 1.0;
constexpr double kHalfLength = 0.5;
constexpr double kPoleMassLength = kPoleMass * kHalfLength;
constexpr double kForce = 10.0;
constexpr double kTau = 0.02;  // seconds a step
constexpr double kPi = 3.141592653589793;
constexpr double kThetaLimit = 12 * 2 * kPi / 360;
constexpr double kXLimit = 2.4;

}  // namespace

CartPole::CartPole() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  spec_.set_env_id("CartPole-v1");
  v1::Leaf* observation = spec_.add_observation();
  observation->set_dtype(v1::FLOAT32);
  observation->add_shape(4);
  for (double high :
       {kXLimit * 2, double{kInfinity}, kThetaLimit * 2, double{kInfinity}}) {
    observation->add_low(static_cast<float>(-high));
    observation->add_high(static_cast<float>(high));
  }
  v1::Leaf* action = spec_.add_action();
  action->set_dtype(v1::INT64);
  action->set_num_values(2);
  spec_.set_max_episode_steps(500);
  spec_.set_reward_threshold(475);
}

absl::Status CartPole::Reset(uint64_t seed, Row observation) {
  Random random(seed);
  for (double& value : state_) {
    value = static_cast<float>(random.Uniform(-0.05, 0.05));
  }
  Observe(observation);
  return absl::OkStatus();
}

absl::StatusOr<Outcome> CartPole::Step(ConstRow action, Row observation) {
  auto& [x, x_dot, theta, theta_dot] = state_;
  const double force = ReadValue<int64_t>(action[0]) == 1 ? kForce : -kForce;
  const double cosine = std::cos(theta);
  const double sine = std::sin(theta);
  const double temp =
      (force + kPoleMassLength * (theta_dot * theta_dot) * sine) / kTotalMass;
  const double theta_acceleration =
      (kGravity * sine - cosine * temp) /
      (kHalfLength * (4.0 / 3.0 - kPoleMass * (cosine * cosine) / kTotalMass));
  const double x_acceleration =
      temp - kPoleMassLength * theta_acceleration * cosine / kTotalMass;
  x = x + kTau * x_dot;
  x_dot = x_dot + kTau * x_acceleration;
  theta = theta + kTau * theta_dot;
  theta_dot = theta_dot + kTau * theta_acceleration;
  Observe(observation);
  Outcome outcome;
  outcome.reward = 1;
  outcome.terminated = x < -kXLimit || x > kXLimit || theta < -kThetaLimit ||
                       theta > kThetaLimit;
  return outcome;
}

v1::Frame CartPole::Render() const {
  constexpr double kScale = 100, kTrack = 240;  // pixels a metre; from the top
  Picture picture(480, 320, {255, 255, 255});
  picture.Line({0, kTrack}, {480, kTrack}, 1, {0, 0, 0});
  const Picture::Point axle = {240 + kScale * state_[0], kTrack - 15};
  picture.Rectangle({axle.x - 25, axle.y - 15}, {axle.x + 25, axle.y + 15},
                    {0, 0, 0});
  const double length = 2 * kHalfLength * kScale;
  picture.Line(axle,
               {axle.x + length * std::sin(state_[2]),
                axle.y - length * std::cos(state_[2])},
               10, {202, 152, 101});
  picture.Disc(axle, 5, {129, 132, 203});
  return picture.frame();
}

void CartPole::Observe(Row observation) const {
  for (size_t i = 0; i < 4; ++i) {
    WriteValue(observation[0], i, static_cast<float>(state_[i]));
  }
}

}  // namespace flotilla
