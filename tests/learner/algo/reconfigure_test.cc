#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "learner/algo/algorithm.h"
#include "learner/collective/solo_collective.h"
#include "services/base/config.h"
#include "services/base/config_change.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/testing/bounded_spaces.h"
#include "tests/testing/spaces.h"

// What changes in flight is learned with from the next update on, exactly as if the
// algorithm had been made so.

namespace flotilla {
namespace {

constexpr int64_t kT = 16, kB = 8;

v1::RunConfig Config(const std::string& algorithm) {
  v1::RunConfig config;
  const auto* field = v1::RunConfig::descriptor()->FindFieldByName(algorithm);
  config.GetReflection()->MutableMessage(&config, field);
  config.mutable_env()->set_num_envs(kB);
  config.mutable_rollout()->set_length(kT);
  config.mutable_model()->add_hidden(16);
  for (const char* text : {"dqn.learning_starts=0", "dqn.batch_size=16",
                           "dqn.target_update_every=3",
                           "dqn.priority_alpha=0.5", "sac.learning_starts=0",
                           "sac.batch_size=16", "sac.updates_per_rollout=4"}) {
    if (absl::StartsWith(text, algorithm)) {
      EXPECT_TRUE(ApplyOverride(text, &config).ok()) << text;
    }
  }
  return config;
}

torch::Tensor Flat(const std::vector<NamedTensor>& tensors) {
  std::vector<torch::Tensor> flat;
  for (const NamedTensor& t : tensors) {
    flat.push_back(t.tensor.flatten().to(torch::kFloat64));
  }
  return torch::cat(flat).clone();
}

// Three updates, half-way through a run; told of `now` before each from the
// `from`th on.
torch::Tensor Learn(const v1::RunConfig& made, const v1::RunConfig& now,
                    int from, const Spaces& spaces,
                    const std::vector<Rollout>& rollouts) {
  auto algorithm = MakeAlgorithm(made, spaces, torch::kCPU).value();
  SoloCollective alone;
  for (int i = 0; i < static_cast<int>(rollouts.size()); ++i) {
    if (i == from) {
      EXPECT_TRUE(algorithm->Reconfigure(now).ok());
    }
    const int64_t step = 250'000 + i * kT * kB;
    algorithm->BeforeCollecting(step);
    const auto updated = algorithm->Update(rollouts[i], {i, step, &alone});
    EXPECT_TRUE(updated.ok()) << updated.status();
  }
  return torch::cat({Flat(algorithm->Weights()), Flat(algorithm->State())});
}

struct Case {
  std::string algorithm;
  std::string field;
  std::string value;
  std::string with = "";  // without which it would change nothing
};

class ReconfigureTest : public testing::TestWithParam<Case> {};

TEST_P(ReconfigureTest, LearnsAsIfItHadBeenMadeSo) {
  const Case& c = GetParam();
  v1::RunConfig before = Config(c.algorithm);
  if (!c.with.empty()) {
    ASSERT_TRUE(ApplyOverride(c.with, &before).ok());
  }
  before = Resolved(before);
  const auto after = Changed(before, {c.field + "=" + c.value});
  ASSERT_TRUE(after.ok()) << after.status();
  ASSERT_TRUE(ChangesLearning(before, *after));
  const Spaces spaces = c.algorithm == "sac" ? BoundedSpaces(4, {-2, 0}, {2, 1})
                                             : VectorSpaces(4, 2);
  torch::manual_seed(1);
  std::vector<Rollout> rollouts;
  for (int i = 0; i < 3; ++i) {
    rollouts.push_back(RandomRollout(spaces, kT, kB));
    rollouts.back().truncated.zero_();
  }
  const torch::Tensor as_made = Learn(*after, *after, -1, spaces, rollouts);
  EXPECT_TRUE(
      torch::equal(as_made, Learn(before, *after, 0, spaces, rollouts)));
  const torch::Tensor unchanged = Learn(before, before, -1, spaces, rollouts);
  EXPECT_FALSE(torch::equal(as_made, unchanged));
  // Later, and back again before it was used.
  EXPECT_FALSE(
      torch::equal(unchanged, Learn(before, *after, 2, spaces, rollouts)));
  EXPECT_TRUE(
      torch::equal(unchanged, Learn(before, before, 1, spaces, rollouts)));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, ReconfigureTest,
    testing::Values(
        Case{"ppo", "optimizer.learning_rate", "1e-3"},
        Case{"ppo", "optimizer.schedule", "CONSTANT"},
        Case{"ppo", "optimizer.schedule_end", "0.5"},
        Case{"ppo", "optimizer.epsilon", "1e-2"},
        Case{"ppo", "optimizer.beta1", "0.5"},
        Case{"ppo", "optimizer.beta2", "0.5"},
        Case{"ppo", "optimizer.max_grad_norm", "1e-3"},
        Case{"ppo", "total_env_steps", "300000"},
        Case{"ppo", "total_updates", "30", "total_updates=10"},
        Case{"ppo", "ppo.discount", "0.5"},
        Case{"ppo", "ppo.gae_lambda", "0.5"},
        Case{"ppo", "ppo.clip_ratio", "0.01"},
        Case{"ppo", "ppo.value_clip", "0"},
        Case{"ppo", "ppo.entropy_cost", "0.5"},
        Case{"ppo", "ppo.value_cost", "0.1"}, Case{"ppo", "ppo.epochs", "2"},
        Case{"ppo", "ppo.target_kl", "1e-6"},
        Case{"ppo", "ppo.anneal_clip", "true"},
        Case{"ppo", "ppo.rho_clip", "0.5", "ppo.minibatch=SEGMENTS"},
        Case{"ppo", "ppo.c_clip", "0.5", "ppo.minibatch=SEGMENTS"},
        Case{"ppo", "ppo.priority_alpha", "0", "ppo.minibatch=SEGMENTS"},
        Case{"ppo", "ppo.priority_beta", "0.9", "ppo.minibatch=SEGMENTS"},
        Case{"impala", "impala.discount", "0.5"},
        Case{"impala", "impala.lambda", "0.5"},
        Case{"impala", "impala.rho_clip", "0.5"},
        Case{"impala", "impala.c_clip", "0.5"},
        Case{"impala", "impala.pg_rho_clip", "0.5"},
        Case{"impala", "impala.entropy_cost", "0.5"},
        Case{"impala", "impala.value_cost", "0.1"},
        Case{"impala", "impala.clip_ratio", "1e-6", "impala.epochs=2"},
        Case{"impala", "impala.epochs", "3"},
        Case{"dqn", "optimizer.learning_rate", "1e-3"},
        Case{"dqn", "dqn.discount", "0.5"},
        Case{"dqn", "dqn.updates_per_rollout", "3"},
        Case{"dqn", "dqn.target_update_every", "2"},
        Case{"dqn", "dqn.huber", "true"}, Case{"dqn", "dqn.priority_beta", "1"},
        Case{"sac", "optimizer.learning_rate", "1e-3"},
        Case{"sac", "sac.discount", "0.5"},
        Case{"sac", "sac.updates_per_rollout", "2"},
        Case{"sac", "sac.tau", "0.5"}, Case{"sac", "sac.target_entropy", "-10"},
        Case{"sac", "sac.critic_learning_rate", "1e-3"}),
    [](const testing::TestParamInfo<Case>& info) {
      std::string name = info.param.algorithm + "_" + info.param.field;
      for (char& c : name) c = c == '.' ? '_' : c;
      return name;
    });

// What changes how a DQN explores changes nothing that it learns from.
TEST(ReconfigureFieldsTest, EveryFieldOfAnAlgorithmIsTriedHere) {
  std::map<std::string, bool> untried;
  for (const std::string& field : ChangeableFields()) {
    for (const char* section :
         {"ppo.", "impala.", "dqn.", "sac.", "optimizer."}) {
      if (absl::StartsWith(field, section)) untried[field] = true;
    }
  }
  const auto* suite = testing::UnitTest::GetInstance();
  for (int i = 0; i < suite->total_test_suite_count(); ++i) {
    const auto* tests = suite->GetTestSuite(i);
    for (int j = 0; j < tests->total_test_count(); ++j) {
      const std::string name = tests->GetTestInfo(j)->name();
      for (auto& [field, yet] : untried) {
        std::string as_name = field;
        for (char& c : as_name) c = c == '.' ? '_' : c;
        if (absl::EndsWith(name, "_" + as_name)) yet = false;
      }
    }
  }
  for (const auto& [field, yet] : untried) {
    const bool explores = absl::StartsWith(field, "dqn.epsilon_");
    EXPECT_EQ(yet, explores) << field;
  }
}

}  // namespace
}  // namespace flotilla
