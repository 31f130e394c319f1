#include "learner/kernels/gae.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/every_kernel_test.h"

namespace flotilla {
namespace {

struct Experience {
  int64_t length, rows;
  std::vector<float> reward, value, bootstrap_value;
  std::vector<uint8_t> terminated, truncated, valid;

  GaeInput Input() const {
    return {.length = length,
            .rows = rows,
            .reward = reward.data(),
            .value = value.data(),
            .terminated = terminated.data(),
            .truncated = truncated.data(),
            .bootstrap_value = bootstrap_value.data(),
            .valid = valid.data(),
            .discount = 0.97f,
            .lambda = 0.9f};
  }
};

Experience RandomExperience(int64_t length, int64_t rows) {
  std::mt19937 rng(static_cast<unsigned>(length * 1000 + rows));
  std::normal_distribution<float> normal;
  std::bernoulli_distribution seldom(0.1);
  Experience e = {length, rows, {}, {}, {}, {}, {}, {}};
  for (int64_t i = 0; i < (length + 1) * rows; ++i) {
    e.value.push_back(normal(rng));
    e.reward.push_back(normal(rng));
    e.bootstrap_value.push_back(normal(rng));
    e.terminated.push_back(seldom(rng) ? 1 : 0);
    e.truncated.push_back(seldom(rng) ? 1 : 0);
    e.valid.push_back(seldom(rng) ? 0 : 1);
  }
  return e;
}

struct Results {
  std::vector<float> advantage, returns;
};

Results Compute(const GaeInput& input, const KernelTable& kernels) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Results results;
  results.advantage.assign(input.length * input.rows, nan);
  results.returns.assign(input.length * input.rows, nan);
  GeneralizedAdvantages(input, results.advantage.data(), results.returns.data(),
                        kernels);
  return results;
}

// The definition, one row at a time.
Results Slow(const Experience& e) {
  const GaeInput in = e.Input();
  Results results;
  results.advantage.resize(e.length * e.rows);
  results.returns.resize(e.length * e.rows);
  for (int64_t b = 0; b < e.rows; ++b) {
    double next_advantage = 0;
    for (int64_t t = e.length - 1; t >= 0; --t) {
      const int64_t i = t * e.rows + b;
      if (!e.valid[i]) {
        next_advantage = 0;
        continue;
      }
      double next_value = e.value[i + e.rows];
      if (e.truncated[i]) next_value = e.bootstrap_value[i];
      if (e.terminated[i]) next_value = 0;
      const bool goes_on = !e.terminated[i] && !e.truncated[i];
      const double delta =
          e.reward[i] + double{in.discount} * next_value - e.value[i];
      const double advantage =
          delta +
          (goes_on ? double{in.discount} * in.lambda * next_advantage : 0.0);
      results.advantage[i] = static_cast<float>(advantage);
      results.returns[i] = static_cast<float>(advantage + e.value[i]);
      next_advantage = advantage;
    }
  }
  return results;
}

using GaeTest = EveryKernelTest;
FLOTILLA_FOR_EVERY_KERNEL(GaeTest);

TEST_P(GaeTest, EqualsTheDefinition) {
  for (const auto& [length, rows] : std::vector<std::pair<int, int>>{
           {128, 4}, {1, 1}, {7, 16}, {33, 17}, {20, 37}, {5, 64}}) {
    const Experience e = RandomExperience(length, rows);
    const Results expected = Slow(e);
    const Results actual = Compute(e.Input(), kernels());
    for (int i = 0; i < length * rows; ++i) {
      ASSERT_NEAR(actual.advantage[i], expected.advantage[i], 1e-5);
      ASSERT_NEAR(actual.returns[i], expected.returns[i], 1e-5);
    }
  }
}

TEST_P(GaeTest, WithoutAMaskEveryStepIsValid) {
  Experience e = RandomExperience(19, 21);
  e.valid.assign(e.valid.size(), 1);
  const Results masked = Compute(e.Input(), kernels());
  GaeInput input = e.Input();
  input.valid = nullptr;
  const Results unmasked = Compute(input, kernels());
  EXPECT_EQ(masked.advantage, unmasked.advantage);
  EXPECT_EQ(masked.returns, unmasked.returns);
}

TEST_P(GaeTest, InvalidStepsAreNeverRead) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Experience e = RandomExperience(19, 21);
  const Results before = Compute(e.Input(), kernels());
  for (int64_t i = 0; i < e.length * e.rows; ++i) {
    if (e.valid[i]) continue;
    e.reward[i] = e.bootstrap_value[i] = nan;
    const bool read_by_the_step_before = i >= e.rows && e.valid[i - e.rows];
    if (!read_by_the_step_before) e.value[i] = nan;
  }
  for (int64_t i = 0; i < e.length * e.rows; ++i) {
    if (!e.truncated[i]) e.bootstrap_value[i] = nan;
  }
  const Results after = Compute(e.Input(), kernels());
  EXPECT_EQ(before.advantage, after.advantage);
  EXPECT_EQ(before.returns, after.returns);
}

TEST_P(GaeTest, TruncationBootstrapsAndTerminationDoesNot) {
  Experience e = {1,        2,      {1, 1}, {0, 0, 50, 50},
                  {10, 10}, {0, 1}, {1, 1}, {1, 1}};
  const Results results = Compute(e.Input(), kernels());
  EXPECT_FLOAT_EQ(results.advantage[0], 1 + 0.97f * 10);
  EXPECT_FLOAT_EQ(results.advantage[1], 1);
}

}  // namespace
}  // namespace flotilla
