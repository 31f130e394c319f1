#include "learner/algo/segment_ppo.h"

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "learner/algo/segment_priorities.h"
#include "learner/collective/solo_collective.h"
#include "learner/kernels/draws.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/learner/algo/slow_recurrent.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

constexpr int64_t kT = 16, kB = 8;

TEST(SegmentPrioritiesTest, ProbabilitiesFollowPufferLib) {
  torch::manual_seed(1);
  const torch::Tensor advantage = torch::randn({kT, kB});
  for (const double alpha : {0.0, 0.8, 1.0}) {
    std::vector<double> w(kB);
    double total = 0;
    for (int64_t b = 0; b < kB; ++b) {
      double size = 0;
      for (int64_t t = 0; t < kT; ++t) {
        size += std::abs(double{advantage[t][b].item<float>()});
      }
      total += w[b] = std::pow(size, alpha);
    }
    const torch::Tensor p = SegmentProbabilities(advantage, alpha);
    for (int64_t b = 0; b < kB; ++b) {
      EXPECT_NEAR(p[b].item<double>(), (w[b] + 1e-6) / (total + 1e-6), 1e-12);
    }
  }
}

// Of mean 1, [n].
torch::Tensor Exponential(Draws* draws, int64_t n) {
  const torch::Tensor numbers = torch::empty({n}, torch::kFloat64);
  for (int64_t i = 0; i < n; ++i) numbers[i] = -std::log1p(-draws->Uniform());
  return numbers;
}

std::vector<int64_t> Drawn(const torch::Tensor& p, int64_t count,
                           Draws* draws) {
  const torch::Tensor drawn =
      DrawSegments(p, count, Exponential(draws, p.numel()));
  return {drawn.data_ptr<int64_t>(), drawn.data_ptr<int64_t>() + count};
}

TEST(SegmentPrioritiesTest, NothingToLearnAnywhereIsUniform) {
  const torch::Tensor p = SegmentProbabilities(torch::zeros({kT, kB}), 0.8);
  EXPECT_TRUE((p == p[0]).all().item<bool>());
  Draws draws(1);
  const std::vector<int64_t> all = Drawn(p, kB, &draws);
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(),
            static_cast<size_t>(kB));
}

TEST(SegmentPrioritiesTest, WhatIsNotFiniteIsPreferredByNobody) {
  torch::Tensor advantage = torch::ones({kT, kB});
  advantage[3][2] = std::numeric_limits<float>::quiet_NaN();
  advantage[3][4] = std::numeric_limits<float>::infinity();
  const torch::Tensor p = SegmentProbabilities(advantage, 0.8);
  EXPECT_TRUE(p.isfinite().all().item<bool>());
  EXPECT_LT(p[2].item<double>(), 1e-6);
  EXPECT_LT(p[4].item<double>(), 1e-6);
}

TEST(SegmentPrioritiesTest, DrawsWithoutReplacementInProportion) {
  const std::vector<double> p = {0.5, 0.3, 0.15, 0.05};
  const torch::Tensor probabilities = torch::tensor(p, torch::kFloat64);
  Draws draws(1);
  constexpr int kDraws = 20000;
  int first[4] = {}, either[4] = {};
  for (int i = 0; i < kDraws; ++i) {
    const std::vector<int64_t> two = Drawn(probabilities, 2, &draws);
    ASSERT_NE(two[0], two[1]);
    ++first[two[0]];
    for (const int64_t b : two) ++either[b];
  }
  for (int b = 0; b < 4; ++b) {
    EXPECT_NEAR(first[b] / double{kDraws}, p[b], 0.015);
    double second = 0;  // drawn after another one
    for (int a = 0; a < 4; ++a) {
      if (a != b) second += p[a] * p[b] / (1 - p[a]);
    }
    EXPECT_NEAR(either[b] / double{kDraws}, p[b] + second, 0.015);
  }
  const std::vector<int64_t> all = Drawn(probabilities, 4, &draws);
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 4u);
}

