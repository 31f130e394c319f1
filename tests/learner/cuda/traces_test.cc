// flotilla::gae and flotilla::vtrace beside the papers' sums in float64, Torch's
// operators, and what the CPU's kernels make of the same.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"
#include "learner/cuda/operators.h"
#include "learner/kernels/gae.h"
#include "learner/kernels/vtrace.h"

namespace flotilla {
namespace {

struct Experience {
  Experience(int64_t T, int64_t B) : T(T), B(B) {
    const auto ends = [&](double share) {
      return (torch::rand({T, B}) < share).to(torch::kUInt8);
    };
    t = {.reward = torch::randn({T, B}),
         .value = torch::randn({T + 1, B}),
         .terminated = ends(0.1),
         .truncated = ends(0.1),
         .bootstrap_value = torch::randn({T, B}),
         .valid = ends(0.9)};
    log_prob = 0.4 * torch::randn({T, B}) - 1;
    actor_log_prob = 0.4 * torch::randn({T, B}) - 1;
    // Nothing is read of what is not valid.
    const torch::Tensor lost = t.valid == 0;
    for (torch::Tensor* x :
         {&t.reward, &t.bootstrap_value, &log_prob, &actor_log_prob}) {
      x->masked_fill_(lost, std::numeric_limits<float>::quiet_NaN());
    }
    one = torch::empty({T, B});
    two = torch::empty({T, B});
  }

  int64_t T, B;
  TraceTensors t;
  torch::Tensor log_prob, actor_log_prob;
  torch::Tensor one, two;  // results
};

// What both papers' recursions are made of, at [t][b].
struct Step {
  double value, delta;
  bool valid, goes_on;
};
Step StepOf(const Experience& e, int64_t t, int64_t b, double discount) {
  const auto at = [&](const torch::Tensor& x, int64_t row) {
    return static_cast<double>(x.data_ptr<float>()[row * e.B + b]);
  };
  const auto is = [&](const torch::Tensor& x, int64_t row) {
    return x.data_ptr<uint8_t>()[row * e.B + b] != 0;
  };
  const bool terminated = is(e.t.terminated, t),
             truncated = is(e.t.truncated, t);
  const double next = terminated  ? 0
                      : truncated ? at(e.t.bootstrap_value, t)
                                  : at(e.t.value, t + 1);
  const double value = at(e.t.value, t);
  return {value, at(e.t.reward, t) + discount * next - value, is(e.t.valid, t),
          !terminated && !truncated && t + 1 < e.T && is(e.t.valid, t + 1)};
}

constexpr int64_t kSizes[][2] = {{1, 1}, {2, 3}, {7, 256}, {64, 257}, {129, 5}};

void ExpectNear(const torch::Tensor& got, int64_t t, int64_t b, double want) {
  EXPECT_NEAR(got[t][b].item<double>(), want,
              2e-5 * std::max(1.0, std::abs(want)))
      << t << " " << b;
}

TEST(TracesTest, GaeIsThePapersSum) {
  torch::manual_seed(1);
  for (const auto& [T, B] : kSizes) {
    const Experience e(T, B);
    GaeOperator(e.t, 0.97, 0.9, e.one, e.two);
    // Schulman et al. 2016, equation 16: forwards, from each step on.
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t t = 0; t < T; ++t) {
        double sum = 0, weight = 1;
        const Step first = StepOf(e, t, b, 0.97);
        for (int64_t l = t; first.valid; ++l) {
          const Step step = StepOf(e, l, b, 0.97);
          sum += weight * step.delta;
          weight *= 0.97 * 0.9;
          if (!step.goes_on) break;
        }
        ExpectNear(e.one, t, b, sum);
        ExpectNear(e.two, t, b, first.valid ? sum + first.value : 0);
      }
    }
  }
}

TEST(TracesTest, VtraceIsThePapersSum) {
  torch::manual_seed(2);
  const VtraceNumbers n = {.discount = 0.97,
                           .lambda = 0.9,
                           .rho_clip = 1.1,
                           .c_clip = 0.9,
                           .pg_rho_clip = 1.3};
  for (const auto& [T, B] : kSizes) {
    const Experience e(T, B);
    VtraceOperator(e.t, e.log_prob, e.actor_log_prob, n, e.one, e.two);
    const auto ratio = [&, B = B](int64_t t, int64_t b) {
      return std::exp(
          static_cast<double>(e.log_prob.data_ptr<float>()[t * B + b]) -
          e.actor_log_prob.data_ptr<float>()[t * B + b]);
    };
    // Espeholt et al. 2018, equation 1: target - value, from step `t` on.
    const auto error = [&](int64_t t, int64_t b) {
      double sum = 0, weight = 1;
      for (int64_t l = t;; ++l) {
        const Step step = StepOf(e, l, b, n.discount);
        sum += weight * std::min(n.rho_clip, ratio(l, b)) * step.delta;
        weight *= n.discount * n.lambda * std::min(n.c_clip, ratio(l, b));
        if (!step.goes_on) return sum;
      }
    };
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t t = 0; t < T; ++t) {
        const Step step = StepOf(e, t, b, n.discount);
        if (!step.valid) {
          EXPECT_EQ(e.one[t][b].item<float>(), 0);
          EXPECT_EQ(e.two[t][b].item<float>(), 0);
          continue;
        }
        ExpectNear(e.one, t, b, step.value + error(t, b));
        const double later =
            step.goes_on ? n.discount * n.lambda * error(t + 1, b) : 0;
        ExpectNear(e.two, t, b,
                   std::min(n.pg_rho_clip, ratio(t, b)) * (step.delta + later));
      }
    }
  }
}

