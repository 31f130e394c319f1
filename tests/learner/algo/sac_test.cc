#include "learner/algo/sac.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "learner/collective/solo_collective.h"
#include "learner/replay/replay_buffer.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/bounded_spaces.h"

namespace flotilla {
namespace {

constexpr int64_t kT = 8, kB = 4;

Spaces TheSpaces() { return BoundedSpaces(4, {-2, 0}, {2, 1}); }

v1::RunConfig Config() {
  v1::RunConfig config;
  config.mutable_env()->set_num_envs(kB);
  config.mutable_rollout()->set_length(kT);
  config.mutable_model()->add_hidden(16);
  config.mutable_model()->set_activation(v1::RELU);
  v1::SacConfig* sac = config.mutable_sac();
  sac->set_batch_size(16);
  sac->set_replay_capacity(1000);
  sac->set_updates_per_rollout(4);
  sac->set_learning_starts(0);
  return config;
}

std::unique_ptr<Algorithm> Make(const v1::RunConfig& config) {
  return MakeAlgorithm(config, TheSpaces(), torch::kCPU).value();
}

// Rollouts that do not continue each other: every row is cut between them.
std::vector<Rollout> Rollouts(int n) {
  torch::manual_seed(1);
  std::vector<Rollout> rollouts;
  for (int i = 0; i < n; ++i) {
    rollouts.push_back(RandomRollout(TheSpaces(), kT, kB));
    rollouts.back().truncated.zero_();
  }
  return rollouts;
}

torch::Tensor Flat(const std::vector<NamedTensor>& tensors) {
  std::vector<torch::Tensor> flat;
  for (const NamedTensor& t : tensors) {
    flat.push_back(t.tensor.flatten().to(torch::kFloat64));
  }
  return torch::cat(flat).clone();
}

// Weights and state.
torch::Tensor Everything(Algorithm* algorithm) {
  return torch::cat({Flat(algorithm->Weights()), Flat(algorithm->State())});
}

// Of the state, what has names that begin so.
torch::Tensor Part(Algorithm* algorithm, const std::string& prefix) {
  std::vector<NamedTensor> part;
  for (const NamedTensor& t : algorithm->State()) {
    if (t.name.rfind(prefix, 0) == 0) part.push_back(t);
  }
  return Flat(part);
}

// Taken by the critics, the policy and the temperature.
std::vector<double> Steps(Algorithm* algorithm) {
  return {Part(algorithm, "critics.adam.step").item<double>(),
          Part(algorithm, "actor.adam.step").item<double>(),
          Part(algorithm, "temperature.adam.step").item<double>()};
}

std::map<std::string, double> Update(Algorithm* algorithm,
                                     const Rollout& rollout,
                                     const UpdateContext& context) {
  const auto metrics = algorithm->Update(rollout, context);
  EXPECT_TRUE(metrics.ok()) << metrics.status();
  std::map<std::string, double> by_name;
  for (const Metric& m : *metrics) by_name[m.name] = m.value;
  return by_name;
}

torch::Tensor Train(const v1::RunConfig& config, int updates) {
  const auto algorithm = Make(config);
  const auto rollouts = Rollouts(updates);
  SoloCollective alone;
  for (int i = 0; i < updates; ++i) {
    Update(algorithm.get(), rollouts[i], {i, i * kT * kB, &alone});
  }
  return Everything(algorithm.get());
}

std::unique_ptr<Collective> Connect(const v1::Assignment& assignment,
                                    FakeCoordinatorClient* coordinator) {
  return MakeCollective(assignment, v1::DistributedConfig(), coordinator,
                        torch::kCPU)
      .value();
}

TEST(SacTest, TheSameSeedTwiceGivesTheSameBits) {
  v1::RunConfig config = Config();
  const torch::Tensor a = Train(config, 5);
  EXPECT_TRUE(torch::equal(a, Train(config, 5)));
  config.set_seed(2);
  EXPECT_FALSE(torch::equal(a, Train(config, 5)));
}

TEST(SacTest, EveryOptionMatters) {
  const torch::Tensor plain = Train(Config(), 5);
  for (const char* change :
       {"discount: 0.5", "batch_size: 8", "updates_per_rollout: 3",
        "updates_per_rollout: 0", "learning_starts: 64", "tau: 0.1",
        "initial_temperature: 0.5", "learn_temperature: false",
        "target_entropy: 1", "critic_learning_rate: 1e-3",
        "replay_capacity: 32"}) {
    v1::RunConfig config = Config();
    v1::SacConfig other;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(change, &other));
    config.mutable_sac()->MergeFrom(other);
    EXPECT_FALSE(torch::equal(plain, Train(config, 5))) << change;
  }
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
  const auto rollouts = Rollouts(2);
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
  const auto rollouts = Rollouts(3);
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
    Random rng(1);
    algorithm->live_policy()->Decide(
        {.leaf = &leaf, .rows = R}, false, &rng,
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
  auto rollouts = Rollouts(1);
  SoloCollective alone;
  Update(algorithm.get(), rollouts[0], {0, 0, &alone});
  EXPECT_EQ(Steps(algorithm.get()), std::vector<double>(3, kT * kB));
}

TEST(SacTest, ATemperatureThatIsNotLearnedStays) {
  v1::RunConfig config = Config();
  config.mutable_sac()->set_learn_temperature(false);
  config.mutable_sac()->set_initial_temperature(0.2);
  const auto algorithm = Make(config);
  const auto rollouts = Rollouts(1);
  SoloCollective alone;
  const auto metrics = Update(algorithm.get(), rollouts[0], {0, 0, &alone});
  EXPECT_NEAR(metrics.at("losses/temperature"), 0.2, 1e-6);
  EXPECT_EQ(Steps(algorithm.get()), (std::vector<double>{4, 4, 0}));
}

TEST(SacTest, LostStepsAreNotLearnedFrom) {
  auto a = Rollouts(3), b = Rollouts(3);
  for (auto* rollouts : {&a, &b}) {
    for (Rollout& r : *rollouts) r.valid.narrow(1, 2, 1).fill_(0);
  }
  for (Rollout& r : b) {
    r.reward.narrow(1, 2, 1).fill_(1e6);
    r.action.continuous.narrow(1, 2, 1).fill_(0.5);
  }
  const auto train = [](const std::vector<Rollout>& rollouts) {
    const auto algorithm = Make(Config());
    SoloCollective alone;
    for (size_t i = 0; i < rollouts.size(); ++i) {
      Update(algorithm.get(), rollouts[i],
             {static_cast<int64_t>(i), 0, &alone});
    }
    return Everything(algorithm.get());
  };
  EXPECT_TRUE(torch::equal(train(a), train(b)));
}

TEST(SacTest, RanksStayEqualThoughTheyDrawForThemselves) {
  const auto rollouts = Rollouts(6);
  for (const bool buckets : {false, true}) {
    v1::RunConfig config = Config();
    if (buckets) config.mutable_distributed()->set_gradients(v1::BUCKETS);
    std::vector<torch::Tensor> everything(2);
    std::vector<double> q(2);
    RunRanks(2, [&](const v1::Assignment& assignment,
                    FakeCoordinatorClient* coordinator) {
      const int rank = assignment.rank();
      const auto collective = Connect(assignment, coordinator);
      const auto algorithm = Make(config);
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

// One rank has lost everything it saw: both still take the same steps, and the
// other's gradient is not halved.
TEST(SacTest, RanksTakeTheSameStepsWhateverTheirReplayHolds) {
  const auto rollouts = Rollouts(3);
  std::vector<torch::Tensor> everything(2);
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const int rank = assignment.rank();
    const auto collective = Connect(assignment, coordinator);
    const auto algorithm = Make(Config());
    for (int i = 0; i < 3; ++i) {
      Rollout r = rollouts[i];
      if (rank == 1) r.valid = torch::zeros_like(r.valid);
      const auto metrics =
          Update(algorithm.get(), r, {i, 64 * i, collective.get()});
      EXPECT_GT(metrics.at("losses/critic_loss"), 0);
    }
    everything[rank] = Everything(algorithm.get());
    EXPECT_EQ(Steps(algorithm.get()), std::vector<double>(3, 12));
  });
  EXPECT_TRUE(torch::equal(everything[0], everything[1]));
  // Rank 0 draws the same alone: its seed is the same.
  const auto alone_algorithm = Make(Config());
  SoloCollective alone;
  for (int i = 0; i < 3; ++i) {
    Update(alone_algorithm.get(), rollouts[i], {i, 64 * i, &alone});
  }
  EXPECT_LT((Everything(alone_algorithm.get()) - everything[0])
                .abs()
                .max()
                .item<double>(),
            1e-5);
}

// Weights, State and the replay are all there is: another one that has them goes
// on with the same bits.
TEST(SacTest, WeightsStateAndReplayRestoreExactly) {
  const auto rollouts = Rollouts(8);
  const auto first = Make(Config());
  const auto second = Make(Config());
  SoloCollective alone;
  for (int i = 0; i < 4; ++i) {
    Update(first.get(), rollouts[i], {i, 2000, &alone});
  }
  const absl::Status restored =
      second->replay()->Restore(first->replay()->Copy());
  ASSERT_TRUE(restored.ok()) << restored;
  const auto copy = [](const std::vector<NamedTensor>& from,
                       const std::vector<NamedTensor>& to) {
    torch::NoGradGuard no_grad;
    ASSERT_EQ(from.size(), to.size());
    for (size_t i = 0; i < from.size(); ++i) {
      ASSERT_EQ(from[i].name, to[i].name);
      to[i].tensor.copy_(from[i].tensor);
    }
  };
  EXPECT_FALSE(torch::equal(Everything(first.get()), Everything(second.get())));
  copy(first->Weights(), second->Weights());
  copy(first->State(), second->State());
  second->StateWasReplaced();
  for (int i = 4; i < 8; ++i) {
    Update(first.get(), rollouts[i], {i, 2000, &alone});
    Update(second.get(), rollouts[i], {i, 2000, &alone});
    EXPECT_TRUE(torch::equal(Everything(first.get()), Everything(second.get())))
        << i;
  }
}

TEST(SacTest, ALossThatIsNotFiniteStopsAndKeepsTheWeights) {
  const auto algorithm = Make(Config());
  auto rollouts = Rollouts(1);
  rollouts[0].reward.fill_(NAN);
  const torch::Tensor before = Everything(algorithm.get());
  SoloCollective alone;
  const auto updated = algorithm->Update(rollouts[0], {0, 0, &alone});
  EXPECT_EQ(updated.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(updated.status().message().find("losses/critic_loss is nan"),
            std::string::npos)
      << updated.status();
  EXPECT_TRUE(torch::equal(Everything(algorithm.get()), before));
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
