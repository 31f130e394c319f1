#include "learner/algo/dqn.h"

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
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

constexpr int64_t kT = 8, kB = 4;

v1::RunConfig Config() {
  v1::RunConfig config;
  config.mutable_env()->set_num_envs(kB);
  config.mutable_rollout()->set_length(kT);
  config.mutable_model()->add_hidden(16);
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

// Rollouts that do not continue each other: every row is cut between them.
std::vector<Rollout> Rollouts(int n) {
  torch::manual_seed(1);
  std::vector<Rollout> rollouts;
  for (int i = 0; i < n; ++i) {
    rollouts.push_back(RandomRollout(VectorSpaces(4, 2), kT, kB));
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

torch::Tensor Target(Algorithm* algorithm) {
  std::vector<NamedTensor> target;
  for (const NamedTensor& t : algorithm->State()) {
    if (t.name.rfind("target.", 0) == 0) target.push_back(t);
  }
  return Flat(target);
}

int64_t Steps(Algorithm* algorithm) {
  for (const NamedTensor& t : algorithm->State()) {
    if (t.name == "adam.step") return t.tensor.item<int64_t>();
  }
  return -1;
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
  return Flat(algorithm->Weights());
}

TEST(DqnTest, TheSameSeedTwiceGivesTheSameBits) {
  for (double alpha : {0.0, 0.6}) {
    v1::RunConfig config = Config();
    config.mutable_dqn()->set_priority_alpha(alpha);
    const torch::Tensor a = Train(config, 5);
    EXPECT_TRUE(torch::equal(a, Train(config, 5)));
    config.set_seed(2);
    EXPECT_FALSE(torch::equal(a, Train(config, 5)));
  }
}

TEST(DqnTest, EveryOptionMatters) {
  v1::RunConfig base = Config();
  // So that the network and its target come to prefer different actions.
  base.mutable_optimizer()->set_learning_rate(3e-2);
  base.mutable_dqn()->set_target_update_every(1000);
  const torch::Tensor plain = Train(base, 5);
  for (const char* change :
       {"discount: 0.5", "n_step: 1", "double_q: false", "batch_size: 8",
        "updates_per_rollout: 3", "target_update_every: 2",
        "learning_starts: 64", "huber: true", "priority_alpha: 0.6",
        "replay_capacity: 32"}) {
    v1::RunConfig config = base;
    v1::DqnConfig other;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(change, &other));
    config.mutable_dqn()->MergeFrom(other);
    EXPECT_FALSE(torch::equal(plain, Train(config, 5))) << change;
  }
  v1::RunConfig prioritised = base;
  prioritised.mutable_dqn()->set_priority_alpha(0.6);
  const torch::Tensor beta = Train(prioritised, 5);
  prioritised.mutable_dqn()->set_priority_beta(1);
  EXPECT_FALSE(torch::equal(beta, Train(prioritised, 5)));
}

TEST(DqnTest, TheTargetIsCopiedEverySoManyGradientSteps) {
  const auto algorithm = Make(Config());  // 4 steps an update, a copy every 6
  const auto rollouts = Rollouts(4);
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
  const auto rollouts = Rollouts(3);
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
  const auto rollouts = Rollouts(1);
  SoloCollective alone;
  EXPECT_DOUBLE_EQ(Update(algorithm.get(), rollouts[0], {0, 250000, &alone})
                       .at("charts/epsilon"),
                   EpsilonAt(config, 250000));
  // So late, hardly a row explores: all but a few do what greedy rows do.
  algorithm->BeforeCollecting(100000000);
  const int64_t R = 4000;
  const torch::Tensor seen = torch::randn({R, 4});
  std::vector<float> ignored(R);
  std::vector<int64_t> action(R), best(R);
  Random rng(1);
  const void* leaf = seen.data_ptr();
  const Observations o{.leaf = &leaf, .rows = R};
  algorithm->live_policy()->Decide(
      o, false, &rng, {action.data(), nullptr, ignored.data(), ignored.data()});
  algorithm->live_policy()->Decide(
      o, true, &rng, {best.data(), nullptr, ignored.data(), ignored.data()});
  int64_t others = 0;
  for (int64_t r = 0; r < R; ++r) others += action[r] != best[r];
  EXPECT_NEAR(others / static_cast<double>(R), 0.025, 0.0125);
}

TEST(DqnTest, LostStepsAreNotLearnedFrom) {
  auto a = Rollouts(3), b = Rollouts(3);
  for (auto* rollouts : {&a, &b}) {
    for (Rollout& r : *rollouts) r.valid.narrow(1, 2, 1).fill_(0);
  }
  for (Rollout& r : b) {
    r.reward.narrow(1, 2, 1).fill_(1e6);
    r.action.discrete.narrow(1, 2, 1).bitwise_xor_(1);
  }
  const auto train = [](const std::vector<Rollout>& rollouts) {
    const auto algorithm = Make(Config());
    SoloCollective alone;
    for (size_t i = 0; i < rollouts.size(); ++i) {
      Update(algorithm.get(), rollouts[i],
             {static_cast<int64_t>(i), 0, &alone});
    }
    return Flat(algorithm->Weights());
  };
  EXPECT_TRUE(torch::equal(train(a), train(b)));
}

// One rank has lost everything it saw: both still take the same steps, and the
// other's gradient is not halved.
TEST(DqnTest, RanksTakeTheSameStepsWhateverTheirReplayHolds) {
  const auto rollouts = Rollouts(3);
  std::vector<torch::Tensor> weights(2);
  std::vector<int64_t> steps(2);
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const int rank = assignment.rank();
    auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                     coordinator, torch::kCPU)
                          .value();
    const auto algorithm = Make(Config());
    for (int i = 0; i < 3; ++i) {
      Rollout r = rollouts[i];
      if (rank == 1) r.valid = torch::zeros_like(r.valid);
      const auto metrics =
          Update(algorithm.get(), r, {i, 64 * i, collective.get()});
      EXPECT_GT(metrics.at("losses/td_loss"), 0);
    }
    weights[rank] = Flat(algorithm->Weights());
    steps[rank] = Steps(algorithm.get());
  });
  EXPECT_TRUE(torch::equal(weights[0], weights[1]));
  EXPECT_EQ(steps[0], 12);
  EXPECT_EQ(steps[1], 12);
  // Rank 0 draws the same alone: its seed is the same.
  const auto alone_algorithm = Make(Config());
  SoloCollective alone;
  for (int i = 0; i < 3; ++i) {
    Update(alone_algorithm.get(), rollouts[i], {i, 64 * i, &alone});
  }
  EXPECT_LT((Flat(alone_algorithm->Weights()) - weights[0])
                .abs()
                .max()
                .item<double>(),
            1e-6);
}

