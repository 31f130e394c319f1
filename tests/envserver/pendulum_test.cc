#include "envserver/envs/pendulum.h"

#include <gtest/gtest.h>

#include <cmath>

#include "services/base/random.h"
#include "tests/envserver/environment_harness.h"

namespace flotilla {
namespace {

TEST(PendulumTest, SpecIsGymnasiums) {
  const Pendulum env;
  EXPECT_EQ(env.spec().max_episode_steps(), 200);
  EXPECT_EQ(env.spec().action(0).dtype(), v1::FLOAT32);
  EXPECT_EQ(env.spec().action(0).low(0), -2);
  EXPECT_EQ(env.spec().action(0).high(0), 2);
  EXPECT_EQ(env.spec().observation(0).high(2), 8);
}

TEST(PendulumTest, FirstStateIsTheSeedsFirstDraws) {
  EnvironmentHarness env(std::make_unique<Pendulum>());
  env.Reset(11);
  Random random(11);
  const double theta = static_cast<float>(random.Uniform(-M_PI, M_PI));
  const double speed = static_cast<float>(random.Uniform(-1, 1));
  EXPECT_EQ(env.Observation<float>(),
            (std::vector<float>{static_cast<float>(std::cos(theta)),
                                static_cast<float>(std::sin(theta)),
                                static_cast<float>(speed)}));
}

TEST(PendulumTest, RewardIsNeverPositiveAndSpeedBounded) {
  EnvironmentHarness env(std::make_unique<Pendulum>());
  env.Reset(5);
  for (int i = 0; i < 500; ++i) {
    const Outcome outcome = env.Step<float>(2);
    EXPECT_LE(outcome.reward, 0);
    EXPECT_GE(outcome.reward, -16.2736044f);  // Gymnasium's minimum
    EXPECT_FALSE(outcome.terminated);
    EXPECT_LE(std::abs(env.Observation<float>()[2]), 8);
  }
}

}  // namespace
}  // namespace flotilla
