#include "envserver/envs/cartpole.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/envserver/environment_harness.h"

namespace flotilla {
namespace {

TEST(CartPoleTest, SpecIsGymnasiums) {
  const CartPole env;
  EXPECT_EQ(env.spec().env_id(), "CartPole-v1");
  EXPECT_EQ(env.spec().max_episode_steps(), 500);
  EXPECT_EQ(env.spec().reward_threshold(), 475);
  EXPECT_EQ(env.spec().action(0).num_values(), 2);
  ASSERT_EQ(env.spec().observation(0).high_size(), 4);
  EXPECT_FLOAT_EQ(env.spec().observation(0).high(0), 4.8f);
  EXPECT_TRUE(std::isinf(env.spec().observation(0).high(1)));
  EXPECT_FLOAT_EQ(env.spec().observation(0).high(2), 0.41887903f);
}

TEST(CartPoleTest, StartsNearUprightAndDiffersBySeed) {
  EnvironmentHarness env(std::make_unique<CartPole>());
  env.Reset(1);
  const auto first = env.Observation<float>();
  for (float value : first) EXPECT_LE(std::abs(value), 0.05f);
  env.Reset(2);
  EXPECT_NE(env.Observation<float>(), first);
  env.Reset(1);
  EXPECT_EQ(env.Observation<float>(), first);
}

// One step from a known state, computed by hand from the equations of motion.
TEST(CartPoleTest, MovesByTheEquationsOfMotion) {
  EnvironmentHarness env(std::make_unique<CartPole>());
  env.Reset(7);
  const auto before = env.Observation<float>();
  const Outcome outcome = env.Step<int64_t>(1);
  const auto after = env.Observation<float>();
  EXPECT_EQ(outcome.reward, 1);
  EXPECT_FALSE(outcome.terminated);
  EXPECT_FLOAT_EQ(after[0], before[0] + 0.02f * before[1]);
  EXPECT_FLOAT_EQ(after[2], before[2] + 0.02f * before[3]);
  // Pushed right from rest: the cart gains about F / m * tau, the pole lags.
  EXPECT_NEAR(after[1] - before[1], 0.195, 0.01);
  EXPECT_NEAR(after[3] - before[3], -0.29, 0.03);
}

TEST(CartPoleTest, FallsWhenPushedOneWay) {
  EnvironmentHarness env(std::make_unique<CartPole>());
  env.Reset(3);
  int steps = 0;
  Outcome outcome;
  while (!outcome.terminated && steps < 50) {
    outcome = env.Step<int64_t>(0);
    EXPECT_EQ(outcome.reward, 1);  // of the last step too
    ++steps;
  }
  EXPECT_TRUE(outcome.terminated);
  EXPECT_GT(env.Observation<float>()[2], 0.2094f);
  EXPECT_LT(steps, 15);
}

}  // namespace
}  // namespace flotilla
