#ifndef FLOTILLA_TESTS_LEARNER_ALGO_REPLAY_LEARNER_H_
#define FLOTILLA_TESTS_LEARNER_ALGO_REPLAY_LEARNER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "learner/algo/algorithm.h"
#include "learner/collective/collective.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/testing/fake_coordinator_client.h"

// For the tests of algorithms that learn from a replay.

namespace flotilla {

inline constexpr int64_t kT = 8, kB = 4;  // of the rollouts they are given

// Without an algorithm.
inline v1::RunConfig ReplayLearnerConfig() {
  v1::RunConfig config;
  config.mutable_env()->set_num_envs(kB);
  config.mutable_rollout()->set_length(kT);
  config.mutable_model()->add_hidden(16);
  return config;
}

// Rollouts that do not continue each other: every row is cut between them.
inline std::vector<Rollout> Rollouts(const Spaces& spaces, int n) {
  torch::manual_seed(1);
  std::vector<Rollout> rollouts;
  for (int i = 0; i < n; ++i) {
    rollouts.push_back(RandomRollout(spaces, kT, kB));
    rollouts.back().truncated.zero_();
  }
  return rollouts;
}

// A copy of them, float64.
inline torch::Tensor Flat(const std::vector<NamedTensor>& tensors) {
  std::vector<torch::Tensor> flat;
  for (const NamedTensor& t : tensors) {
    flat.push_back(t.tensor.flatten().to(torch::kFloat64));
  }
  return torch::cat(flat).clone();
}

// Weights and state.
inline torch::Tensor Everything(Algorithm* algorithm) {
  return torch::cat({Flat(algorithm->Weights()), Flat(algorithm->State())});
}

// Of the state, what has names that begin so.
inline torch::Tensor Part(Algorithm* algorithm, const std::string& prefix) {
  std::vector<NamedTensor> part;
  for (const NamedTensor& t : algorithm->State()) {
    if (t.name.rfind(prefix, 0) == 0) part.push_back(t);
  }
  return Flat(part);
}

inline std::map<std::string, double> Update(Algorithm* algorithm,
                                            const Rollout& rollout,
                                            const UpdateContext& context) {
  const auto metrics = algorithm->Update(rollout, context);
  EXPECT_TRUE(metrics.ok()) << metrics.status();
  std::map<std::string, double> by_name;
  for (const Metric& m : *metrics) by_name[m.name] = m.value;
  return by_name;
}

inline std::unique_ptr<Collective> Connect(const v1::Assignment& assignment,
                                           FakeCoordinatorClient* coordinator) {
  return MakeCollective(assignment, v1::DistributedConfig(), coordinator,
                        torch::kCPU)
      .value();
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_ALGO_REPLAY_LEARNER_H_
