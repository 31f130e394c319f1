#include "learner/nn/squashed_gaussian.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "gtest/gtest.h"
#include "tests/testing/bounded_spaces.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::testing::HasSubstr;

SquashedGaussian Make(const std::vector<float>& low,
                      const std::vector<float>& high) {
  return SquashedGaussian::Make(BoundedSpaces(1, low, high).action, torch::kCPU)
      .value();
}

torch::Tensor Doubles(const std::vector<double>& values) {
  return torch::tensor(values, torch::kFloat64).unsqueeze(1);
}

torch::Tensor Stream(int64_t seed) { return torch::tensor({seed, int64_t{0}}); }

double Normal(double x, double mean, double deviation) {
  const double z = (x - mean) / deviation;
  return std::exp(-0.5 * z * z) / (deviation * std::sqrt(2 * std::numbers::pi));
}

// The density of an action is that of what is squashed, over the slope of the
// way from one to the other, here by differences.
TEST(SquashedGaussianTest, LogProbIsANumericChangeOfVariables) {
  const double mean = 0.3, log_std = -0.4, low = -1, high = 3;
  const SquashedGaussian gaussian = Make({-1}, {3});
  const auto squash = [&](double u) {
    return (high + low) / 2 + (high - low) / 2 * std::tanh(u);
  };
  std::vector<double> noise;
  for (double z = -4; z <= 4; z += 0.25) noise.push_back(z);
  const auto n = static_cast<int64_t>(noise.size());
  const auto drawn = gaussian.Draw(
      torch::full({n, 1}, mean, torch::kFloat64),
      torch::full({n, 1}, log_std, torch::kFloat64), Doubles(noise));
  for (int64_t i = 0; i < n; ++i) {
    const double u = mean + std::exp(log_std) * noise[i], h = 1e-5;
    const double slope = (squash(u + h) - squash(u - h)) / (2 * h);
    EXPECT_NEAR(drawn.action[i][0].item<double>(), squash(u), 1e-12);
    EXPECT_NEAR(drawn.log_prob[i].item<double>(),
                std::log(Normal(u, mean, std::exp(log_std)) / slope), 1e-5)
        << noise[i];
  }
}

TEST(SquashedGaussianTest, ProbabilitiesOverTheBoundsAreOne) {
  const double mean = -0.5, log_std = 0.2;
  const SquashedGaussian gaussian = Make({2}, {2.5});
  const int64_t n = 20001;
  const torch::Tensor noise = torch::linspace(-8, 8, n, torch::kFloat64);
  const auto drawn = gaussian.Draw(
      torch::full({n, 1}, mean, torch::kFloat64),
      torch::full({n, 1}, log_std, torch::kFloat64), noise.unsqueeze(1));
  const torch::Tensor total =
      torch::trapezoid(drawn.log_prob.exp(), drawn.action.squeeze(1));
  EXPECT_NEAR(total.item<double>(), 1, 1e-6);
}

TEST(SquashedGaussianTest, ValuesAreIndependent) {
  const SquashedGaussian both = Make({-1, 0}, {1, 5});
  const SquashedGaussian first = Make({-1}, {1}), second = Make({0}, {5});
  torch::manual_seed(1);
  const torch::Tensor mean = torch::randn({20, 2}),
                      log_std = torch::randn({20, 2}),
                      noise = torch::randn({20, 2});
  const auto part = [&](const SquashedGaussian& one, int64_t j) {
    return one.Draw(mean.narrow(1, j, 1), log_std.narrow(1, j, 1),
                    noise.narrow(1, j, 1));
  };
  const auto drawn = both.Draw(mean, log_std, noise);
  const auto a = part(first, 0), b = part(second, 1);
  EXPECT_TRUE(torch::allclose(drawn.log_prob, a.log_prob + b.log_prob));
  EXPECT_TRUE(
      torch::allclose(drawn.action, torch::cat({a.action, b.action}, 1)));
}

TEST(SquashedGaussianTest, GradientsAreFiniteDifferences) {
  const SquashedGaussian gaussian = Make({-2, 0}, {2, 1});
  torch::manual_seed(2);
  const auto f64 = torch::TensorOptions().dtype(torch::kFloat64);
  const torch::Tensor noise = torch::randn({5, 2}, f64);
  const torch::Tensor weight = torch::randn({5, 2}, f64);
  const torch::Tensor mean = torch::randn({5, 2}, f64).set_requires_grad(true);
  const torch::Tensor log_std =
      torch::randn({5, 2}, f64).set_requires_grad(true);
  const auto loss = [&](const torch::Tensor& m, const torch::Tensor& s) {
    const auto drawn = gaussian.Draw(m, s, noise);
    return drawn.log_prob.sum() + (weight * drawn.action).sum();
  };
  loss(mean, log_std).backward();
  torch::NoGradGuard no_grad;
  const double h = 1e-6;
  for (int64_t i = 0; i < mean.numel(); ++i) {
    torch::Tensor step = torch::zeros({10}, f64);
    step[i] = h;
    step = step.view({5, 2});
    const auto slope = [&](const torch::Tensor& plus,
                           const torch::Tensor& minus) {
      return (plus - minus).item<double>() / (2 * h);
    };
    EXPECT_NEAR(mean.grad().flatten()[i].item<double>(),
                slope(loss(mean + step, log_std), loss(mean - step, log_std)),
                1e-6);
    EXPECT_NEAR(log_std.grad().flatten()[i].item<double>(),
                slope(loss(mean, log_std + step), loss(mean, log_std - step)),
                1e-6);
  }
}

