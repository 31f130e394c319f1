// flotilla::adam_step beside torch.optim's arithmetic and a float64 loop.

#include "learner/kernels/adam.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "learner/cuda/operators.h"
#include "learner/torch_nn.h"

namespace flotilla {
namespace {

struct State {
  explicit State(int64_t P)
      : t{.gradient = torch::randn({P}),
          .parameters = torch::randn({P}),
          .moment1 = torch::zeros({P}),
          .moment2 = torch::zeros({P}),
          .done = torch::zeros({2}, torch::kFloat64),
          .count = torch::zeros({1}, torch::kFloat64),
          .learning_rate = torch::full({1}, 1e-2, torch::kFloat64)} {}
  AdamTensors t;

  double norms() const { return t.done[0].item<double>(); }
  double steps() const { return t.done[1].item<double>(); }
};

struct Case {
  bool rmsprop;
  double max_grad_norm;
  bool divisor_there;
};

class AdamStepTest : public testing::TestWithParam<Case> {
 protected:
  AdamStepTest() {
    torch::manual_seed(6);
    options_.max_grad_norm = GetParam().max_grad_norm;
    // 1 - beta2 is off by 5e-5 in float32, which RMSprop's first steps, 30 times as
    // large as Adam's, show.
    tolerance_ = GetParam().rmsprop ? 1e-5 : 3e-6;
    options_.epsilon = 1e-4;
    if (GetParam().rmsprop) {
      options_.beta1 = 0;
      options_.correct_bias = false;
    }
  }

  void Step(State* state, double divisor) const {
    if (GetParam().divisor_there) {
      state->t.divisor = torch::full({}, divisor);
    } else {
      state->t.host_divisor = divisor;
    }
    AdamOperator(state->t, options_);
  }

