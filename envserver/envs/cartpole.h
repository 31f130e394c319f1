#ifndef FLOTILLA_ENVSERVER_ENVS_CARTPOLE_H_
#define FLOTILLA_ENVSERVER_ENVS_CARTPOLE_H_

#include <cstdint>

#include "envserver/environment.h"

namespace flotilla {

// CartPole-v1 (Barto, Sutton and Anderson 1983): balance a pole on a cart that
// is pushed left or right. Gymnasium's dynamics, in double and in its order of
// operations, so that the same state and actions give the same observations.
//
//   observation  float32 [4]  x, x', theta, theta'
//   action       int64 []     0: left, 1: right
//   reward       1 a step
//
// The initial state is uniform in [-0.05, 0.05), rounded to float32: the first
// observation is the whole state.
class CartPole final : public Environment {
 public:
  CartPole();

  const v1::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(uint64_t seed, Row observation) override;
  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override;
  bool renders() const override { return true; }
  v1::Frame Render() const override;

 private:
  void Observe(Row observation) const;

  v1::EnvSpec spec_;
  double state_[4] = {};
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_CARTPOLE_H_
