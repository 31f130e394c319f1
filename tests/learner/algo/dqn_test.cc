#include "learner/algo/dqn.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "learner/collective/solo_collective.h"
#include "tests/learner/algo/replay_learner.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

v1::RunConfig Config() {
  v1::RunConfig config = ReplayLearnerConfig();
  config.mutable_model()->set_activation(v1::RELU);  // by kernels
  v1::DqnConfig* dqn = config.mutable_dqn();
  dqn->set_batch_size(16);
  dqn->set_updates_per_rollout(4);
  dqn->set_target_update_every(6);
  dqn->set_learning_starts(0);
  return config;
}

std::unique_ptr<Algorithm> Make(const v1::RunConfig& config) {
  return MakeAlgorithm(config, VectorSpaces(4, 2), torch::kCPU).value();
}

torch::Tensor Target(Algorithm* algorithm) {
  return Part(algorithm, "target.");
}

double Steps(Algorithm* algorithm) {
  return Part(algorithm, "adam.step").item<double>();
}

TEST(DqnTest, TheTargetIsCopiedEverySoManyGradientSteps) {
  const auto algorithm = Make(Config());  // 4 steps an update, a copy every 6
  const auto rollouts = Rollouts(VectorSpaces(4, 2), 4);
  SoloCollective alone;
  torch::Tensor target = Target(algorithm.get());
  EXPECT_TRUE(torch::equal(target, Flat(algorithm->Weights())));
  Update(algorithm.get(), rollouts[0], {0, 0, &alone});  // steps 1-4
  EXPECT_TRUE(torch::equal(target, Target(algorithm.get())));
  Update(algorithm.get(), rollouts[1], {1, 32, &alone});  // 5-8: copied at 6
  EXPECT_FALSE(torch::equal(target, Target(algorithm.get())));
  EXPECT_FALSE(
      torch::equal(Target(algorithm.get()), Flat(algorithm->Weights())));
  Update(algorithm.get(), rollouts[2], {2, 64, &alone});  // 9-12: copied at 12
  EXPECT_TRUE(
      torch::equal(Target(algorithm.get()), Flat(algorithm->Weights())));
}

TEST(DqnTest, LearningStartsAtAGlobalStep) {
  v1::RunConfig config = Config();
  config.mutable_dqn()->set_learning_starts(64);
  const auto algorithm = Make(config);
  const auto rollouts = Rollouts(VectorSpaces(4, 2), 3);
  SoloCollective alone;
  Update(algorithm.get(), rollouts[0], {0, 0, &alone});
  Update(algorithm.get(), rollouts[1], {1, 63, &alone});
  EXPECT_EQ(Steps(algorithm.get()), 0);
  const auto metrics = Update(algorithm.get(), rollouts[2], {2, 64, &alone});
  EXPECT_EQ(Steps(algorithm.get()), 4);
  EXPECT_GT(metrics.at("losses/td_loss"), 0);
  EXPECT_GT(metrics.at("losses/grad_norm"), 0);
  EXPECT_EQ(metrics.at("replay/size"), 96);
}

TEST(DqnTest, EpsilonFollowsTheGlobalStep) {
  v1::DqnConfig config;  // DI-engine's: 1 to 0.05 over 250,000
  EXPECT_DOUBLE_EQ(EpsilonAt(config, 0), 1);
  EXPECT_NEAR(EpsilonAt(config, 250000), 0.399, 5e-4);
  EXPECT_NEAR(EpsilonAt(config, 1000000), 0.067, 5e-4);
  // What acts is what is reported.
  const auto algorithm = Make(Config());
  const auto rollouts = Rollouts(VectorSpaces(4, 2), 1);
  SoloCollective alone;
  EXPECT_DOUBLE_EQ(Update(algorithm.get(), rollouts[0], {0, 250000, &alone})
                       .at("charts/epsilon"),
                   EpsilonAt(config, 250000));
  // Rows that do not do what greedy ones do.
  const int64_t R = 4000;
  const torch::Tensor seen = torch::randn({R, 4});
  Draws draws(1);
  const auto others = [&](Policy* policy) {
    std::vector<float> ignored(R);
    std::vector<int64_t> action(R), best(R);
    const void* leaf = seen.data_ptr();
    const Observations o{.leaf = &leaf, .rows = R};
    policy->Decide(o, false, &draws,
                   {action.data(), nullptr, ignored.data(), ignored.data()});
    policy->Decide(o, true, &draws,
                   {best.data(), nullptr, ignored.data(), ignored.data()});
    int64_t differ = 0;
    for (int64_t r = 0; r < R; ++r) differ += action[r] != best[r];
    return static_cast<double>(differ) / R;
  };
  algorithm->BeforeCollecting(0);
  EXPECT_NEAR(others(algorithm->live_policy()), 0.5, 0.05);
  EXPECT_NEAR(others(algorithm->Freeze().get()), 0.5, 0.05);
  // An earlier self explores as at the end, whatever the time.
  EXPECT_NEAR(others(algorithm->FreezeForPlay().get()), 0.025, 0.0125);
  // So late, hardly a row explores: all but a few do what greedy rows do.
  algorithm->BeforeCollecting(100000000);
  EXPECT_NEAR(others(algorithm->live_policy()), 0.025, 0.0125);
}

TEST(DqnTest, RanksDrawDifferentTransitions) {
  const auto rollouts = Rollouts(VectorSpaces(4, 2), 1);
  std::vector<double> q(2);
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const auto collective = Connect(assignment, coordinator);
    const auto algorithm = Make(Config());
    q[assignment.rank()] =
        Update(algorithm.get(), rollouts[0], {0, 0, collective.get()})
            .at("losses/q_values");
  });
  EXPECT_NE(q[0], q[1]);
}

}  // namespace
}  // namespace flotilla
