#include "learner/rollout/normalizer.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

v1::ModelConfig Both() {
  v1::ModelConfig config;
  config.set_normalize_observations(true);
  config.set_normalize_rewards(true);
  return config;
}

const uint8_t kValid = 1;

TEST(NormalizerTest, ScalesByTheMeanAndDeviationOfAllThatWasAdded) {
  Normalizer n(Both(), 0.9, /*features=*/2, /*rows=*/1);
  Random rng(1);
  std::vector<double> all[2];
  for (int rollout = 0; rollout < 3; ++rollout) {
    for (int i = 0; i < 50; ++i) {
      float x[2] = {static_cast<float>(3 + 2 * rng.Normal()),
                    static_cast<float>(-1 + 0.1 * rng.Normal())};
      all[0].push_back(x[0]);
      all[1].push_back(x[1]);
      n.Observe(x, 1, 2);
    }
    n.Add(n.Take());
  }
  float x[2] = {4.0f, -1.05f};
  n.Scale(x, 1, 2);
  const float raw[2] = {4.0f, -1.05f};
  for (int d = 0; d < 2; ++d) {
    double mean = 0, variance = 0;
    for (double v : all[d]) mean += v / all[d].size();
    for (double v : all[d]) variance += (v - mean) * (v - mean) / all[d].size();
    EXPECT_NEAR(x[d], (raw[d] - mean) / std::sqrt(variance + 1e-8), 1e-4);
  }
}

TEST(NormalizerTest, RewardsAreScaledByTheDiscountedReturnsDeviation) {
  const double discount = 0.9;
  Normalizer n(Both(), discount, 1, /*rows=*/1);
  Random rng(2);
  double running = 0;
  std::vector<double> returns;
  for (int i = 0; i < 200; ++i) {
    float reward = static_cast<float>(rng.Normal());
    const uint8_t ended = i % 17 == 16;
    running = running * discount + reward;
    returns.push_back(running);
    if (ended) running = 0;
    const float before = reward;
    n.Reward(0, 1, &ended, &kValid, &reward);
    EXPECT_EQ(reward, before);  // nothing was added yet
  }
  n.Add(n.Take());
  double mean = 0, variance = 0;
  for (double v : returns) mean += v / returns.size();
  for (double v : returns) variance += (v - mean) * (v - mean) / returns.size();
  float reward = 0.5f;
  const uint8_t ended = 0;
  n.Reward(0, 1, &ended, &kValid, &reward);
  EXPECT_NEAR(reward, 0.5 / std::sqrt(variance + 1e-8), 1e-4);
}

TEST(NormalizerTest, RewardsOfLostStepsBelongToNoMean) {
  Normalizer whole(Both(), 0.9, 1, /*rows=*/1), torn(Both(), 0.9, 1, 1);
  const uint8_t lost = 0;
  for (int i = 0; i < 20; ++i) {
    float reward = static_cast<float>(i), same = reward, none = 0;
    const uint8_t ended = i % 5 == 4;
    whole.Reward(0, 1, &ended, &kValid, &reward);
    torn.Reward(0, 1, &ended, &kValid, &same);
    if (ended) torn.Reward(0, 1, &ended, &lost, &none);
  }
  EXPECT_EQ(torn.Take(), whole.Take());
}

// Where a row's episode was lost, what it had earned is not the next one's.
TEST(NormalizerTest, WhatIsForgottenIsNotEarnedAgain) {
  Normalizer n(Both(), 0.9, 1, /*rows=*/3);
  const uint8_t valid[3] = {1, 1, 1}, ended[3] = {0, 0, 0};
  float reward[3] = {4, 4, 4};
  n.Reward(0, 3, ended, valid, reward);
  n.Take();
  n.Forget(1, 2);
  float next[3] = {1, 1, 1};
  n.Reward(0, 3, ended, valid, next);
  const std::vector<double> taken = n.Take();  // behind those of observations
  EXPECT_EQ(taken[3], 3);
  EXPECT_NEAR(taken[4], (0.9 * 4 + 1) + 1 + 1, 1e-9);
}

TEST(NormalizerTest, RanksThatAddTheSameSumsAgree) {
  Normalizer a(Both(), 0.9, 1, 1), b(Both(), 0.9, 1, 1);
  for (int i = 0; i < 10; ++i) {
    float x = static_cast<float>(i), y = static_cast<float>(-3 * i);
    a.Observe(&x, 1, 1);
    b.Observe(&y, 1, 1);
  }
  std::vector<double> sum = a.Take();
  const std::vector<double> other = b.Take();
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  a.Add(sum);
  b.Add(sum);
  EXPECT_TRUE(torch::equal(a.observation_sums(), b.observation_sums()));
  float x = 2, y = 2;
  a.Scale(&x, 1, 1);
  b.Scale(&y, 1, 1);
  EXPECT_EQ(x, y);
}

// As a run has them that goes back to before its first update.
TEST(NormalizerTest, SumsOfNothingScaleNothing) {
  Normalizer n(Both(), 0.9, /*features=*/1, /*rows=*/1);
  const uint8_t ended = 0;
  for (float x : {1.0f, 3.0f}) {
    float reward = 5 * x;
    n.Observe(&x, 1, 1);
    n.Reward(0, 1, &ended, &kValid, &reward);
  }
  n.Add(n.Take());
  const auto scaled = [&](float x) {
    n.Scale(&x, 1, 1);
    return x;
  };
  const auto earned = [&](float reward) {
    n.Reward(0, 1, &ended, &kValid, &reward);
    return reward;
  };
  EXPECT_NE(scaled(3), 3);
  EXPECT_NE(earned(3), 3);
  n.observation_sums().zero_();
  n.reward_sums().zero_();
  n.SumsWereReplaced();
  EXPECT_EQ(scaled(3), 3);
  EXPECT_EQ(earned(3), 3);
}

TEST(NormalizerTest, EvaluationScalesObservationsOnlyAndAnyNumberOfRows) {
  Normalizer n(Both(), 0.9, 1, /*rows=*/1);
  for (float x : {1.0f, 3.0f}) n.Observe(&x, 1, 1);
  n.Add(n.Take());
  Normalizer frozen = n.ForEvaluation();
  std::vector<float> reward(1000, 7.0f);
  const std::vector<uint8_t> ended(1000, 0), valid(1000, 1);
  frozen.Reward(0, 1000, ended.data(), valid.data(), reward.data());
  EXPECT_EQ(reward.front(), 7.0f);
  for (float x : {100.0f, 300.0f}) n.Observe(&x, 1, 1);
  n.Add(n.Take());
  float x = 3;
  frozen.Scale(&x, 1, 1);
  EXPECT_NEAR(x, 1, 1e-6);
}

TEST(NormalizerTest, OffChangesNothing) {
  Normalizer n;
  float x[2] = {100, -100};
  const uint8_t ended[2] = {0, 0}, valid[2] = {1, 1};
  n.Observe(x, 1, 2);
  n.Reward(0, 2, ended, valid, x);
  n.Forget(0, 2);
  EXPECT_EQ(x[0], 100);
  EXPECT_TRUE(n.Take().empty());
}

}  // namespace
}  // namespace flotilla
