// flotilla::ppo_loss beside what autograd makes of ActionHead, and beside the formula
// in float64, differentiated by differences.

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "learner/cuda/operators.h"
#include "learner/nn/action_head.h"
#include "tests/learner/cuda/on_gpu.h"

namespace flotilla {
namespace {

struct Case {
  std::string name;
  std::vector<int64_t> num_values = {};
  int64_t continuous = 0;
  bool masked = false;
  bool log_std_per_row = false;
  double clip_ratio = 0.2;
  double value_clip = 0.2;
  bool indexed = true;
  bool scaled = true;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class PpoLossTest : public testing::TestWithParam<Case> {
 protected:
  PpoLossTest() { torch::manual_seed(3); }

  ActionSpace Space() const {
    ActionSpace space;
    space.num_values = GetParam().num_values;
    space.continuous = GetParam().continuous;
    return space;
  }
  static int64_t Logits() {
    int64_t n = 0;
    for (const int64_t values : GetParam().num_values) n += values;
    return n;
  }

  static PpoLossInput Random(int64_t M) {
    const Case& c = GetParam();
    const int64_t L = Logits(), A = c.continuous,
                  K = static_cast<int64_t>(c.num_values.size());
    const int64_t S = c.indexed ? 2 * M + 3 : M;
    PpoLossInput in;
    in.policy = torch::randn({M, L + A});
    if (A > 0) {
      in.log_std =
          0.3 * (c.log_std_per_row ? torch::randn({M, A}) : torch::randn({A}));
      in.continuous = torch::randn({S, A});
    }
    in.value = torch::randn({M});
    std::vector<int32_t> first = {0};
    std::vector<torch::Tensor> taken;
    for (const int64_t n : c.num_values) {
      first.push_back(first.back() + static_cast<int32_t>(n));
      taken.push_back(torch::randint(n, {S, 1}, torch::kInt64));
    }
    in.first_logit = torch::tensor(first, torch::kInt32);
    if (K > 0) in.discrete = torch::cat(taken, 1);
    if (c.masked) {
      in.mask = (torch::rand({M, L}) < 0.6).to(torch::kUInt8);
      in.mask[0].zero_();  // a lost row
    }
    if (c.indexed) {
      in.index = torch::randperm(S).narrow(0, 0, M).to(torch::kInt32);
    }
    in.log_prob = torch::randn({S}) * 0.3 - 1.5;
    in.old_value = torch::randn({S});
    in.returns = torch::randn({S});
    in.advantage = torch::randn({S}) + 0.3;
    if (c.scaled) in.mean_and_scale = torch::tensor({0.25f, 1.5f});
    in.clip_ratio = c.clip_ratio;
    in.value_clip = c.value_clip;
    in.entropy_cost = 0.01;
    in.value_cost = 0.5;
    return in;
  }

  // Of the steps alone that are learned from.
  static PpoLossInput Picked(PpoLossInput in) {
    if (!in.index.defined()) return in;
    for (torch::Tensor* t : {&in.discrete, &in.continuous, &in.log_prob,
                             &in.old_value, &in.returns, &in.advantage}) {
      if (t->defined()) *t = t->index_select(0, in.index);
    }
    in.index.reset();
    return in;
  }

  PpoLossOutput Twin(const PpoLossInput& given) const {
    const PpoLossInput in = Picked(given);
    const auto leaf = [](const torch::Tensor& t) {
      return t.defined() ? t.clone().set_requires_grad(true) : t;
    };
    const torch::Tensor policy = leaf(in.policy), value = leaf(in.value),
                        log_std = leaf(in.log_std);
    const LogProbAndEntropy now = ActionHead(Space()).Evaluate(
        policy, log_std, in.mask, {in.discrete, in.continuous});
    torch::Tensor advantage = in.advantage;
    if (in.mean_and_scale.defined()) {
      advantage = (advantage - in.mean_and_scale[0]) * in.mean_and_scale[1];
    }
    const torch::Tensor log_ratio = now.log_prob - in.log_prob;
    const torch::Tensor ratio = log_ratio.exp();
    const torch::Tensor policy_loss = torch::max(
        -advantage * ratio,
        -advantage * ratio.clamp(1 - in.clip_ratio, 1 + in.clip_ratio));
    torch::Tensor error = (value - in.returns).square();
    if (in.value_clip > 0) {
      const torch::Tensor clipped =
          in.old_value +
          (value - in.old_value).clamp(-in.value_clip, in.value_clip);
      error = torch::max(error, (clipped - in.returns).square());
    }
    const torch::Tensor loss = policy_loss - in.entropy_cost * now.entropy +
                               in.value_cost * 0.5 * error;
    loss.sum().backward();
    const auto sum = [](const torch::Tensor& t) {
      return t.detach().to(torch::kFloat64).sum();
    };
    return {policy.grad(), log_std.defined() ? log_std.grad() : log_std,
            value.grad(),
            torch::stack({sum(policy_loss), 0.5 * sum(error), sum(now.entropy),
                          -sum(log_ratio), sum(ratio - 1 - log_ratio),
                          sum((ratio - 1).abs() > in.clip_ratio)})};
  }

  static void ExpectClose(const torch::Tensor& got, const torch::Tensor& want,
                          double tolerance, const char* what) {
    ASSERT_EQ(got.sizes(), want.sizes()) << what;
    const torch::Tensor w = want.to(torch::kFloat64);
    const torch::Tensor off =
        (got.to(torch::kFloat64) - w).abs() / w.abs().clamp_min(1);
    EXPECT_LT(off.max().item<double>(), tolerance) << what << "\n"
                                                   << got << "\nwant\n"
                                                   << want;
  }

  static torch::Tensor LogStdSlope(const PpoLossInput& in,
                                   const PpoLossOutput& out) {
    return in.log_std.dim() == 1 ? out.log_std_slope.sum(0) : out.log_std_slope;
  }
};

// Schulman et al. 2017, equations 7 and 9, with a clipped value, of row m.
double LossOfRow(const PpoLossInput& in, const std::vector<int64_t>& num_values,
                 int64_t m, const std::vector<double>& policy,
                 const std::vector<double>& log_std, double value) {
  const auto number = [](const torch::Tensor& t, int64_t i) {
    return t[i].item<double>();
  };
  double log_prob = 0, entropy = 0;
  int64_t first = 0;
  for (size_t k = 0; k < num_values.size(); ++k) {
    const int64_t n = num_values[k];
    std::vector<bool> allowed(n, true);
    bool any = !in.mask.defined();
    for (int64_t a = 0; in.mask.defined() && a < n; ++a) {
      allowed[a] = in.mask[m][first + a].item<int>() != 0;
      any |= allowed[a];
    }
    if (!any) allowed.assign(n, true);
    double sum = 0;
    for (int64_t a = 0; a < n; ++a) {
      if (allowed[a]) sum += std::exp(policy[first + a]);
    }
    const int64_t taken =
        in.discrete[m][static_cast<int64_t>(k)].item<int64_t>();
    for (int64_t a = 0; a < n; ++a) {
      if (!allowed[a]) continue;
      const double p = std::exp(policy[first + a]) / sum;
      entropy -= p * std::log(p);
      if (a == taken) log_prob += std::log(p);
    }
    first += n;
  }
  for (size_t j = 0; j < log_std.size(); ++j) {
    const double deviation = std::exp(log_std[j]);
    const double z = (in.continuous[m][static_cast<int64_t>(j)].item<double>() -
                      policy[first + j]) /
                     deviation;
    log_prob += std::log(std::exp(-0.5 * z * z) /
                         (deviation * std::sqrt(2 * std::numbers::pi)));
    entropy += 0.5 * std::log(2 * std::numbers::pi * std::numbers::e *
                              deviation * deviation);
  }
  double advantage = number(in.advantage, m);
  if (in.mean_and_scale.defined()) {
    advantage = (advantage - number(in.mean_and_scale, 0)) *
                number(in.mean_and_scale, 1);
  }
  const double ratio = std::exp(log_prob - number(in.log_prob, m));
  const double limited =
      std::min(std::max(ratio, 1 - in.clip_ratio), 1 + in.clip_ratio);
  const double policy_loss = -std::min(ratio * advantage, limited * advantage);
  const double target = number(in.returns, m), old = number(in.old_value, m);
  double error = (value - target) * (value - target);
  if (in.value_clip > 0) {
    const double clipped =
        old + std::min(std::max(value - old, -in.value_clip), in.value_clip);
    error = std::max(error, (clipped - target) * (clipped - target));
  }
  return policy_loss - in.entropy_cost * entropy + in.value_cost * 0.5 * error;
}

std::vector<double> Numbers(const torch::Tensor& row) {
  const torch::Tensor t = row.to(torch::kFloat64).contiguous();
  return {t.data_ptr<double>(), t.data_ptr<double>() + t.numel()};
}

TEST_P(PpoLossTest, IsWhatAutogradMakesOfIt) {
  for (const int64_t M : {1, 2, 255, 256, 257, 1000}) {
    SCOPED_TRACE(M);
    const PpoLossInput in = Random(M);
    const PpoLossOutput got = PpoLossOperator(in), want = Twin(in);
    ExpectClose(got.policy_slope, want.policy_slope, 1e-5, "policy");
    ExpectClose(got.value_slope, want.value_slope, 1e-5, "value");
    ExpectClose(got.sums, want.sums, 1e-5, "sums");
    if (in.log_std.defined()) {
      ExpectClose(LogStdSlope(in, got), want.log_std_slope, 2e-5, "log_std");
    }
  }
}

TEST_P(PpoLossTest, IsTheDifferentialOfTheFormula) {
  const int64_t M = 40;
  const PpoLossInput given = Random(M);
  const PpoLossOutput got = PpoLossOperator(given);
  const PpoLossInput in = Picked(given);
  constexpr double kStep = 1e-6;
  double total = 0;
  for (int64_t m = 0; m < M; ++m) {
    std::vector<double> policy = Numbers(in.policy[m]);
    std::vector<double> log_std;
    if (in.log_std.defined()) {
      log_std = Numbers(in.log_std.dim() == 1 ? in.log_std : in.log_std[m]);
    }
    double value = in.value[m].item<double>();
    const auto loss = [&] {
      return LossOfRow(in, GetParam().num_values, m, policy, log_std, value);
    };
    const auto slope = [&](double* x) {
      const double at = *x;
      *x = at + kStep;
      const double above = loss();
      *x = at - kStep;
      const double below = loss();
      *x = at;
      return (above - below) / (2 * kStep);
    };
    total += loss();
    EXPECT_NEAR(got.value_slope[m].item<double>(), slope(&value), 1e-5) << m;
    for (size_t o = 0; o < policy.size(); ++o) {
      const double want = slope(&policy[o]);
      EXPECT_NEAR(got.policy_slope[m][static_cast<int64_t>(o)].item<double>(),
                  want, 1e-5 * std::max(1.0, std::abs(want)))
          << m << " " << o;
    }
    for (size_t j = 0; j < log_std.size(); ++j) {
      const double want = slope(&log_std[j]);
      EXPECT_NEAR(got.log_std_slope[m][static_cast<int64_t>(j)].item<double>(),
                  want, 1e-5 * std::max(1.0, std::abs(want)))
          << m << " " << j;
    }
  }
  const std::vector<double> sums = Numbers(got.sums);
  EXPECT_NEAR(sums[0] + in.value_cost * sums[1] - in.entropy_cost * sums[2],
              total, 1e-5 * M);
}

TEST_P(PpoLossTest, WhatIsNotFiniteStaysInItsRow) {
  const int64_t M = 300, bad = 271;
  const PpoLossInput good = Random(M);
  const PpoLossOutput want = PpoLossOperator(good);
  const int64_t step =
      good.index.defined() ? good.index[bad].item<int64_t>() : bad;
  for (const float x : {std::numeric_limits<float>::quiet_NaN(),
                        std::numeric_limits<float>::infinity()}) {
    PpoLossInput in = good;
    in.advantage = good.advantage.clone();
    in.advantage[step] = x;
    in.value = good.value.clone();
    in.value[bad] = x;
    const PpoLossOutput got = PpoLossOperator(in);
    EXPECT_FALSE(std::isfinite(got.sums[0].item<double>()));
    EXPECT_FALSE(std::isfinite(got.sums[1].item<double>()));
    EXPECT_FALSE(got.value_slope[bad].isfinite().item<bool>());
    const torch::Tensor others = torch::arange(M).ne(bad);
    EXPECT_TRUE(torch::equal(got.policy_slope.index({others}),
                             want.policy_slope.index({others})));
    EXPECT_TRUE(torch::equal(got.value_slope.index({others}),
                             want.value_slope.index({others})));
  }
}

// The order of additions does not depend on anything but M.
TEST_P(PpoLossTest, TheSameIsTheSameBits) {
  const PpoLossInput in = Random(3000);
  const PpoLossOutput one = PpoLossOperator(in), two = PpoLossOperator(in);
  EXPECT_TRUE(torch::equal(one.sums, two.sums));
  EXPECT_TRUE(torch::equal(one.policy_slope, two.policy_slope));
}

INSTANTIATE_TEST_SUITE_P(
    Heads, PpoLossTest,
    testing::Values(
        Case{.name = "OneChoice", .num_values = {6}},
        Case{.name = "OneChoiceMasked", .num_values = {18}, .masked = true},
        Case{.name = "ChoicesMasked", .num_values = {5, 3, 2}, .masked = true},
        Case{.name = "ChoiceOfOne", .num_values = {1}},
        Case{.name = "NoValueClip", .num_values = {4}, .value_clip = 0},
        // IMPALA's and APPO's.
        Case{.name = "NoClip",
             .num_values = {4},
             .clip_ratio = std::numeric_limits<double>::infinity(),
             .value_clip = 0,
             .scaled = false},
        Case{.name = "Values", .continuous = 3},
        Case{.name = "ValuesPerRow", .continuous = 3, .log_std_per_row = true},
        Case{.name = "Both",
             .num_values = {5, 3},
             .continuous = 2,
             .masked = true,
             .indexed = false}),
    [](const auto& info) { return info.param.name; });

TEST(PpoLossOperatorTest, NamesWhatDoesNotFit) {
  PpoLossInput in;
  in.policy = torch::zeros({4, 3});
  in.value = torch::zeros({5});
  in.first_logit = torch::tensor({0, 3}, torch::kInt32);
  in.discrete = torch::zeros({4, 1}, torch::kInt64);
  in.log_prob = in.old_value = in.returns = in.advantage = torch::zeros({4});
  try {
    PpoLossOperator(in);
    FAIL() << "it took 5 values of 4 rows";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what_without_backtrace())
                  .find(std::string("value is Float [5] by [1] on ") +
                        KernelsDevice() +
                        ", want 4 numbers of Float without gaps on " +
                        KernelsDevice()),
              std::string::npos)
        << error.what_without_backtrace();
  }
}

TEST(AdvantageScaleTest, IsOfTheMinibatch) {
  torch::manual_seed(4);
  for (const int64_t M : {1, 2, 255, 256, 257, 70000}) {
    SCOPED_TRACE(M);
    // Far from 0, where squares would lose what counts.
    const torch::Tensor advantage = torch::randn({M + 5}) * 0.01 + 300;
    const torch::Tensor index =
        torch::randperm(M + 5).narrow(0, 0, M).to(torch::kInt32);
    const torch::Tensor got = AdvantageScaleOperator(advantage, index);
    if (M == 1) {
      EXPECT_TRUE(torch::equal(got, torch::tensor({0.0f, 1.0f})));
      continue;
    }
    const torch::Tensor picked =
        advantage.index_select(0, index).to(torch::kFloat64);
    const double mean = picked.mean().item<double>();
    const double scale = 1 / (picked.std().item<double>() + 1e-8);
    EXPECT_NEAR(got[0].item<double>(), mean, 1e-6 * std::abs(mean));
    EXPECT_NEAR(got[1].item<double>(), scale, 1e-6 * scale);
  }
  // What is not finite leaves no advantage that is.
  const torch::Tensor bad =
      torch::tensor({1.0f, std::numeric_limits<float>::infinity(), 2.0f});
  const torch::Tensor by =
      AdvantageScaleOperator(bad, torch::arange(3, torch::kInt32));
  EXPECT_TRUE(((bad - by[0]) * by[1]).isnan().all().item<bool>());
}

}  // namespace
}  // namespace flotilla
