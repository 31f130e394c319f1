#include "learner/algo/sac.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "learner/collective/solo_collective.h"
#include "tests/learner/algo/replay_learner.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/bounded_spaces.h"

namespace flotilla {
namespace {

Spaces TheSpaces() { return BoundedSpaces(4, {-2, 0}, {2, 1}); }

v1::RunConfig Config() {
  v1::RunConfig config = ReplayLearnerConfig();
  config.mutable_model()->set_activation(v1::RELU);
  v1::SacConfig* sac = config.mutable_sac();
  sac->set_batch_size(16);
  sac->set_replay_capacity(1000);
  sac->set_updates_per_rollout(4);
  sac->set_learning_starts(0);
  return config;
}

// Torch's operations learn it on a CPU, where kernels learn the other.
Spaces StackedSpaces() { return BoundedSpaces(4, {-2, 0}, {2, 1}, 2); }

std::unique_ptr<Algorithm> Make(const v1::RunConfig& config,
                                const Spaces& spaces = TheSpaces()) {
  return MakeAlgorithm(config, spaces, torch::kCPU).value();
}

// Taken by the critics, the policy and the temperature.
std::vector<double> Steps(Algorithm* algorithm) {
  return {Part(algorithm, "critics.adam.step").item<double>(),
          Part(algorithm, "actor.adam.step").item<double>(),
          Part(algorithm, "temperature.adam.step").item<double>()};
}

TEST(SacTest, WeightsAreThePolicysAndStateIsAllElse) {
  const auto algorithm = Make(Config());
  EXPECT_EQ(algorithm->Weights()[0].name, "actor.0.weight");
  EXPECT_EQ(algorithm->Weights().back().name, "actor_logstd.bias");
  EXPECT_EQ(Flat(algorithm->Weights()).numel(), 5 * 16 + 2 * 17 * 2);
  const int64_t critics = 2 * (7 * 16 + 17);
  EXPECT_EQ(Part(algorithm.get(), "critic1").numel(), critics / 2);
  EXPECT_EQ(Part(algorithm.get(), "target.critic2").numel(), critics / 2);
  EXPECT_EQ(Part(algorithm.get(), "critics.adam.exp_avg_sq").numel(), critics);
  EXPECT_EQ(Part(algorithm.get(), "log_alpha").item<double>(), 0);
}

TEST(SacTest, TargetsFollowTheCriticsByTau) {
  v1::RunConfig config = Config();
  config.mutable_sac()->set_updates_per_rollout(1);
  config.mutable_sac()->set_tau(0.25);
  const auto algorithm = Make(config);
  const auto rollouts = Rollouts(TheSpaces(), 2);
  SoloCollective alone;
  torch::Tensor target = Part(algorithm.get(), "target.");
  const auto both_critics = [&] {
    return torch::cat(
        {Part(algorithm.get(), "critic1"), Part(algorithm.get(), "critic2")});
  };
  EXPECT_TRUE(torch::equal(target, both_critics()));
  for (int i = 0; i < 2; ++i) {
    Update(algorithm.get(), rollouts[i], {i, 0, &alone});
    const torch::Tensor critics = both_critics();
    const torch::Tensor want = 0.75 * target + 0.25 * critics;
    target = Part(algorithm.get(), "target.");
    EXPECT_LT((target - want).abs().max().item<double>(), 1e-7);
    EXPECT_GT((target - critics).abs().max().item<double>(), 1e-6);
  }
}

TEST(SacTest, LearningStartsAtAGlobalStepAndActionsAreUniformUntilThen) {
  v1::RunConfig config = Config();
  config.mutable_sac()->set_learning_starts(64);
  const auto algorithm = Make(config);
  const auto rollouts = Rollouts(TheSpaces(), 3);
  SoloCollective alone;
  Update(algorithm.get(), rollouts[0], {0, 0, &alone});
  Update(algorithm.get(), rollouts[1], {1, 63, &alone});
  EXPECT_EQ(Steps(algorithm.get()), std::vector<double>(3, 0));
  const auto metrics = Update(algorithm.get(), rollouts[2], {2, 64, &alone});
  EXPECT_EQ(Steps(algorithm.get()), std::vector<double>(3, 4));
  EXPECT_GT(metrics.at("losses/critic_loss"), 0);
  EXPECT_NE(metrics.at("losses/policy_loss"), 0);
  EXPECT_NE(metrics.at("losses/entropy"), 0);
  EXPECT_NEAR(metrics.at("losses/temperature"), 1, 0.01);
  EXPECT_EQ(metrics.at("replay/size"), 96);

  const int64_t R = 2000;
  const torch::Tensor seen = torch::randn({R, 4});
  const void* leaf = seen.data_ptr();
  const auto near_the_bounds = [&](int64_t global_step) {
    algorithm->BeforeCollecting(global_step);
    std::vector<float> action(2 * R), ignored(R);
    Draws draws(1);
    algorithm->live_policy()->Decide(
        {.leaf = &leaf, .rows = R}, false, &draws,
        {nullptr, action.data(), ignored.data(), ignored.data()});
    int64_t far = 0;
    for (int64_t r = 0; r < R; ++r) far += std::abs(action[2 * r]) > 1.5;
    return static_cast<double>(far) / R;
  };
  EXPECT_NEAR(near_the_bounds(0), 0.25, 0.05);
  EXPECT_NEAR(near_the_bounds(63), 0.25, 0.05);
  EXPECT_LT(near_the_bounds(64), 0.15);
}

TEST(SacTest, UnsetItTakesAStepForEachEnvironmentStep) {
  v1::RunConfig config = Config();
  config.mutable_sac()->set_updates_per_rollout(0);
  const auto algorithm = Make(config);
  auto rollouts = Rollouts(TheSpaces(), 1);
  SoloCollective alone;
  Update(algorithm.get(), rollouts[0], {0, 0, &alone});
  EXPECT_EQ(Steps(algorithm.get()), std::vector<double>(3, kT * kB));
}

TEST(SacTest, ATemperatureThatIsNotLearnedStays) {
  v1::RunConfig config = Config();
  config.mutable_sac()->set_learn_temperature(false);
  config.mutable_sac()->set_initial_temperature(0.2);
  const auto algorithm = Make(config);
  const auto rollouts = Rollouts(TheSpaces(), 1);
  SoloCollective alone;
  const auto metrics = Update(algorithm.get(), rollouts[0], {0, 0, &alone});
  EXPECT_NEAR(metrics.at("losses/temperature"), 0.2, 1e-6);
  EXPECT_EQ(Steps(algorithm.get()), (std::vector<double>{4, 4, 0}));
}

TEST(SacTest, RanksStayEqualThoughTheyDrawForThemselves) {
  for (const auto& [spaces, buckets] :
       {std::pair{TheSpaces(), false}, std::pair{TheSpaces(), true},
        std::pair{StackedSpaces(), false}, std::pair{StackedSpaces(), true}}) {
    const Spaces& the_spaces = spaces;  // a binding is not captured
    const auto rollouts = Rollouts(the_spaces, 6);
    v1::RunConfig config = Config();
    if (buckets) config.mutable_distributed()->set_gradients(v1::BUCKETS);
    std::vector<torch::Tensor> everything(2);
    std::vector<double> q(2);
    RunRanks(2, [&](const v1::Assignment& assignment,
                    FakeCoordinatorClient* coordinator) {
      const int rank = assignment.rank();
      const auto collective = Connect(assignment, coordinator);
      const auto algorithm = Make(config, the_spaces);
      for (int i = 0; i < 3; ++i) {
        q[rank] = Update(algorithm.get(), rollouts[3 * rank + i],
                         {i, 64 * i, collective.get()})
                      .at("losses/q_values");
      }
      everything[rank] = Everything(algorithm.get());
    });
    EXPECT_TRUE(torch::equal(everything[0], everything[1]));
    EXPECT_NE(q[0], q[1]);
  }
}

TEST(SacTest, WhatItCannotPlayIsRefused) {
  for (const Spaces& spaces : {VectorSpaces(4, 2), ContinuousSpaces(4, 2),
                               BoundedSpaces(4, {1}, {1})}) {
    const auto made = MakeAlgorithm(Config(), spaces, torch::kCPU);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(made.status().message().find("sac needs"), std::string::npos);
  }
}

}  // namespace
}  // namespace flotilla
