#ifndef FLOTILLA_LEARNER_ALGO_SEGMENT_PPO_H_
#define FLOTILLA_LEARNER_ALGO_SEGMENT_PPO_H_

#include <memory>

#include "learner/algo/algorithm.h"
#include "learner/nn/network.h"

namespace flotilla {

// PPO as PufferLib 3.0 goes through a rollout (ppo.minibatch: SEGMENTS). For
// each of epochs * minibatches gradient steps:
//
//   1. advantages anew, of all steps, by V-trace with the ratios and values
//      known by now: target - value, clips ppo.rho_clip and ppo.c_clip. Ratios
//      begin at 1, values as the actor saw them
//   2. num_envs / minibatches environments drawn by priority, without
//      replacement (segment_priorities.h)
//   3. their advantages normalised, then multiplied by their weights; returns
//      are advantage + value; PPO's loss
//   4. their ratios and values as the network has them now are known from the
//      next step on
//
// Where we differ: PufferLib learns nothing from the last step of a rollout,
// and here the value at T gives it an advantage.
std::unique_ptr<Algorithm> MakeSegmentPpo(const v1::RunConfig& config,
                                          const Spaces& spaces,
                                          std::unique_ptr<Network> net);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_SEGMENT_PPO_H_
