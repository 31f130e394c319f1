#include "learner/kernels/vtrace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "learner/kernels/gae.h"
#include "tests/learner/kernels/every_kernel_test.h"

namespace flotilla {
namespace {

struct Experience {
  int64_t length, rows;
  std::vector<float> reward, value, log_prob, actor_log_prob, bootstrap_value;
  std::vector<uint8_t> terminated, truncated, valid;

  VtraceInput Input() const {
    return {.length = length,
            .rows = rows,
            .reward = reward.data(),
            .value = value.data(),
            .log_prob = log_prob.data(),
            .actor_log_prob = actor_log_prob.data(),
            .terminated = terminated.data(),
            .truncated = truncated.data(),
            .bootstrap_value = bootstrap_value.data(),
            .valid = valid.data(),
            .discount = 0.97f,
            .lambda = 0.9f,
            .rho_clip = 1.1f,
            .c_clip = 0.95f,
            .pg_rho_clip = 1.3f};
  }
};

Experience RandomExperience(int64_t length, int64_t rows) {
  std::mt19937 rng(static_cast<unsigned>(length * 1000 + rows));
  std::normal_distribution<float> normal;
  std::bernoulli_distribution seldom(0.1);
  Experience e = {length, rows, {}, {}, {}, {}, {}, {}, {}, {}};
  for (int64_t i = 0; i < (length + 1) * rows; ++i) {
    e.value.push_back(normal(rng));
    e.reward.push_back(normal(rng));
    e.log_prob.push_back(-1 + 0.5f * normal(rng));
    e.actor_log_prob.push_back(-1 + 0.5f * normal(rng));
    e.bootstrap_value.push_back(normal(rng));
    e.terminated.push_back(seldom(rng) ? 1 : 0);
    e.truncated.push_back(seldom(rng) ? 1 : 0);
    e.valid.push_back(seldom(rng) ? 0 : 1);
  }
  return e;
}

struct Results {
  std::vector<float> target, advantage;
};

Results Compute(const VtraceInput& input, const KernelTable& kernels) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Results results;
  results.target.assign(input.length * input.rows, nan);
  results.advantage.assign(input.length * input.rows, nan);
  Vtrace(input, results.target.data(), results.advantage.data(), kernels);
  return results;
}

// Eq. 1 of the paper as it stands: a sum over the steps ahead, each temporal
// difference weighted by the product of the traces before it.
class Paper {
 public:
  explicit Paper(const Experience& e) : e_(e), in_(e.Input()) {}

  double Ratio(int64_t t, int64_t b) const {
    const int64_t i = t * e_.rows + b;
    return std::exp(double{e_.log_prob[i]} - e_.actor_log_prob[i]);
  }
  // V(x_{t+1}), as the episode's end has it.
  double Next(int64_t t, int64_t b) const {
    const int64_t i = t * e_.rows + b;
    if (e_.terminated[i]) return 0;
    return e_.truncated[i] ? e_.bootstrap_value[i] : e_.value[i + e_.rows];
  }
  bool GoesOn(int64_t t, int64_t b) const {
    const int64_t i = t * e_.rows + b;
    return !e_.terminated[i] && !e_.truncated[i] && t + 1 < e_.length &&
           e_.valid[i + e_.rows];
  }
  // v_s - V(x_s)
  double Error(int64_t s, int64_t b) const {
    double sum = 0, weight = 1;
    for (int64_t t = s;; ++t) {
      const int64_t i = t * e_.rows + b;
      const double rho = std::min<double>(in_.rho_clip, Ratio(t, b));
      sum += weight * rho *
             (e_.reward[i] + double{in_.discount} * Next(t, b) - e_.value[i]);
      if (!GoesOn(t, b)) return sum;
      weight *= double{in_.discount} * in_.lambda *
                std::min<double>(in_.c_clip, Ratio(t, b));
    }
  }
  double Target(int64_t s, int64_t b) const {
    return e_.value[s * e_.rows + b] + Error(s, b);
  }
  // rho_s (r_s + discount v_{s+1} - V(x_s)), v_{s+1} drawn towards V(x_{s+1})
  // by lambda.
  double Advantage(int64_t s, int64_t b) const {
    const int64_t i = s * e_.rows + b;
    const double next =
        Next(s, b) + (GoesOn(s, b) ? in_.lambda * Error(s + 1, b) : 0.0);
    return std::min<double>(in_.pg_rho_clip, Ratio(s, b)) *
           (e_.reward[i] + double{in_.discount} * next - e_.value[i]);
  }

