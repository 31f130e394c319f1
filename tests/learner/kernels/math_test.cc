#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/every_kernel_test.h"

// The vectorised functions inside the kernels.

namespace flotilla {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

using Function = void (*)(const float*, int64_t, float*);

float Apply(Function function, float x) {
  float y;
  function(&x, 1, &y);
  return y;
}

// Positive floats over all magnitudes, a few thousand a power of two.
std::vector<float> Sweep(float from, float to) {
  std::vector<float> values;
  for (uint32_t bits = std::bit_cast<uint32_t>(from);
       bits <= std::bit_cast<uint32_t>(to); bits += 1999) {
    values.push_back(std::bit_cast<float>(bits));
  }
  return values;
}

using MathTest = EveryKernelTest;
FLOTILLA_FOR_EVERY_KERNEL(MathTest);

TEST_P(MathTest, TanhIsWithinFourTenthsOfAMillionthAndBelowOne) {
  std::vector<float> x = Sweep(1e-30f, 30.0f);
  for (const float edge : {0.0f, 7.9f, 8.0f, 1e30f, kInfinity}) {
    x.push_back(edge);
  }
  std::vector<float> y(x.size()), negative(x.size());
  kernels().tanh(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (float& value : x) value = -value;
  kernels().tanh(x.data(), static_cast<int64_t>(x.size()), negative.data());
  double worst = 0, worst_relative = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::tanh(-static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(y[i] - exact));
    if (exact > 0) {
      worst_relative = std::max(worst_relative, std::abs(y[i] / exact - 1));
    }
    ASSERT_LT(y[i], 1);
    ASSERT_EQ(negative[i], -y[i]);
  }
  EXPECT_LT(worst, 4e-7);
  EXPECT_LT(worst_relative, 4e-7);
}

TEST_P(MathTest, ExpIsWithinTwoUlp) {
  std::vector<float> x = Sweep(1e-30f, 88.7f);
  const size_t positive = x.size();
  for (size_t i = 0; i < positive; ++i) {
    if (x[i] < 86.5f) x.push_back(-x[i]);
  }
  std::vector<float> y(x.size());
  kernels().exp(x.data(), static_cast<int64_t>(x.size()), y.data());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst,
                     std::abs(y[i] / std::exp(static_cast<double>(x[i])) - 1));
  }
  EXPECT_LT(worst, 2.4e-7);
}

TEST_P(MathTest, ExpOfZeroIsExactlyOne) {
  EXPECT_EQ(Apply(kernels().exp, 0.0f), 1.0f);
  EXPECT_EQ(Apply(kernels().exp, -0.0f), 1.0f);
}

TEST_P(MathTest, ExpOverflowsToInfinityAndUnderflowsToZero) {
  EXPECT_EQ(Apply(kernels().exp, 88.73f), kInfinity);
  EXPECT_EQ(Apply(kernels().exp, 1e30f), kInfinity);
  EXPECT_EQ(Apply(kernels().exp, kInfinity), kInfinity);
  EXPECT_TRUE(std::isfinite(Apply(kernels().exp, 88.72f)));
  EXPECT_EQ(Apply(kernels().exp, -87.0f), 0.0f);
  EXPECT_EQ(Apply(kernels().exp, -1e30f), 0.0f);
  EXPECT_EQ(Apply(kernels().exp, -kInfinity), 0.0f);
}

TEST_P(MathTest, LogIsWithinThreeUlp) {
  const std::vector<float> x = Sweep(1.2e-38f, 3e38f);
  std::vector<float> y(x.size());
  kernels().log(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::log(static_cast<double>(x[i]));
    ASSERT_NEAR(y[i], exact, 3e-7 * std::abs(exact) + 1e-9) << x[i];
  }
  EXPECT_EQ(Apply(kernels().log, 1.0f), 0.0f);
}

TEST_P(MathTest, NotANumberStaysOne) {
  EXPECT_TRUE(std::isnan(Apply(kernels().tanh, kNan)));
  EXPECT_TRUE(std::isnan(Apply(kernels().exp, kNan)));
}

}  // namespace
}  // namespace flotilla
