#include "learner/kernels/mlp_actor_critic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/emulated_amx.h"
#include "tests/learner/kernels/every_kernel_test.h"
#include "tests/learner/kernels/reference_mlp.h"
#include "tests/learner/kernels/test_shapes.h"

namespace flotilla {
namespace {

struct Decisions {
  std::vector<int64_t> discrete;
  std::vector<float> continuous, log_prob, value;

  bool operator==(const Decisions&) const = default;
};

// `noise` is uniforms or normals, as the shape's actions are; empty is greedy.
Decisions Decide(MlpActorCritic* network,
                 const std::vector<float>& observations,
                 const std::vector<float>& noise,
                 const std::vector<uint8_t>& mask = {}) {
  const MlpShape& shape = network->shape();
  const int64_t rows =
      static_cast<int64_t>(observations.size()) / shape.observations;
  Decisions d;
  d.log_prob.resize(rows);
  d.value.resize(rows);
  const float* random = noise.empty() ? nullptr : noise.data();
  if (shape.continuous) {
    d.continuous.resize(rows * shape.actions);
    network->DecideContinuous(observations.data(), rows, random,
                              d.continuous.data(), d.log_prob.data(),
                              d.value.data());
  } else {
    d.discrete.resize(rows * shape.choice_count());
    network->DecideDiscrete(
        observations.data(), mask.empty() ? nullptr : mask.data(), rows, random,
        d.discrete.data(), d.log_prob.data(), d.value.data());
  }
  return d;
}

std::vector<float> RandomUniforms(int64_t count, std::mt19937* rng) {
  std::vector<float> values(count);
  for (float& x : values) x = static_cast<float>((*rng)() >> 8) * 0x1p-24f;
  return values;
}

std::vector<float> NoiseFor(const MlpShape& shape, int64_t rows,
                            std::mt19937* rng) {
  return shape.continuous ? RandomNormals(rows * shape.actions, 1, rng)
                          : RandomUniforms(rows, rng);
}

class MlpActorCriticTest : public EveryKernelTest {
 protected:
  MlpActorCritic MakeNetwork(const MlpShape& shape) {
    parameters_ = RandomParameters(shape, &rng_);
    MlpActorCritic network(shape, kernels());
    network.SetParameters(parameters_.data());
    return network;
  }

  void ExpectForwardNearReference(const MlpShape& shape, double tolerance) {
    SCOPED_TRACE(Describe(shape));
    MlpActorCritic network = MakeNetwork(shape);
    const ReferenceMlp reference(shape, parameters_);
    constexpr int kRows = 205;
    const std::vector<float> observations =
        RandomNormals(kRows * shape.observations, 1, &rng_);
    std::vector<float> policy(kRows * shape.actions), value(kRows);
    network.Forward(observations.data(), kRows, policy.data(), value.data());
    for (int n = 0; n < kRows; ++n) {
      const ReferenceMlp::Output expected =
          reference.Forward(&observations[n * shape.observations]);
      ASSERT_NEAR(value[n], expected.value, tolerance);
      for (int a = 0; a < shape.actions; ++a) {
        ASSERT_NEAR(policy[n * shape.actions + a], expected.policy[a],
                    tolerance);
      }
    }
  }