// The twin of Torch's operators, a step at a time.
TEST(TracesTest, GaeIsTorchs) {
  torch::manual_seed(3);
  const Experience e(33, 70);
  GaeOperator(e.t, 0.99, 0.95, e.one, e.two);
  const torch::Tensor valid = e.t.valid != 0;
  const torch::Tensor ended = (e.t.terminated + e.t.truncated) != 0;
  torch::Tensor after = torch::zeros({e.B}, torch::kFloat64);
  for (int64_t t = e.T - 1; t >= 0; --t) {
    const torch::Tensor next = torch::where(
        e.t.truncated[t] != 0, e.t.bootstrap_value[t], e.t.value[t + 1]);
    const torch::Tensor delta =
        e.t.reward[t] +
        0.99 * next.masked_fill(e.t.terminated[t] != 0, 0).to(torch::kFloat64) -
        e.t.value[t];
    after = torch::where(valid[t],
                         delta + 0.99 * 0.95 * after.masked_fill(ended[t], 0),
                         torch::zeros_like(after));
    EXPECT_TRUE(
        torch::allclose(e.one[t].to(torch::kFloat64), after, 1e-5, 1e-5))
        << t;
  }
}

TEST(TracesTest, AreTheCpusKernels) {
  torch::manual_seed(4);
  const Experience e(40, 300);
  const auto fill = [&](auto* in) {
    in->length = e.T;
    in->rows = e.B;
    in->reward = e.t.reward.data_ptr<float>();
    in->value = e.t.value.data_ptr<float>();
    in->terminated = e.t.terminated.data_ptr<uint8_t>();
    in->truncated = e.t.truncated.data_ptr<uint8_t>();
    in->bootstrap_value = e.t.bootstrap_value.data_ptr<float>();
    in->valid = e.t.valid.data_ptr<uint8_t>();
    in->lambda = 0.9f;
  };
  const torch::Tensor one = torch::empty({e.T, e.B}),
                      two = torch::empty({e.T, e.B});
  GaeInput gae;
  fill(&gae);
  GeneralizedAdvantages(gae, one.data_ptr<float>(), two.data_ptr<float>());
  GaeOperator(e.t, gae.discount, gae.lambda, e.one, e.two);
  EXPECT_TRUE(torch::allclose(e.one, one, 1e-6, 2e-6));
  EXPECT_TRUE(torch::allclose(e.two, two, 1e-6, 2e-6));
  VtraceInput vtrace;
  fill(&vtrace);
  vtrace.log_prob = e.log_prob.data_ptr<float>();
  vtrace.actor_log_prob = e.actor_log_prob.data_ptr<float>();
  Vtrace(vtrace, one.data_ptr<float>(), two.data_ptr<float>());
  VtraceOperator(e.t, e.log_prob, e.actor_log_prob, {.lambda = vtrace.lambda},
                 e.one, e.two);
  EXPECT_TRUE(torch::allclose(e.one, one, 1e-6, 2e-6));
  EXPECT_TRUE(torch::allclose(e.two, two, 1e-6, 2e-6));
}

// A step that is valid and no number is handed on as far back as it counts, and to
// no other environment.
TEST(TracesTest, WhatIsNotFiniteStaysInItsColumn) {
  torch::manual_seed(5);
  Experience e(6, 3);
  for (torch::Tensor* ends : {&e.t.terminated, &e.t.truncated}) ends->zero_();
  e.t.valid.fill_(1);
  e.t.reward.normal_();
  e.t.reward[3][1] = std::numeric_limits<float>::infinity();
  GaeOperator(e.t, 0.99, 0.95, e.one, e.two);
  const torch::Tensor finite = e.one.isfinite();
  for (int64_t t = 0; t < 6; ++t) {
    EXPECT_TRUE(finite[t][0].item<bool>());
    EXPECT_EQ(finite[t][1].item<bool>(), t > 3) << t;
    EXPECT_TRUE(finite[t][2].item<bool>());
  }
}

}  // namespace
}  // namespace flotilla