TEST(SegmentPrioritiesTest, WeightsTakeMoreBackTowardsTheEnd) {
  // (segments * p) ** -(beta0 + (1 - beta0) * alpha * done)
  const auto weight = [](double p, double done) {
    return SegmentWeights(torch::tensor({p}, torch::kFloat64), 8, 0.8, 0.2,
                          done)
        .item<double>();
  };
  EXPECT_NEAR(weight(0.5, 0.0), std::pow(4, -0.2), 1e-12);
  EXPECT_NEAR(weight(0.5, 0.5), std::pow(4, -0.52), 1e-12);
  EXPECT_NEAR(weight(0.01, 1.0), std::pow(0.08, -0.84), 1e-12);
}

v1::RunConfig Config(v1::Minibatch minibatch) {
  v1::RunConfig config;
  config.mutable_ppo()->set_minibatch(minibatch);
  config.mutable_env()->set_num_envs(kB);
  config.mutable_rollout()->set_length(kT);
  return config;
}

torch::Tensor Weights(Algorithm* algorithm) {
  std::vector<torch::Tensor> flat;
  for (const NamedTensor& t : algorithm->Weights()) {
    flat.push_back(t.tensor.flatten());
  }
  return torch::cat(flat).clone();
}

torch::Tensor Train(const v1::RunConfig& config, const Spaces& spaces,
                    const Rollout& rollout) {
  auto algorithm = MakeAlgorithm(config, spaces, torch::kCPU).value();
  SoloCollective alone;
  const auto updated = algorithm->Update(rollout, {0, 0, &alone});
  EXPECT_TRUE(updated.ok()) << updated.status();
  return Weights(algorithm.get());
}

int64_t StateSize(const v1::RunConfig& config, const Spaces& spaces) {
  return MakeAlgorithm(config, spaces, torch::kCPU)
      .value()
      ->live_policy()
      ->state_size();
}

// One minibatch of all environments, none preferred: that is PPO with
// generalised advantages, as every ratio is 1.
TEST(SegmentPpoTest, TheFirstStepWithoutPreferenceIsPpos) {
  const std::pair<Spaces, v1::ModelConfig> cases[] = {
      {VectorSpaces(4, 2), v1::ModelConfig()},
      {AtariSpaces(4), v1::ModelConfig()},
      {VectorSpaces(4, 2), RecurrentModel(v1::LSTM, 2)},
      {VectorSpaces(4, 2), RecurrentModel(v1::GRU, 1)}};
  for (const auto& [spaces, model] : cases) {
    v1::RunConfig segments = Config(v1::SEGMENTS), steps = Config(v1::STEPS);
    const int64_t T = HasFrames(spaces) ? 4 : kT;  // frames take their time
    for (v1::RunConfig* config : {&segments, &steps}) {
      *config->mutable_model() = model;
      config->mutable_rollout()->set_length(T);
      config->mutable_ppo()->set_epochs(1);
      config->mutable_ppo()->set_minibatches(1);
      config->mutable_ppo()->set_priority_alpha(0);
      // Smooth in the gradient, so that rounding cannot turn a step around.
      config->mutable_optimizer()->set_epsilon(1);
      config->mutable_optimizer()->set_learning_rate(0.1);
    }
    torch::manual_seed(1);
    Rollout rollout = RandomRollout(spaces, T, kB);
    rollout.valid[3][2] = 0;
    if (model.recurrent() != v1::NONE) {
      rollout.initial_state =
          0.5 * torch::randn({kB, StateSize(segments, spaces)});
    }
    const torch::Tensor got = Train(segments, spaces, rollout);
    const torch::Tensor want = Train(steps, spaces, rollout);
    EXPECT_LT((got - want).abs().max().item<double>(), 1e-6);
  }
}

// Ratios are 1 until a step was looked at again: where they are cut counts
// from then on.
TEST(SegmentPpoTest, RatiosOfEarlierMinibatchesCount) {
  const Spaces spaces = VectorSpaces(4, 2);
  torch::manual_seed(1);
  const Rollout rollout = RandomRollout(spaces, kT, kB);
  for (const int epochs : {1, 2}) {
    v1::RunConfig config = Config(v1::SEGMENTS);
    config.mutable_ppo()->set_epochs(epochs);
    config.mutable_ppo()->set_minibatches(1);
    const torch::Tensor plain = Train(config, spaces, rollout);
    config.mutable_ppo()->set_rho_clip(1.0 + 1e-3);
    config.mutable_ppo()->set_c_clip(1.0 + 1e-3);
    EXPECT_EQ(torch::equal(Train(config, spaces, rollout), plain), epochs == 1);
  }
}