  std::mt19937 rng_{11};
  std::vector<float> parameters_;
};
FLOTILLA_FOR_EVERY_KERNEL(MlpActorCriticTest);
INSTANTIATE_TEST_SUITE_P(Emulated, MlpActorCriticTest,
                         testing::Values(&EmulatedAmx()), NameOfKernels);

TEST_P(MlpActorCriticTest, ForwardEqualsTheDefinition) {
  for (const MlpShape& shape : TestShapes()) {
    ExpectForwardNearReference(shape, 1e-5);
  }
}

// But for what lies so near the middle of two numbers that it is rounded to the other.
TEST_P(MlpActorCriticTest, HiddenLayersOfBfloat16MultiplyWhatIsRounded) {
  for (const MlpShape& shape : InBfloat16(TestShapes())) {
    ExpectForwardNearReference(shape, 3e-3);
  }
}

TEST_P(MlpActorCriticTest, ForwardWritesOnlyWhatIsWanted) {
  for (const MlpShape& shape : TestShapesInBoth()) {
    SCOPED_TRACE(Describe(shape));
    MlpActorCritic network = MakeNetwork(shape);
    constexpr int kRows = 5;
    const std::vector<float> observations =
        RandomNormals(kRows * shape.observations, 1, &rng_);
    std::vector<float> policy(kRows * shape.actions), value(kRows);
    std::vector<float> policy_alone = policy, value_alone = value;
    network.Forward(observations.data(), kRows, policy.data(), value.data());
    network.Forward(observations.data(), kRows, policy_alone.data(), nullptr);
    network.Forward(observations.data(), kRows, nullptr, value_alone.data());
    EXPECT_EQ(policy, policy_alone);
    EXPECT_EQ(value, value_alone);
  }
}

TEST_P(MlpActorCriticTest, LogProbIsThatOfTheActionTaken) {
  for (const MlpShape& shape : TestShapes()) {
    SCOPED_TRACE(Describe(shape));
    MlpActorCritic network = MakeNetwork(shape);
    const ReferenceMlp reference(shape, parameters_);
    constexpr int kRows = 109;
    const std::vector<float> observations =
        RandomNormals(kRows * shape.observations, 1, &rng_);
    const Decisions d =
        Decide(&network, observations, NoiseFor(shape, kRows, &rng_));
    for (int n = 0; n < kRows; ++n) {
      const ReferenceMlp::Output output =
          reference.Forward(&observations[n * shape.observations]);
      std::vector<double> action;
      if (shape.continuous) {
        action.assign(&d.continuous[n * shape.actions],
                      &d.continuous[n * shape.actions] + shape.actions);
      } else {
        action = {static_cast<double>(d.discrete[n])};
      }
      ASSERT_NEAR(d.log_prob[n], reference.LogProb(output, action.data()),
                  1e-4);
      ASSERT_NEAR(d.value[n], output.value, 1e-5);
    }
  }
}

TEST_P(MlpActorCriticTest, DiscreteActionsInvertTheCumulativeDistribution) {
  for (const MlpShape& shape : TestShapes()) {
    if (shape.continuous) continue;
    SCOPED_TRACE(Describe(shape));
    MlpActorCritic network = MakeNetwork(shape);
    const ReferenceMlp reference(shape, parameters_);
    constexpr int kRows = 200;
    const std::vector<float> observations =
        RandomNormals(kRows * shape.observations, 1, &rng_);
    const std::vector<float> uniforms = RandomUniforms(kRows, &rng_);
    const Decisions d = Decide(&network, observations, uniforms);
    for (int n = 0; n < kRows; ++n) {
      const ReferenceMlp::Output output =
          reference.Forward(&observations[n * shape.observations]);
      double below = 0;
      for (int64_t a = 0; a < d.discrete[n]; ++a) {
        const double action = static_cast<double>(a);
        below += std::exp(reference.LogProb(output, &action));
      }
      const double taken = static_cast<double>(d.discrete[n]);
      const double p = std::exp(reference.LogProb(output, &taken));
      ASSERT_GE(uniforms[n], below - 1e-5);
      ASSERT_LE(uniforms[n], below + p + 1e-5);
    }
  }
}

TEST_P(MlpActorCriticTest, ContinuousActionsAreMeanPlusDeviationTimesNoise) {
  for (const MlpShape& shape : TestShapes()) {
    if (!shape.continuous) continue;
    SCOPED_TRACE(Describe(shape));
    MlpActorCritic network = MakeNetwork(shape);
    constexpr int kRows = 109;
    const int count = kRows * shape.actions;
    const std::vector<float> observations =
        RandomNormals(kRows * shape.observations, 1, &rng_);
    const std::vector<float> normals = RandomNormals(count, 1, &rng_);
    std::vector<float> means(count);
    network.Forward(observations.data(), kRows, means.data(), nullptr);
    const Decisions d = Decide(&network, observations, normals);
    for (int i = 0; i < count; ++i) {
      const float std = std::exp(parameters_[i % shape.actions]);
      ASSERT_NEAR(d.continuous[i], means[i] + std * normals[i], 1e-5);
    }
    EXPECT_EQ(Decide(&network, observations, {}).continuous, means);
  }
}

TEST_P(MlpActorCriticTest, GreedyTakesTheMostLikelyAndTheFirstOfEquals) {
  const MlpShape shape = {4, {20}, Activation::kTanh, false, 5, false};
  MlpActorCritic network = MakeNetwork(shape);
  constexpr int kRows = 109;
  const std::vector<float> observations =
      RandomNormals(kRows * shape.observations, 1, &rng_);
  std::vector<float> logits(kRows * shape.actions);
  network.Forward(observations.data(), kRows, logits.data(), nullptr);
  const Decisions d = Decide(&network, observations, {});
  for (int n = 0; n < kRows; ++n) {
    const auto row = logits.begin() + n * shape.actions;
    ASSERT_EQ(d.discrete[n], std::max_element(row, row + shape.actions) - row);
  }
  parameters_.assign(parameters_.size(), 0.0f);
  network.SetParameters(parameters_.data());
  EXPECT_EQ(Decide(&network, observations, {}).discrete,
            std::vector<int64_t>(kRows, 0));
}

TEST_P(MlpActorCriticTest, ImpossibleActionsAreNeverTaken) {
  const MlpShape shape = {2, {8}, Activation::kTanh, false, 4, false};
  MlpActorCritic network = MakeNetwork(shape);
  // Only actions 1 and 2 are possible, whatever is seen.
  parameters_.assign(parameters_.size(), 0.0f);
  const int64_t bias = ParameterLayout(shape).back().offset;
  parameters_[bias] = parameters_[bias + 3] = -200;
  network.SetParameters(parameters_.data());
  const float largest = 1 - 0x1p-24f;
  const std::vector<float> uniforms = {0, 0x1p-24f, 0.49f, 0.51f, largest};
  const Decisions d = Decide(&network, std::vector<float>(10), uniforms);
  EXPECT_EQ(d.discrete, (std::vector<int64_t>{1, 1, 1, 2, 2}));
  for (const float log_prob : d.log_prob) {
    EXPECT_NEAR(log_prob, std::log(0.5), 1e-6);
  }
}

TEST_P(MlpActorCriticTest, ForbiddenActionsAreNeverTaken) {
  for (const MlpShape& shape : TestShapes()) {
    if (shape.continuous) continue;
    SCOPED_TRACE(Describe(shape));
    MlpActorCritic network = MakeNetwork(shape);
    const ReferenceMlp reference(shape, parameters_);
    constexpr int kRows = 200;
    const int A = shape.actions;
    const std::vector<float> observations =
        RandomNormals(kRows * shape.observations, 1, &rng_);
    std::vector<float> uniforms = RandomUniforms(kRows, &rng_);
    for (int n = 0; n < 40; ++n) uniforms[n] = n % 2 ? 0 : 1 - 0x1p-24f;
    std::vector<uint8_t> mask(kRows * A);
    for (uint8_t& one : mask) one = rng_() % 3 == 0 ? 0 : 1 + rng_() % 2;
    std::fill_n(mask.begin(), A, 0);  // no row that is played
    for (const bool greedy : {false, true}) {
      const Decisions d =
          Decide(&network, observations,
                 greedy ? std::vector<float>() : uniforms, mask);
      for (int n = 0; n < kRows; ++n) {
        const uint8_t* const allowed = &mask[n * A];
        const bool any = std::any_of(allowed, allowed + A,
                                     [](uint8_t one) { return one != 0; });
        ReferenceMlp::Output output =
            reference.Forward(&observations[n * shape.observations]);
        reference.Forbid(allowed, &output);
        const int64_t taken = d.discrete[n];
        ASSERT_TRUE(!any || allowed[taken] != 0) << n;
        const double action = static_cast<double>(taken);
        ASSERT_NEAR(d.log_prob[n], reference.LogProb(output, &action), 1e-5);
        if (greedy) {
          ASSERT_NEAR(
              output.policy[taken],
              *std::max_element(output.policy.begin(), output.policy.end()),
              1e-5);
          continue;
        }
        double below = 0;
        for (int64_t a = 0; a < taken; ++a) {
          const double other = static_cast<double>(a);
          below += std::exp(reference.LogProb(output, &other));
        }
        ASSERT_GE(uniforms[n], below - 1e-5);
        ASSERT_LE(uniforms[n],
                  below + std::exp(reference.LogProb(output, &action)) + 1e-5);
      }
    }
  }
}

// Each choice for itself: with a uniform number, a mask and a probability of its own.
TEST_P(MlpActorCriticTest, SeveralChoicesAreIndependent) {
  MlpShape shape = {6, {20, 16}, Activation::kTanh, true, 9, false};
  shape.choices = {2, 4, 3};
  MlpActorCritic network = MakeNetwork(shape);
  const ReferenceMlp reference(shape, parameters_);
  constexpr int kRows = 200, kChoices = 3;
  const std::vector<float> observations =
      RandomNormals(kRows * shape.observations, 1, &rng_);
  std::vector<float> uniforms = RandomUniforms(kRows * kChoices, &rng_);
  for (int n = 0; n < 40; ++n) uniforms[n] = n % 2 ? 0 : 1 - 0x1p-24f;
  std::vector<uint8_t> mask(kRows * shape.actions);
  for (uint8_t& one : mask) one = rng_() % 3 == 0 ? 0 : 1;
  for (const bool greedy : {false, true}) {
    const Decisions d = Decide(&network, observations,
                               greedy ? std::vector<float>() : uniforms, mask);
    for (int n = 0; n < kRows; ++n) {
      ReferenceMlp::Output output =
          reference.Forward(&observations[n * shape.observations]);
      reference.Forbid(&mask[n * shape.actions], &output);
      const int64_t* taken = &d.discrete[n * kChoices];
      const std::vector<double> action(taken, taken + kChoices);
      ASSERT_NEAR(d.log_prob[n], reference.LogProb(output, action.data()),
                  1e-5);
      int first = 0;
      for (int k = 0; k < kChoices; ++k) {
        const double* logits = output.policy.data() + first;
        double below = 0, sum = 0;
        for (int a = 0; a < shape.choices[k]; ++a) {
          if (a < taken[k]) below += std::exp(logits[a]);
          sum += std::exp(logits[a]);
        }
        const double p = std::exp(logits[taken[k]]) / sum;
        ASSERT_GT(p, 0);
        if (greedy) {
          ASSERT_NEAR(logits[taken[k]],
                      *std::max_element(logits, logits + shape.choices[k]),
                      1e-5);
        } else {
          ASSERT_GE(uniforms[n * kChoices + k], below / sum - 1e-5);
          ASSERT_LE(uniforms[n * kChoices + k], below / sum + p + 1e-5);
        }
        first += shape.choices[k];
      }
    }
  }
}

// Neither drawn nor as the likeliest, and what was seen by others does not matter.
TEST_P(MlpActorCriticTest, ForbiddenActionsAreNotTakenOfObservationsOfNaN) {
  MlpShape shape = {6, {20, 16}, Activation::kTanh, true, 9, false};
  shape.choices = {2, 4, 3};
  MlpActorCritic network = MakeNetwork(shape);
  constexpr int kRows = 100, kChoices = 3;
  const std::vector<float> clean =
      RandomNormals(kRows * shape.observations, 1, &rng_);
  std::vector<float> observations = clean;
  for (int n = 0; n < kRows; n += 2) {
    observations[n * shape.observations + n % shape.observations] =
        std::numeric_limits<float>::quiet_NaN();
  }
  const std::vector<float> uniforms = RandomUniforms(kRows * kChoices, &rng_);
  std::vector<uint8_t> mask(kRows * shape.actions);
  for (uint8_t& one : mask) one = rng_() % 2;
  for (const bool greedy : {false, true}) {
    const std::vector<float> noise = greedy ? std::vector<float>() : uniforms;
    const Decisions d = Decide(&network, observations, noise, mask);
    const Decisions of_clean = Decide(&network, clean, noise, mask);
    for (int n = 0; n < kRows; ++n) {
      const bool broken = n % 2 == 0;
      ASSERT_EQ(std::isnan(d.log_prob[n]), broken) << n;
      if (!broken) {
        ASSERT_EQ(d.log_prob[n], of_clean.log_prob[n]) << n;
      }
      const uint8_t* allowed = &mask[n * shape.actions];
      for (int k = 0; k < kChoices; allowed += shape.choices[k++]) {
        const int64_t taken = d.discrete[n * kChoices + k];
        const bool any = std::any_of(allowed, allowed + shape.choices[k],
                                     [](uint8_t one) { return one != 0; });
        ASSERT_TRUE(!any || allowed[taken] != 0) << n << ' ' << k;
        if (!broken) {
          ASSERT_EQ(taken, of_clean.discrete[n * kChoices + k]) << n;
        }
      }
    }
  }
}

TEST_P(MlpActorCriticTest, OneBrokenLogitShowsInTheLogProbability) {
  const MlpShape shape = {2, {8}, Activation::kTanh, false, 4, false};
  MlpActorCritic network = MakeNetwork(shape);
  const int64_t bias = ParameterLayout(shape).back().offset;
  for (int broken = 0; broken < shape.actions; ++broken) {
    std::vector<float> parameters = parameters_;
    parameters[bias + broken] = std::numeric_limits<float>::quiet_NaN();
    network.SetParameters(parameters.data());
    for (const bool greedy : {false, true}) {
      const Decisions d =
          Decide(&network, std::vector<float>(shape.observations),
                 greedy ? std::vector<float>() : std::vector<float>{0.5f});
      EXPECT_TRUE(std::isnan(d.log_prob[0])) << broken;
    }
  }
}

TEST_P(MlpActorCriticTest, RowsDoNotDependOnTheirNeighbours) {
  for (const MlpShape& shape : TestShapesInBoth()) {
    SCOPED_TRACE(Describe(shape));
    MlpActorCritic network = MakeNetwork(shape);
    constexpr int kRows = 205;
    const std::vector<float> observations =
        RandomNormals(kRows * shape.observations, 1, &rng_);
    const std::vector<float> noise = NoiseFor(shape, kRows, &rng_);
    const Decisions together = Decide(&network, observations, noise);
    const int noise_width = shape.continuous ? shape.actions : 1;
    for (int n = 0; n < kRows; ++n) {
      const auto seen = observations.begin() + n * shape.observations;
      const auto random = noise.begin() + n * noise_width;
      const Decisions alone =
          Decide(&network, {seen, seen + shape.observations},
                 {random, random + noise_width});
      ASSERT_EQ(alone.log_prob[0], together.log_prob[n]);
      ASSERT_EQ(alone.value[0], together.value[n]);
      if (!shape.continuous) {
        ASSERT_EQ(alone.discrete[0], together.discrete[n]);
      }
    }
  }
}

TEST_P(MlpActorCriticTest, NothingIsReadOrWrittenPastTheLastRow) {
  const MlpShape shape = {3, {17}, Activation::kTanh, false, 2, false};
  MlpActorCritic network = MakeNetwork(shape);
  constexpr int kRows = 3;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> observations =
      RandomNormals(kRows * shape.observations, 1, &rng_);
  observations.resize(100, nan);
  std::vector<float> uniforms(kRows, 0.5f);
  uniforms.resize(100, nan);
  std::vector<int64_t> action(100, -7);
  std::vector<float> log_prob(100, 9), value(100, 9);
  network.DecideDiscrete(observations.data(), nullptr, kRows, uniforms.data(),
                         action.data(), log_prob.data(), value.data());
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(action[i] == -7, i >= kRows);
    EXPECT_EQ(log_prob[i] == 9, i >= kRows);
    EXPECT_EQ(value[i] == 9, i >= kRows);
  }
}

TEST_P(MlpActorCriticTest, BrokenParametersShowInTheValue) {
  for (const MlpShape& shape : TestShapes()) {
    SCOPED_TRACE(Describe(shape));
    MlpActorCritic network = MakeNetwork(shape);
    parameters_.assign(parameters_.size(),
                       std::numeric_limits<float>::quiet_NaN());
    network.SetParameters(parameters_.data());
    const Decisions d =
        Decide(&network, std::vector<float>(shape.observations * 3), {});
    EXPECT_TRUE(std::isnan(d.value[0]));
    EXPECT_TRUE(std::isnan(d.log_prob[0]));
    if (!shape.continuous) {
      EXPECT_LT(d.discrete[0], shape.actions);
    }
  }
}

}  // namespace
}  // namespace flotilla
