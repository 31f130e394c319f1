#ifndef FLOTILLA_ENVSERVER_ENVS_PENDULUM_H_
#define FLOTILLA_ENVSERVER_ENVS_PENDULUM_H_

#include <cstdint>

#include "envserver/environment.h"

namespace flotilla {

// Pendulum-v1: swing a pendulum up and hold it there with little torque.
// Gymnasium's dynamics, in double where it uses double, float where it uses
// float, and in its order of operations.
//
//   observation  float32 [3]  cos theta, sin theta, theta'
//   action       float32 [1]  torque in [-2, 2]
//   reward       -(theta^2 + 0.1 theta'^2 + 0.001 torque^2)
//
// The initial state is Random(seed)'s first two draws, theta in [-pi, pi) and
// theta' in [-1, 1), each rounded to float32.
class Pendulum final : public Environment {
 public:
  Pendulum();

  const v1::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(uint64_t seed, Row observation) override;
  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override;
  bool renders() const override { return true; }
  v1::Frame Render() const override;

 private:
  void Observe(Row observation) const;

  v1::EnvSpec spec_;
  double theta_ = 0;
  double speed_ = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_PENDULUM_H_
