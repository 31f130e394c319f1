#ifndef FLOTILLA_TESTS_LEARNER_ALGO_RANDOM_ROLLOUT_H_
#define FLOTILLA_TESTS_LEARNER_ALGO_RANDOM_ROLLOUT_H_

#include "learner/rollout/rollout.h"
#include "learner/rollout/spaces.h"
#include "learner/torch.h"

namespace flotilla {

// A rollout of numbers that look like experience: ends, time limits, actions in
// range. Depends on torch's seed.
inline Rollout RandomRollout(const Spaces& spaces, int64_t T, int64_t B) {
  Rollout r = MakeRollout(spaces, T, B, /*pinned=*/false);
  if (spaces.frames) {
    r.observation.random_(0, 256);
    r.age.random_(0, spaces.stack);
  } else {
    r.observation.normal_();
  }
  if (spaces.continuous) {
    r.action.normal_();
  } else {
    r.action.random_(0, spaces.actions);
  }
  r.log_prob.normal_(-1.0, 0.3);
  r.value.normal_();
  r.reward.normal_();
  r.terminated.copy_(torch::rand({T, B}) < 0.1);
  r.truncated.copy_(torch::rand({T, B}) < 0.1);
  r.bootstrap_value.normal_();
  r.valid.fill_(1);
  r.valid_steps = T * B;
  return r;
}

// Columns [first, first + rows) of `all`: what one of several ranks would have.
inline Rollout Columns(const Rollout& all, int64_t first, int64_t rows) {
  Rollout r = all;
  r.rows = rows;
  auto cut = [&](torch::Tensor& t) {
    t = t.narrow(1, first, rows).contiguous();
  };
  cut(r.observation);
  if (r.age.defined()) cut(r.age);
  cut(r.action);
  cut(r.log_prob);
  cut(r.value);
  cut(r.reward);
  cut(r.terminated);
  cut(r.truncated);
  cut(r.bootstrap_value);
  cut(r.valid);
  if (r.initial_state.defined()) {
    r.initial_state = r.initial_state.narrow(0, first, rows).contiguous();
  }
  r.valid_steps = r.valid.sum().item<int64_t>();
  return r;
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_ALGO_RANDOM_ROLLOUT_H_