  AdamOptions options_;
  double tolerance_;  // of a parameter
};

// Kingma & Ba 2015, algorithm 1, after clip_grad_norm_; or RMSprop.
struct InDoubles {
  explicit InDoubles(const State& s)
      : p(Numbers(s.t.parameters)), m(p.size()), v(p.size()) {}
  static std::vector<double> Numbers(const torch::Tensor& t) {
    const torch::Tensor d = t.to(torch::kFloat64);
    return {d.data_ptr<double>(), d.data_ptr<double>() + d.numel()};
  }
  double Step(const AdamOptions& o, std::vector<double> g, double divisor,
              double learning_rate) {
    double squares = 0;
    for (double& x : g) {
      x /= divisor;
      squares += x * x;
    }
    const double norm = std::sqrt(squares);
    ++t;
    for (size_t i = 0; i < g.size(); ++i) {
      if (o.max_grad_norm > 0 && norm > o.max_grad_norm) {
        g[i] *= o.max_grad_norm / (norm + 1e-6);
      }
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g[i];
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g[i] * g[i];
      const double m_hat =
          o.correct_bias ? m[i] / (1 - std::pow(o.beta1, t)) : m[i];
      const double v_hat =
          o.correct_bias ? v[i] / (1 - std::pow(o.beta2, t)) : v[i];
      p[i] -= learning_rate * m_hat / (std::sqrt(v_hat) + o.epsilon);
    }
    return norm;
  }
  std::vector<double> p, m, v;
  int t = 0;
};

TEST_P(AdamStepTest, IsTheFormula) {
  for (const int64_t P : {1, 255, 256, 257, 300000}) {
    SCOPED_TRACE(P);
    State state(P);
    InDoubles want(state);
    double norms = 0;
    for (int i = 0; i < 4; ++i) {
      state.t.gradient.normal_().mul_(i == 1 ? 1e-3 : 5);
      norms +=
          want.Step(options_, InDoubles::Numbers(state.t.gradient), 3, 1e-2);
      Step(&state, 3);
      const torch::Tensor off = (state.t.parameters.to(torch::kFloat64) -
                                 torch::tensor(want.p, torch::kFloat64))
                                    .abs();
      EXPECT_LT(off.max().item<double>(), tolerance_) << i;
    }
    EXPECT_NEAR(state.norms(), norms, 1e-6 * norms);
    EXPECT_EQ(state.steps(), 4);
    EXPECT_EQ(state.t.count.item<double>(), 4);
  }
}

TEST_P(AdamStepTest, IsTorchs) {
  State state(1000);
  const torch::Tensor parameters = state.t.parameters.clone();
  std::vector<torch::Tensor> all = {parameters};
  parameters.set_requires_grad(true);
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (GetParam().rmsprop) {
    optimizer = std::make_unique<torch::optim::RMSprop>(
        all, torch::optim::RMSpropOptions(1e-2)
                 .alpha(options_.beta2)
                 .eps(options_.epsilon));
  } else {
    optimizer = std::make_unique<torch::optim::Adam>(
        all, torch::optim::AdamOptions(1e-2)
                 .betas({options_.beta1, options_.beta2})
                 .eps(options_.epsilon));
  }
  for (int i = 0; i < 5; ++i) {
    state.t.gradient.normal_();
    parameters.mutable_grad() = state.t.gradient / 2;
    if (options_.max_grad_norm > 0) {
      torch::nn::utils::clip_grad_norm_(all, options_.max_grad_norm);
    }
    optimizer->step();
    Step(&state, 2);
    EXPECT_LT(
        (state.t.parameters - parameters.detach()).abs().max().item<double>(),
        tolerance_)
        << i;
  }
}

// To how those round, over many steps of a gradient of which some is next to nothing.
TEST_P(AdamStepTest, IsTheCpusKernel) {
  const int64_t P = 300000;
  State state(P);
  const torch::Tensor p = state.t.parameters.clone(), m = torch::zeros({P}),
                      v = torch::zeros({P});
  AdamState twin = {P, p.data_ptr<float>(), m.data_ptr<float>(),
                    v.data_ptr<float>(), 0};
  AdamOptions options = options_;
  options.learning_rate = 1e-2;
  options.gradient_scale = 1.0 / 256;
  for (int i = 0; i < 30; ++i) {
    state.t.gradient.normal_();
    state.t.gradient.narrow(0, 0, P / 2).mul_(1e-6);
    Step(&state, 256);
    ASSERT_TRUE(
        AdamStep(options, state.t.gradient.data_ptr<float>(), &twin).applied);
  }
  EXPECT_LT((state.t.parameters - p).abs().max().item<double>(), 3e-6);
  EXPECT_TRUE(torch::allclose(state.t.moment1, m, 1e-5, 1e-9));
  EXPECT_TRUE(torch::allclose(state.t.moment2, v, 1e-5, 1e-12));
}

TEST_P(AdamStepTest, WhatIsNotFiniteChangesNothingFromThereOn) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), 2e37f}) {
    State state(700);
    Step(&state, 1);
    const torch::Tensor before[] = {state.t.parameters.clone(),
                                    state.t.moment1.clone(),
                                    state.t.moment2.clone()};
    state.t.gradient[699] = bad;
    Step(&state, 1);
    state.t.gradient.fill_(1);
    Step(&state, 1);
    EXPECT_FALSE(std::isfinite(state.norms())) << bad;
    EXPECT_EQ(state.steps(), 1);
    EXPECT_EQ(state.t.count.item<double>(), 1);
    EXPECT_TRUE(torch::equal(state.t.parameters, before[0]));
    EXPECT_TRUE(torch::equal(state.t.moment1, before[1]));
    EXPECT_TRUE(torch::equal(state.t.moment2, before[2]));
  }
}

TEST_P(AdamStepTest, NobodysSamplesAreNoStep) {
  State state(300);
  const torch::Tensor before = state.t.parameters.clone();
  state.t.gradient.zero_();
  AdamTensors nobody = state.t;
  nobody.divisor = torch::zeros({});
  AdamOperator(nobody, options_);
  EXPECT_TRUE(torch::equal(state.t.parameters, before));
  EXPECT_EQ(state.steps(), 0);
  state.t.gradient.normal_();
  Step(&state, 4);
  EXPECT_EQ(state.steps(), 1);
  EXPECT_FALSE(torch::equal(state.t.parameters, before));
}

INSTANTIATE_TEST_SUITE_P(Options, AdamStepTest,
                         testing::Values(Case{false, 0.5, true},
                                         Case{false, 0, false},
                                         Case{true, 0.5, false},
                                         Case{true, 0, true}));

}  // namespace
}  // namespace flotilla
