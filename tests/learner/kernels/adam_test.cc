#include "learner/kernels/adam.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/every_kernel_test.h"
#include "tests/learner/kernels/test_shapes.h"

namespace flotilla {
namespace {

class Optimizer {
 public:
  Optimizer(std::vector<float> parameters, const KernelTable& kernels)
      : parameters_(std::move(parameters)),
        first_(parameters_.size()),
        second_(parameters_.size()),
        kernels_(kernels) {}

  AdamResult Step(const AdamOptions& options,
                  const std::vector<float>& gradient) {
    AdamState state = {static_cast<int64_t>(parameters_.size()),
                       parameters_.data(), first_.data(), second_.data(),
                       step_};
    const AdamResult result =
        AdamStep(options, gradient.data(), &state, kernels_);
    step_ = state.step;
    return result;
  }

  const std::vector<float>& parameters() const { return parameters_; }
  const std::vector<float>& first() const { return first_; }
  const std::vector<float>& second() const { return second_; }
  int64_t step() const { return step_; }

 private:
  std::vector<float> parameters_, first_, second_;
  int64_t step_ = 0;
  const KernelTable& kernels_;
};

// Kingma and Ba 2015, algorithm 1, after clipping by the global norm.
class SlowAdam {
 public:
  explicit SlowAdam(const std::vector<float>& parameters)
      : parameters(parameters.begin(), parameters.end()),
        m_(parameters.size()),
        v_(parameters.size()) {}

  double Step(const AdamOptions& o, const std::vector<float>& gradient) {
    double squares = 0;
    for (const double g : gradient) squares += g * g;
    const double norm = std::sqrt(squares) * o.gradient_scale;
    double scale = o.gradient_scale;
    if (o.max_grad_norm > 0 && norm > o.max_grad_norm) {
      scale *= o.max_grad_norm / (norm + 1e-6);
    }
    ++t_;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const double g = gradient[i] * scale;
      m_[i] = o.beta1 * m_[i] + (1 - o.beta1) * g;
      v_[i] = o.beta2 * v_[i] + (1 - o.beta2) * g * g;
      const double m = m_[i] / (1 - std::pow(o.beta1, t_));
      const double v = v_[i] / (1 - std::pow(o.beta2, t_));
      parameters[i] -= o.learning_rate * m / (std::sqrt(v) + o.epsilon);
    }
    return norm;
  }

  std::vector<double> parameters;