// Where tanh is 1 in float32.
TEST(SquashedGaussianTest, FarOutNothingIsInfinite) {
  const SquashedGaussian gaussian = Make({-2}, {2});
  const torch::Tensor mean =
      torch::tensor({-200.0f, -12.0f, 12.0f, 200.0f}).unsqueeze(1);
  const torch::Tensor m = mean.clone().set_requires_grad(true);
  const auto drawn =
      gaussian.Draw(m, torch::zeros({4, 1}), torch::zeros({4, 1}));
  drawn.log_prob.sum().backward();
  for (int64_t i = 0; i < 4; ++i) {
    const double u = std::abs(mean[i][0].item<double>());
    const double want = -0.5 * std::log(2 * std::numbers::pi) - std::log(2.0) -
                        2 * (std::log(2.0) - u);
    EXPECT_NEAR(drawn.log_prob[i].item<double>(), want, 1e-4);
    EXPECT_NEAR(std::abs(m.grad()[i][0].item<double>()), 2, 1e-4);
  }
}

TEST(SquashedGaussianTest, SamplesFollowTheProbabilities) {
  const SquashedGaussian gaussian = Make({-1}, {3});
  const int64_t R = 20000;
  const double mean = 0.4, deviation = 0.7;
  const torch::Tensor means = torch::full({R, 1}, mean),
                      log_stds = torch::full({R, 1}, std::log(deviation));
  const torch::Tensor action = gaussian.Sample(means, log_stds, Stream(3));
  for (const double border : {-0.5, 0.5, 1.0, 1.7, 2.5}) {
    const auto below = (action < border).sum().item<int64_t>();
    const double u = std::atanh((border - 1) / 2);
    const double want =
        0.5 * std::erfc((mean - u) / (deviation * std::numbers::sqrt2));
    EXPECT_NEAR(static_cast<double>(below) / R, want, 0.018) << border;
  }
}

TEST(SquashedGaussianTest, GreedyIsTheMeanAndNothingLeavesTheBounds) {
  const SquashedGaussian gaussian = Make({-0.1f, 0}, {0.3f, 5});
  const torch::Tensor mean = torch::tensor({{0.0f, 0.5f}, {50.0f, -50.0f}});
  const torch::Tensor action =
      gaussian.Sample(mean, torch::full({2, 2}, 2.0), /*stream=*/{});
  EXPECT_NEAR(action[0][0].item<float>(), 0.1, 1e-6);
  EXPECT_NEAR(action[0][1].item<float>(), 2.5 + 2.5 * std::tanh(0.5), 1e-6);
  EXPECT_EQ(action[1][0].item<float>(), 0.3f);
  EXPECT_EQ(action[1][1].item<float>(), 0.0f);
}

TEST(SquashedGaussianTest, UniformActionsFillTheBounds) {
  const SquashedGaussian gaussian = Make({-2, 10}, {2, 11});
  const torch::Tensor drawn = gaussian.Anything(10000, Stream(1));
  const std::span action(drawn.data_ptr<float>(), drawn.numel());
  double sum[2] = {0, 0}, least[2] = {99, 99}, most[2] = {-99, -99};
  for (size_t i = 0; i < action.size(); ++i) {
    const double a = action[i];
    sum[i % 2] += a / 10000;
    least[i % 2] = std::min(least[i % 2], a);
    most[i % 2] = std::max(most[i % 2], a);
  }
  EXPECT_NEAR(sum[0], 0, 0.06);
  EXPECT_NEAR(sum[1], 10.5, 0.015);
  EXPECT_TRUE(least[0] >= -2 && least[0] < -1.99 && most[0] <= 2 &&
              most[0] > 1.99);
  EXPECT_TRUE(least[1] >= 10 && least[1] < 10.01 && most[1] <= 11 &&
              most[1] > 10.99);
}

TEST(SquashedGaussianTest, WhatHasNoBoundsIsRefusedByName) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kMost = std::numeric_limits<float>::max();
  const auto refusal = [](const Spaces& spaces) {
    return SquashedGaussian::Make(spaces.action, torch::kCPU).status();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(refusal(BoundedSpaces(1, {-1, -1}, {1, kInf})),
              StatusIs(kInvalid, HasSubstr("finite bounds, and value 1 of this "
                                           "environment's is from -1 to inf")));
  EXPECT_THAT(refusal(BoundedSpaces(1, {-kMost}, {kMost})),
              StatusIs(kInvalid, HasSubstr("finite bounds, and value 0")));
  EXPECT_THAT(refusal(BoundedSpaces(1, {2}, {2})),
              StatusIs(kInvalid, HasSubstr("value 0 of this environment's is "
                                           "always 2")));
  EXPECT_THAT(refusal(VectorSpaces(1, 2)),
              StatusIs(kInvalid, HasSubstr("sac needs continuous actions")));
}

}  // namespace
}  // namespace flotilla