// What was decided with the weights that the first minibatch has: from the state
// that each row remembered, over ends and lost steps.
TEST(SegmentPpoTest, ARecurrentActorsFirstMinibatchHasRatioOne) {
  const Spaces spaces = VectorSpaces(4, 2);
  for (const v1::RecurrentCell cell : {v1::LSTM, v1::GRU}) {
    v1::RunConfig config = Config(v1::SEGMENTS);
    *config.mutable_model() = RecurrentModel(cell, 2);
    config.mutable_ppo()->set_epochs(1);
    config.mutable_ppo()->set_minibatches(1);
    auto algorithm = MakeAlgorithm(config, spaces, torch::kCPU).value();
    torch::manual_seed(1);
    Rollout rollout = RecurrentRollout(spaces, kT, kB,
                                       algorithm->live_policy()->state_size());
    Draws draws(1);
    Decide(algorithm->live_policy(), &draws, &rollout);
    SoloCollective alone;
    std::map<std::string, double> metrics;
    const auto updated = algorithm->Update(rollout, {0, 0, &alone}).value();
    for (const Metric& metric : updated) metrics[metric.name] = metric.value;
    EXPECT_NEAR(metrics.at("losses/approx_kl"), 0, 1e-7);
    EXPECT_NEAR(metrics.at("losses/old_approx_kl"), 0, 1e-6);
    EXPECT_EQ(metrics.at("losses/clipfrac"), 0);
  }
}

TEST(SegmentPpoTest, ARecurrentNetworkLearns) {
  const Spaces spaces = VectorSpaces(4, 2);
  v1::RunConfig config = Config(v1::SEGMENTS);
  *config.mutable_model() = RecurrentModel(v1::LSTM, 1);
  const auto fresh = MakeAlgorithm(config, spaces, torch::kCPU).value();
  const torch::Tensor before = Weights(fresh.get());
  torch::manual_seed(1);
  const Rollout rollout =
      RecurrentRollout(spaces, kT, kB, fresh->live_policy()->state_size());
  const torch::Tensor after = Train(config, spaces, rollout);
  EXPECT_TRUE(after.isfinite().all().item<bool>());
  EXPECT_GT((after - before).abs().max().item<double>(), 1e-4);
  // Where the rollout began counts.
  Rollout elsewhere = rollout;
  elsewhere.initial_state = rollout.initial_state + 1;
  EXPECT_FALSE(torch::equal(Train(config, spaces, elsewhere), after));
  // What was lost does not.
  Rollout other = rollout;
  other.reward = rollout.reward.clone();
  other.reward[4][1] = 1e6;
  EXPECT_TRUE(torch::equal(Train(config, spaces, other), after));
}

TEST(SegmentPpoTest, RanksDrawTheirOwnAndTakeAsManySteps) {
  const Spaces spaces = VectorSpaces(4, 2);
  v1::RunConfig config = Config(v1::SEGMENTS);
  config.mutable_env()->set_num_envs(kB / 2);
  torch::manual_seed(1);
  Rollout whole = RandomRollout(spaces, kT, kB);
  whole.valid.narrow(1, 0, 2).zero_();  // of the first rank
  std::vector<torch::Tensor> got(2);
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const int rank = assignment.rank();
    auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                     coordinator, torch::kCPU)
                          .value();
    auto algorithm = MakeAlgorithm(config, spaces, torch::kCPU).value();
    const auto updated =
        algorithm->Update(Columns(whole, spaces, rank * kB / 2, kB / 2),
                          {0, 0, collective.get()});
    ASSERT_TRUE(updated.ok()) << updated.status();
    got[rank] = Weights(algorithm.get());
    EXPECT_EQ(algorithm->State().back().tensor.item<int64_t>(), 4 * 4);
  });
  EXPECT_TRUE(torch::equal(got[0], got[1]));
}

}  // namespace
}  // namespace flotilla