 private:
  std::vector<double> m_, v_;
  int t_ = 0;
};

using AdamTest = EveryKernelTest;
FLOTILLA_FOR_EVERY_KERNEL(AdamTest);

void ExpectFollowsPaper(const AdamOptions& options, int size,
                        float gradient_size, const KernelTable& kernels) {
  std::mt19937 rng(static_cast<unsigned>(size));
  const std::vector<float> start = RandomNormals(size, 0.1f, &rng);
  Optimizer fast(start, kernels);
  SlowAdam slow(start);
  for (int step = 0; step < 60; ++step) {
    const std::vector<float> gradient =
        RandomNormals(size, gradient_size, &rng);
    const AdamResult result = fast.Step(options, gradient);
    ASSERT_TRUE(result.applied);
    ASSERT_NEAR(result.norm / slow.Step(options, gradient), 1, 1e-12);
  }
  for (int i = 0; i < size; ++i) {
    // Against the distance that sixty steps can go.
    ASSERT_NEAR(fast.parameters()[i], slow.parameters[i],
                60 * options.learning_rate * 1e-5 + 1e-7);
  }
}

TEST_P(AdamTest, FollowsThePaperWithClipping) {
  for (const int size : {1, 3, 16, 37, 9155}) {
    ExpectFollowsPaper({.learning_rate = 1e-2}, size, 1, kernels());
  }
}

TEST_P(AdamTest, FollowsThePaperWithoutClipping) {
  ExpectFollowsPaper({.learning_rate = 1e-2, .max_grad_norm = 0}, 100, 1,
                     kernels());
  ExpectFollowsPaper({.learning_rate = 1e-2, .max_grad_norm = 1e3}, 100, 1,
                     kernels());
}

TEST_P(AdamTest, ScalesTheGradientBeforeClipping) {
  ExpectFollowsPaper({.learning_rate = 1e-2, .gradient_scale = 1.0 / 128}, 100,
                     300, kernels());
}

TEST_P(AdamTest, EpsilonCountsWhereGradientsAreTiny) {
  ExpectFollowsPaper({.learning_rate = 1e-2, .epsilon = 1e-5}, 64, 1e-6f,
                     kernels());
}

// The smallest of a configuration (OptimizerConfig.epsilon).
TEST_P(AdamTest, TheSmallestEpsilonLeavesAnIdleParameterWhereItIs) {
  const std::vector<float> parameters(37, 0.5f);
  Optimizer optimizer(parameters, kernels());
  optimizer.Step({.epsilon = 1e-15}, std::vector<float>(37));
  EXPECT_EQ(optimizer.parameters(), parameters);
}

TEST_P(AdamTest, ClippedGradientHasTheMaximumNorm) {
  Optimizer optimizer(std::vector<float>(4), kernels());
  const AdamResult result =
      optimizer.Step({.beta1 = 0, .max_grad_norm = 0.5}, {3, 0, 4, 0});
  EXPECT_DOUBLE_EQ(result.norm, 5);
  EXPECT_NEAR(std::hypot(optimizer.first()[0], optimizer.first()[2]), 0.5,
              1e-6);
}

TEST_P(AdamTest, NonFiniteGradientChangesNothingAndSaysSo) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::mt19937 rng(1);
  for (const float bad : {inf, -inf, nan, 3e38f}) {
    for (const int at : {0, 20, 36}) {
      Optimizer optimizer(RandomNormals(37, 1, &rng), kernels());
      std::vector<float> gradient = RandomNormals(37, 1, &rng);
      ASSERT_TRUE(optimizer.Step({}, gradient).applied);
      const Optimizer before = optimizer;
      gradient[at] = bad;
      const AdamResult result = optimizer.Step({}, gradient);
      EXPECT_FALSE(result.applied);
      EXPECT_FALSE(result.norm < 1e37);
      EXPECT_EQ(optimizer.parameters(), before.parameters());
      EXPECT_EQ(optimizer.first(), before.first());
      EXPECT_EQ(optimizer.second(), before.second());
      EXPECT_EQ(optimizer.step(), before.step());
    }
  }
}

TEST_P(AdamTest, HugeFiniteGradientIsClippedAndNotRefused) {
  Optimizer optimizer(std::vector<float>(20), kernels());
  const AdamResult result =
      optimizer.Step({.learning_rate = 0.1}, std::vector<float>(20, 1e36f));
  EXPECT_TRUE(result.applied);
  for (const float x : optimizer.parameters()) EXPECT_NEAR(x, -0.1, 1e-4);
}

// Its square is infinite.
TEST_P(AdamTest, HugeFiniteGradientThatIsNotClippedMakesNoNan) {
  std::mt19937 rng(1);
  const std::vector<float> start = RandomNormals(37, 1, &rng);
  Optimizer optimizer(start, kernels());
  const AdamResult result =
      optimizer.Step({.max_grad_norm = 0}, std::vector<float>(37, 1e20f));
  EXPECT_TRUE(result.applied);
  EXPECT_EQ(optimizer.parameters(), start);
}

TEST_P(AdamTest, ZeroGradientLeavesParametersWhereTheyAre) {
  std::mt19937 rng(1);
  const std::vector<float> start = RandomNormals(37, 1, &rng);
  Optimizer optimizer(start, kernels());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(optimizer.Step({}, std::vector<float>(37)).norm, 0);
  }
  EXPECT_EQ(optimizer.parameters(), start);
}

TEST_P(AdamTest, MomentsOfAnIdleParameterReachZero) {
  Optimizer optimizer({1.0f}, kernels());
  optimizer.Step({}, {1e-3f});
  for (int i = 0; i < 2000; ++i) optimizer.Step({}, {0.0f});
  EXPECT_EQ(optimizer.first()[0], 0.0f);
}

}  // namespace
}  // namespace flotilla