TEST(DqnTest, RanksDrawDifferentTransitions) {
  const auto rollouts = Rollouts(1);
  std::vector<double> q(2);
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                     coordinator, torch::kCPU)
                          .value();
    const auto algorithm = Make(Config());
    q[assignment.rank()] =
        Update(algorithm.get(), rollouts[0], {0, 0, collective.get()})
            .at("losses/q_values");
  });
  EXPECT_NE(q[0], q[1]);
}

// Weights, State and the replay are all there is: another one that has them goes
// on with the same bits.
TEST(DqnTest, WeightsStateAndReplayRestoreExactly) {
  const auto rollouts = Rollouts(8);
  v1::RunConfig config = Config();
  config.mutable_dqn()->set_priority_alpha(0.6);
  const auto first = Make(config);
  const auto second = Make(config);
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
  EXPECT_FALSE(torch::equal(Flat(first->Weights()), Flat(second->Weights())));
  copy(first->Weights(), second->Weights());
  copy(first->State(), second->State());
  second->StateWasReplaced();
  for (int i = 4; i < 8; ++i) {
    Update(first.get(), rollouts[i], {i, 2000, &alone});
    Update(second.get(), rollouts[i], {i, 2000, &alone});
  }
  EXPECT_TRUE(torch::equal(Flat(first->Weights()), Flat(second->Weights())));
  EXPECT_TRUE(torch::equal(Target(first.get()), Target(second.get())));
}

TEST(DqnTest, ALossThatIsNotFiniteStopsAndKeepsTheWeights) {
  const auto algorithm = Make(Config());
  auto rollouts = Rollouts(1);
  rollouts[0].reward.fill_(NAN);
  const torch::Tensor before = Flat(algorithm->Weights());
  SoloCollective alone;
  const auto updated = algorithm->Update(rollouts[0], {0, 0, &alone});
  EXPECT_EQ(updated.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(updated.status().message().find("losses/td_loss is nan"),
            std::string::npos)
      << updated.status();
  EXPECT_TRUE(torch::equal(Flat(algorithm->Weights()), before));
}

}  // namespace
}  // namespace flotilla
