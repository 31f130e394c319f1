#include "envserver/envs/pendulum.h"

#include <algorithm>
#include <cmath>

#include "envserver/picture.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

constexpr double kPi = 3.141592653589793;
constexpr double kMaxSpeed = 8;
constexpr float kMaxTorque = 2;
constexpr double kTau = 0.05;                          // seconds a step
constexpr double kGravityTerm = 3 * 10.0 / (2 * 1.0);  // 3 g / (2 l)
constexpr float kTorqueTerm = 3.0;                     // 3 / (m l^2)

// Into [-pi, pi), by Python's %, whose result has the divisor's sign.
double NormalizeAngle(double angle) {
  double rest = std::fmod(angle + kPi, 2 * kPi);
  if (rest < 0) rest += 2 * kPi;
  return rest - kPi;
}

}  // namespace

Pendulum::Pendulum() {
  spec_.set_env_id("Pendulum-v1");
  v1::Leaf* observation = spec_.add_observation();
  observation->set_dtype(v1::FLOAT32);
  observation->add_shape(3);
  for (float high : {1.0f, 1.0f, static_cast<float>(kMaxSpeed)}) {
    observation->add_low(-high);
    observation->add_high(high);
  }
  v1::Leaf* action = spec_.add_action();
  action->set_dtype(v1::FLOAT32);
  action->add_shape(1);
  action->add_low(-kMaxTorque);
  action->add_high(kMaxTorque);
  spec_.set_max_episode_steps(200);
}

absl::Status Pendulum::Reset(uint64_t seed, Row observation) {
  Random random(seed);
  theta_ = static_cast<float>(random.Uniform(-kPi, kPi));
  speed_ = static_cast<float>(random.Uniform(-1, 1));
  Observe(observation);
  return absl::OkStatus();
}

absl::StatusOr<Outcome> Pendulum::Step(ConstRow action, Row observation) {
  const float torque =
      std::clamp(ReadValue<float>(action[0]), -kMaxTorque, kMaxTorque);
  const double angle = NormalizeAngle(theta_);
  const double cost =
      angle * angle + 0.1 * (speed_ * speed_) + 0.001f * (torque * torque);
  speed_ =
      speed_ + (kGravityTerm * std::sin(theta_) + kTorqueTerm * torque) * kTau;
  speed_ = std::clamp(speed_, -kMaxSpeed, kMaxSpeed);
  theta_ = theta_ + speed_ * kTau;
  Observe(observation);
  Outcome outcome;
  outcome.reward = static_cast<float>(-cost);
  return outcome;
}

v1::Frame Pendulum::Render() const {
  constexpr double kScale = 110;  // pixels a metre
  Picture picture(320, 320, {255, 255, 255});
  const Picture::Point pivot = {160, 160};
  // Upright at 0; Gymnasium turns it to the left.
  const Picture::Point end = {pivot.x - kScale * std::sin(theta_),
                              pivot.y - kScale * std::cos(theta_)};
  picture.Line(pivot, end, 24, {204, 77, 77});
  picture.Disc(pivot, 12, {204, 77, 77});
  picture.Disc(end, 12, {204, 77, 77});
  picture.Disc(pivot, 5, {0, 0, 0});
  return picture.frame();
}

void Pendulum::Observe(Row observation) const {
  WriteValue(observation[0], 0, static_cast<float>(std::cos(theta_)));
  WriteValue(observation[0], 1, static_cast<float>(std::sin(theta_)));
  WriteValue(observation[0], 2, static_cast<float>(speed_));
}

}  // namespace flotilla