 private:
  const Experience& e_;
  const VtraceInput in_;
};

using VtraceTest = EveryKernelTest;
FLOTILLA_FOR_EVERY_KERNEL(VtraceTest);

TEST_P(VtraceTest, EqualsThePaper) {
  for (const auto& [length, rows] : std::vector<std::pair<int, int>>{
           {128, 4}, {1, 1}, {7, 16}, {33, 17}, {20, 37}, {5, 64}}) {
    const Experience e = RandomExperience(length, rows);
    const Paper paper(e);
    const Results actual = Compute(e.Input(), kernels());
    for (int64_t i = 0; i < length * rows; ++i) {
      const int64_t t = i / rows, b = i % rows;
      const double target = e.valid[i] ? paper.Target(t, b) : 0;
      const double advantage = e.valid[i] ? paper.Advantage(t, b) : 0;
      ASSERT_NEAR(actual.target[i], target, 2e-5) << "t " << t << " b " << b;
      ASSERT_NEAR(actual.advantage[i], advantage, 2e-5);
    }
  }
}

TEST_P(VtraceTest, OnPolicyIsGeneralizedAdvantageEstimation) {
  Experience e = RandomExperience(40, 21);
  e.log_prob = e.actor_log_prob;
  VtraceInput input = e.Input();
  input.rho_clip = input.pg_rho_clip = 1;
  input.c_clip = 7;
  const Results actual = Compute(input, kernels());
  std::vector<float> advantage(40 * 21), returns(40 * 21);
  const GaeInput gae = {.length = e.length,
                        .rows = e.rows,
                        .reward = input.reward,
                        .value = input.value,
                        .terminated = input.terminated,
                        .truncated = input.truncated,
                        .bootstrap_value = input.bootstrap_value,
                        .valid = input.valid,
                        .discount = input.discount,
                        .lambda = input.lambda};
  GeneralizedAdvantages(gae, advantage.data(), returns.data(), kernels());
  for (size_t i = 0; i < advantage.size(); ++i) {
    ASSERT_NEAR(actual.target[i], returns[i], 1e-5);
    ASSERT_NEAR(actual.advantage[i], advantage[i], 1e-5);
  }
}

TEST_P(VtraceTest, WithoutAMaskEveryStepIsValid) {
  Experience e = RandomExperience(19, 21);
  e.valid.assign(e.valid.size(), 1);
  const Results masked = Compute(e.Input(), kernels());
  VtraceInput input = e.Input();
  input.valid = nullptr;
  const Results unmasked = Compute(input, kernels());
  EXPECT_EQ(masked.target, unmasked.target);
  EXPECT_EQ(masked.advantage, unmasked.advantage);
}

TEST_P(VtraceTest, InvalidStepsAreNeverRead) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Experience e = RandomExperience(19, 21);
  const Results before = Compute(e.Input(), kernels());
  for (int64_t i = 0; i < e.length * e.rows; ++i) {
    if (!e.truncated[i]) e.bootstrap_value[i] = nan;
    if (e.valid[i]) continue;
    e.reward[i] = e.bootstrap_value[i] = nan;
    e.log_prob[i] = e.actor_log_prob[i] = nan;
    const bool read_by_the_step_before = i >= e.rows && e.valid[i - e.rows];
    if (!read_by_the_step_before) e.value[i] = nan;
  }
  const Results after = Compute(e.Input(), kernels());
  EXPECT_EQ(before.target, after.target);
  EXPECT_EQ(before.advantage, after.advantage);
}

// PufferLib's compute_puff_advantage, in float64: rewards and dones are those
// received with the observation, and the last observation has no advantage.
TEST_P(VtraceTest, TargetMinusValueIsPufferLibsAdvantage) {
  Experience e = RandomExperience(30, 19);
  std::fill(e.valid.begin(), e.valid.end(), 1);
  std::fill(e.truncated.begin(), e.truncated.end(), 0);
  const VtraceInput in = e.Input();
  const Results actual = Compute(in, kernels());
  const int64_t T = e.length + 1, B = e.rows;
  for (int64_t b = 0; b < B; ++b) {
    std::vector<double> values, rewards(1), dones(1), importance, A(T, 0.0);
    for (int64_t i = b; i < T * B; i += B) {
      values.push_back(e.value[i]);
      rewards.push_back(e.reward[i]);
      dones.push_back(e.terminated[i]);
      importance.push_back(
          std::exp(double{e.log_prob[i]} - e.actor_log_prob[i]));
    }
    double last = 0;
    for (int64_t t = T - 2; t >= 0; --t) {
      const double nextnonterminal = 1 - dones[t + 1];
      const double rho = std::min<double>(importance[t], in.rho_clip);
      const double c = std::min<double>(importance[t], in.c_clip);
      const double delta =
          rho *
          (rewards[t + 1] +
           double{in.discount} * values[t + 1] * nextnonterminal - values[t]);
      last =
          delta + double{in.discount} * in.lambda * c * last * nextnonterminal;
      A[t] = last;
      ASSERT_NEAR(actual.target[t * B + b] - e.value[t * B + b], A[t], 2e-5);
    }
  }
}

// A policy that has moved far away: ratios that overflow and vanish.
TEST_P(VtraceTest, ExtremeRatiosAreClippedAndStayFinite) {
  Experience e = RandomExperience(12, 20);
  std::fill(e.valid.begin(), e.valid.end(), 1);
  for (size_t i = 0; i < e.log_prob.size(); ++i) {
    e.actor_log_prob[i] = i % 2 == 0 ? -200.0f : 0.0f;
    e.log_prob[i] = i % 2 == 0 ? 0.0f : -200.0f;
  }
  const Results actual = Compute(e.Input(), kernels());
  for (int64_t i = 0; i < 12 * 20; ++i) {
    ASSERT_TRUE(std::isfinite(actual.target[i]));
    if (i % 2 == 0) continue;
    // Never taken by the learner: nothing is learned from it.
    EXPECT_EQ(actual.target[i], e.value[i]);
    EXPECT_EQ(actual.advantage[i], 0);
  }
}

}  // namespace
}  // namespace flotilla
