#include "learner/nn/action_head.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "learner/cuda/sampling.h"

namespace flotilla {
namespace {

using testing::ElementsAre;

ActionSpace Space(const std::vector<int64_t>& num_values, int64_t continuous) {
  ActionSpace space;
  space.num_values = num_values;
  space.continuous = continuous;
  return space;
}

std::string Name(const ActionSpace& space) {
  return absl::StrCat("[", absl::StrJoin(space.num_values, " "), "] + ",
                      space.continuous);
}

// Each without a mask, and with one where there is something to choose.
std::vector<std::pair<ActionSpace, bool>> EverySpace() {
  std::vector<std::pair<ActionSpace, bool>> all;
  for (const ActionSpace& space :
       {Space({2}, 0), Space({1}, 0), Space({7}, 0), Space({2, 2, 2}, 0),
        Space({5, 1, 3}, 0), Space({}, 1), Space({}, 4), Space({4}, 2),
        Space({3, 2}, 3)}) {
    all.push_back({space, false});
    if (space.choices() > 0) all.push_back({space, true});
  }
  return all;
}

template <typename T>
std::vector<T> Flat(const torch::Tensor& t) {
  const torch::Tensor flat =
      t.detach().to(c10::CppTypeToScalarType<T>::value).contiguous().flatten();
  return {flat.data_ptr<T>(), flat.data_ptr<T>() + flat.numel()};
}

// Which values of each choice are allowed, none of them a whole choice's but in
// every fifth row, which allows nothing.
torch::Tensor RandomMask(const ActionSpace& space, int64_t rows) {
  const torch::Tensor mask =
      torch::randint(0, 2, {rows, space.logits()}, torch::kUInt8);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t first = 0;
    for (const int64_t n : space.num_values) {
      const int64_t allowed = torch::randint(0, n, {1}).item<int64_t>();
      mask[r][first + allowed] = 1;
      if (r % 5 == 4) mask[r].narrow(0, first, n).zero_();
      first += n;
    }
  }
  return mask;
}

// Random outputs and actions of M rows, in `dtype`.
struct Rows {
  torch::Tensor outputs, log_std, mask;
  Actions action;
};

Rows RandomRows(const ActionSpace& space, int64_t m, bool per_row, bool masked,
                torch::Dtype dtype) {
  Rows rows;
  rows.outputs = 2 * torch::randn({m, space.outputs()}, dtype);
  if (space.continuous > 0) {
    rows.log_std = per_row ? 0.5 * torch::randn({m, space.continuous}, dtype)
                           : 0.5 * torch::randn({space.continuous}, dtype);
    rows.action.continuous = 2 * torch::randn({m, space.continuous}, dtype);
  }
  if (masked) rows.mask = RandomMask(space, m);
  if (space.choices() == 0) return rows;
  rows.action.discrete = torch::zeros({m, space.choices()}, torch::kInt64);
  for (int64_t r = 0; r < m; ++r) {
    int64_t first = 0;
    for (int64_t i = 0; i < space.choices(); ++i) {
      const int64_t n = space.num_values[i];
      int64_t taken = torch::randint(0, n, {1}).item<int64_t>();
      const bool any =
          masked && rows.mask[r].narrow(0, first, n).sum().item<int64_t>() > 0;
      while (any && rows.mask[r][first + taken].item<int>() == 0) {
        taken = (taken + 1) % n;
      }
      rows.action.discrete[r][i] = taken;
      first += n;
    }
  }
  return rows;
}

// The probabilities of one choice, in float64.
std::vector<double> Probabilities(const double* logits, int64_t n,
                                  const uint8_t* mask) {
  if (mask != nullptr && std::count(mask, mask + n, 0) == n) mask = nullptr;
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t a = 0; a < n; ++a) {
    if (mask == nullptr || mask[a]) largest = std::max(largest, logits[a]);
  }
  std::vector<double> p(n, 0.0);
  for (int64_t a = 0; a < n; ++a) {
    if (mask == nullptr || mask[a]) sum += p[a] = std::exp(logits[a] - largest);
  }
  for (double& x : p) x /= sum;
  return p;
}

struct Expected {
  double log_prob = 0, entropy = 0;
};

// Written from the definitions, one number after the other.
std::vector<Expected> SlowEvaluate(const ActionSpace& space, const Rows& rows) {
  const int64_t m = rows.outputs.size(0);
  const std::vector<double> outputs = Flat<double>(rows.outputs);
  std::vector<double> log_std, values;
  std::vector<int64_t> taken;
  std::vector<uint8_t> mask;
  if (space.continuous > 0) {
    log_std = Flat<double>(rows.log_std);
    values = Flat<double>(rows.action.continuous);
  }
  if (space.choices() > 0) taken = Flat<int64_t>(rows.action.discrete);
  if (rows.mask.defined()) mask = Flat<uint8_t>(rows.mask);
  std::vector<Expected> all(m);
  for (int64_t r = 0; r < m; ++r) {
    const double* output = outputs.data() + r * space.outputs();
    int64_t first = 0;
    for (int64_t i = 0; i < space.choices(); ++i) {
      const int64_t n = space.num_values[i];
      const std::vector<double> p = Probabilities(
          output + first, n,
          mask.empty() ? nullptr : mask.data() + r * space.logits() + first);
      all[r].log_prob += std::log(p[taken[r * space.choices() + i]]);
      for (const double x : p) all[r].entropy -= x > 0 ? x * std::log(x) : 0;
      first += n;
    }
    for (int64_t j = 0; j < space.continuous; ++j) {
      const double deviation = std::exp(
          log_std[log_std.size() > static_cast<size_t>(space.continuous)
                      ? r * space.continuous + j
                      : j]);
      const double off = values[r * space.continuous + j] - output[first + j];
      all[r].log_prob += -off * off / (2 * deviation * deviation) -
                         std::log(deviation * std::sqrt(2 * std::numbers::pi));
      all[r].entropy += 0.5 * std::log(2 * std::numbers::pi * std::numbers::e *
                                       deviation * deviation);
    }
  }
  return all;
}

TEST(ActionHeadTest, EvaluateEqualsTheDefinitions) {
  torch::manual_seed(1);
  for (const auto& [space, masked] : EverySpace()) {
    for (const bool per_row : {false, true}) {
      for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
        SCOPED_TRACE(absl::StrCat(Name(space), masked ? " masked" : "",
                                  per_row ? " [N, A] " : " [A] "));
        const ActionHead head(space);
        EXPECT_EQ(head.num_outputs(), space.outputs());
        const Rows rows = RandomRows(space, 37, per_row, masked, dtype);
        const LogProbAndEntropy got =
            head.Evaluate(rows.outputs, rows.log_std, rows.mask, rows.action);
        ASSERT_EQ(got.log_prob.sizes(), torch::IntArrayRef({37}));
        ASSERT_EQ(got.entropy.sizes(), torch::IntArrayRef({37}));
        EXPECT_EQ(got.log_prob.scalar_type(), dtype);
        const std::vector<double> log_prob = Flat<double>(got.log_prob);
        const std::vector<double> entropy = Flat<double>(got.entropy);
        const std::vector<Expected> want = SlowEvaluate(space, rows);
        const double within = dtype == torch::kFloat64 ? 1e-12 : 2e-6;
        for (int64_t r = 0; r < 37; ++r) {
          ASSERT_NEAR(log_prob[r], want[r].log_prob,
                      within * (1 + std::abs(want[r].log_prob)));
          ASSERT_NEAR(entropy[r], want[r].entropy,
                      within * (1 + std::abs(want[r].entropy)));
        }
      }
    }
  }
}

// A number that depends on everything Evaluate says.
torch::Tensor Objective(const ActionHead& head, const Rows& rows,
                        const torch::Tensor& weight) {
  const LogProbAndEntropy got =
      head.Evaluate(rows.outputs, rows.log_std, rows.mask, rows.action);
  return (weight[0] * got.log_prob + weight[1] * got.entropy).sum();
}

// Central differences in float64, of each element of `at`.
std::vector<double> Differences(const ActionHead& head, const Rows& rows,
                                const torch::Tensor& weight,
                                const torch::Tensor& at) {
  constexpr double kStep = 1e-5;
  torch::NoGradGuard no_grad;
  double* x = at.data_ptr<double>();
  std::vector<double> slopes;
  for (int64_t i = 0; i < at.numel(); ++i) {
    const double before = x[i];
    x[i] = before + kStep;
    const double above = Objective(head, rows, weight).item<double>();
    x[i] = before - kStep;
    const double below = Objective(head, rows, weight).item<double>();
    x[i] = before;
    slopes.push_back((above - below) / (2 * kStep));
  }
  return slopes;
}

TEST(ActionHeadTest, GradientsAreFiniteDifferences) {
  torch::manual_seed(2);
  for (const auto& [space, masked] : EverySpace()) {
    for (const bool per_row : {false, true}) {
      SCOPED_TRACE(absl::StrCat(Name(space), masked ? " masked" : ""));
      const ActionHead head(space);
      Rows rows = RandomRows(space, 7, per_row, masked, torch::kFloat64);
      const torch::Tensor weight = torch::randn({2, 7}, torch::kFloat64);
      rows.outputs.requires_grad_();
      if (rows.log_std.defined()) rows.log_std.requires_grad_();
      Objective(head, rows, weight).backward();
      for (const torch::Tensor& at : {rows.outputs, rows.log_std}) {
        if (!at.defined()) continue;
        const std::vector<double> got = Flat<double>(at.grad());
        const std::vector<double> want = Differences(head, rows, weight, at);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], want[i], 1e-7 * (1 + std::abs(want[i]))) << i;
        }
      }
    }
  }
}

TEST(ActionHeadTest, WhatIsForbiddenHasNoGradientAtAll) {
  torch::manual_seed(3);
  for (const ActionSpace& space :
       {Space({7}, 0), Space({5, 1, 3}, 0), Space({3, 2}, 3)}) {
    const ActionHead head(space);
    Rows rows = RandomRows(space, 20, false, /*masked=*/true, torch::kFloat32);
    rows.outputs.requires_grad_();
    Objective(head, rows, torch::randn({2, 20})).backward();
    const std::vector<float> gradient = Flat<float>(rows.outputs.grad());
    const std::vector<uint8_t> mask = Flat<uint8_t>(rows.mask);
    int forbidden = 0;
    for (int64_t r = 0; r < 20; ++r) {
      for (int64_t l = 0; l < space.outputs(); ++l) {
        const float g = gradient[r * space.outputs() + l];
        ASSERT_TRUE(std::isfinite(g));
        if (r % 5 == 4 || l >= space.logits() ||
            mask[r * space.logits() + l] != 0) {
          continue;
        }
        ++forbidden;
        ASSERT_EQ(g, 0.0f);
      }
    }
    EXPECT_GT(forbidden, 20);
  }
}

// One value left: it is certain, and there is nothing to learn.
TEST(ActionHeadTest, TheOnlyValueLeftIsCertain) {
  const ActionHead head(Space({4}, 0));
  const torch::Tensor outputs =
      torch::tensor({{1e4f, -3.0f, 2.0f, -1e4f}}).requires_grad_();
  const torch::Tensor mask = torch::tensor({{0, 1, 0, 0}}, torch::kUInt8);
  Actions action;
  action.discrete = torch::tensor({{1}}, torch::kInt64);
  const LogProbAndEntropy got = head.Evaluate(outputs, {}, mask, action);
  EXPECT_EQ(got.log_prob.item<float>(), 0);
  EXPECT_EQ(got.entropy.item<float>(), 0);
  (got.log_prob + got.entropy).sum().backward();
  EXPECT_EQ(outputs.grad().abs().max().item<float>(), 0);
}

TEST(ActionHeadTest, WhatCannotHappenIsNoNumberlessLogarithm) {
  const ActionHead head(Space({3}, 0));
  for (const bool masked : {false, true}) {
    const torch::Tensor outputs =
        torch::tensor({{500.0f, -500.0f, 0.0f}}).requires_grad_();
    Actions action;
    action.discrete = torch::tensor({{1}}, torch::kInt64);
    const LogProbAndEntropy got = head.Evaluate(
        outputs, {},
        masked ? torch::ones({1, 3}, torch::kUInt8) : torch::Tensor(), action);
    EXPECT_FLOAT_EQ(got.log_prob.item<float>(), -1000);
    EXPECT_FLOAT_EQ(got.entropy.item<float>(), 0);
    (got.log_prob + got.entropy).sum().backward();
    EXPECT_TRUE(outputs.grad().isfinite().all().item<bool>());
  }
}

TEST(ActionHeadTest, ForbiddenLogitsAreNone) {
  const float none = -std::numeric_limits<float>::infinity();
  const torch::Tensor logits =
      torch::tensor({{1.0f, 2.0f}, {3.0f, 4.0f}, {5.0f, 6.0f}});
  const torch::Tensor allowed =
      torch::tensor({{1, 0}, {0, 0}, {1, 1}}, torch::kUInt8);
  EXPECT_THAT(Flat<float>(ForbidValues(logits, allowed)),
              ElementsAre(1, none, 3, 4, 5, 6));
}

// Draws of every row.
struct Drawn {
  Drawn(const ActionSpace& space, int64_t rows)
      : discrete(rows * space.choices()),
        continuous(rows * space.continuous),
        log_prob(rows) {}
  DecisionOutput out() {
    DecisionOutput out;
    if (!discrete.empty()) out.discrete = discrete.data();
    if (!continuous.empty()) out.continuous = continuous.data();
    out.log_prob = log_prob.data();
    return out;
  }
  std::vector<int64_t> discrete;
  std::vector<float> continuous, log_prob;
};

Drawn Sample(const ActionSpace& space, const Rows& rows, bool greedy,
             Draws* draws) {
  const int64_t m = rows.outputs.size(0);
  Drawn drawn(space, m);
  const std::vector<float> outputs = Flat<float>(rows.outputs);
  std::vector<float> log_std;
  std::vector<uint8_t> mask;
  if (rows.log_std.defined()) log_std = Flat<float>(rows.log_std);
  if (rows.mask.defined()) mask = Flat<uint8_t>(rows.mask);
  ActionHead(space).Sample(
      outputs.data(), log_std.empty() ? nullptr : log_std.data(),
      /*per_row=*/rows.log_std.defined() && rows.log_std.dim() > 1,
      mask.empty() ? nullptr : mask.data(), m, greedy, draws, drawn.out());
  return drawn;
}

Actions ActionsOf(const ActionSpace& space, const Drawn& drawn) {
  Actions action;
  if (space.choices() > 0) {
    action.discrete = torch::tensor(drawn.discrete, torch::kInt64)
                          .view({-1, space.choices()});
  }
  if (space.continuous > 0) {
    action.continuous =
        torch::tensor(drawn.continuous).view({-1, space.continuous});
  }
  return action;
}

TEST(ActionHeadTest, SamplesHaveTheLogProbabilityThatEvaluateGives) {
  torch::manual_seed(4);
  Draws draws(4);
  for (const auto& [space, masked] : EverySpace()) {
    for (const bool per_row : {false, true}) {
      for (const bool greedy : {false, true}) {
        SCOPED_TRACE(absl::StrCat(Name(space), masked ? " masked" : "",
                                  greedy ? " greedy" : ""));
        const Rows rows =
            RandomRows(space, 200, per_row, masked, torch::kFloat32);
        const Drawn drawn = Sample(space, rows, greedy, &draws);
        const std::vector<float> want =
            Flat<float>(ActionHead(space)
                            .Evaluate(rows.outputs, rows.log_std, rows.mask,
                                      ActionsOf(space, drawn))
                            .log_prob);
        for (size_t r = 0; r < want.size(); ++r) {
          ASSERT_NEAR(drawn.log_prob[r], want[r],
                      1e-5 * (1 + std::abs(want[r])));
        }
      }
    }
  }
}

// By row, first its choices (one uniform number each) and then its values (one
// normal number each): a run replays exactly.
TEST(ActionHeadTest, SamplesInvertTheCumulativeDistribution) {
  torch::manual_seed(5);
  for (const auto& [space, masked] : EverySpace()) {
    SCOPED_TRACE(absl::StrCat(Name(space), masked ? " masked" : ""));
    const Rows rows =
        RandomRows(space, 300, /*per_row=*/true, masked, torch::kFloat32);
    Draws draws(5), same(5);
    const Drawn drawn = Sample(space, rows, /*greedy=*/false, &draws);
    const std::vector<double> outputs = Flat<double>(rows.outputs);
    std::vector<double> log_std;
    std::vector<uint8_t> mask;
    if (space.continuous > 0) log_std = Flat<double>(rows.log_std);
    if (masked) mask = Flat<uint8_t>(rows.mask);
    for (int64_t r = 0; r < 300; ++r) {
      int64_t first = 0;
      for (int64_t i = 0; i < space.choices(); ++i) {
        const int64_t n = space.num_values[i];
        const std::vector<double> p = Probabilities(
            outputs.data() + r * space.outputs() + first, n,
            masked ? mask.data() + r * space.logits() + first : nullptr);
        double left = same.Uniform();
        int64_t want = 0;
        while (want + 1 < n && (left -= p[want]) >= 0) ++want;
        ASSERT_EQ(drawn.discrete[r * space.choices() + i], want);
        first += n;
      }
      for (int64_t j = 0; j < space.continuous; ++j) {
        const int64_t at = r * space.continuous + j;
        const double want = outputs[r * space.outputs() + space.logits() + j] +
                            same.Normal() * std::exp(log_std[at]);
        ASSERT_NEAR(drawn.continuous[at], want, 1e-5);
      }
    }
    EXPECT_EQ(draws.place(), same.place());
  }
}

TEST(ActionHeadTest, GreedyTakesTheLikeliestThatIsAllowedAndDrawsNothing) {
  torch::manual_seed(6);
  for (const auto& [space, masked] : EverySpace()) {
    SCOPED_TRACE(absl::StrCat(Name(space), masked ? " masked" : ""));
    const Rows rows =
        RandomRows(space, 100, /*per_row=*/false, masked, torch::kFloat32);
    Draws draws(6);
    const Drawn drawn = Sample(space, rows, /*greedy=*/true, &draws);
    EXPECT_EQ(draws.place(), 0u);
    const std::vector<double> outputs = Flat<double>(rows.outputs);
    std::vector<uint8_t> mask;
    if (masked) mask = Flat<uint8_t>(rows.mask);
    for (int64_t r = 0; r < 100; ++r) {
      int64_t first = 0;
      for (int64_t i = 0; i < space.choices(); ++i) {
        const int64_t n = space.num_values[i];
        const std::vector<double> p = Probabilities(
            outputs.data() + r * space.outputs() + first, n,
            masked ? mask.data() + r * space.logits() + first : nullptr);
        ASSERT_EQ(drawn.discrete[r * space.choices() + i],
                  std::max_element(p.begin(), p.end()) - p.begin());
        first += n;
      }
      for (int64_t j = 0; j < space.continuous; ++j) {
        ASSERT_EQ(drawn.continuous[r * space.continuous + j],
                  outputs[r * space.outputs() + first + j]);
      }
    }
  }
  // Of equal ones the first.
  float log_prob;
  const float logits[] = {1, 5, 5, 5};
  const uint8_t allowed[] = {1, 0, 1, 1};
  EXPECT_EQ(PickValue(logits, 4, nullptr, /*share=*/-1, &log_prob), 1);
  EXPECT_EQ(PickValue(logits, 4, allowed, /*share=*/-1, &log_prob), 2);
}

// 100,000 draws of one row.
Drawn DrawOften(const ActionSpace& space, const torch::Tensor& outputs,
                const torch::Tensor& log_std, const torch::Tensor& mask,
                uint64_t seed) {
  constexpr int64_t kDraws = 100000;
  Rows rows;
  rows.outputs = outputs.expand({kDraws, -1}).contiguous();
  rows.log_std = log_std;
  if (mask.defined()) rows.mask = mask.expand({kDraws, -1}).contiguous();
  Draws draws(seed);
  return Sample(space, rows, /*greedy=*/false, &draws);
}

// Pearson's statistic; about its degrees of freedom if all is well.
double ChiSquare(const std::vector<int64_t>& counts,
                 const std::vector<double>& probabilities) {
  const double n = std::accumulate(counts.begin(), counts.end(), 0.0);
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double want = n * probabilities[i];
    if (want > 0) sum += (counts[i] - want) * (counts[i] - want) / want;
  }
  return sum;
}

TEST(ActionHeadTest, FrequenciesFollowTheProbabilities) {
  const ActionSpace space = Space({6, 4}, 0);
  const torch::Tensor outputs = torch::tensor(
      {{0.3f, -1.0f, 2.0f, 0.0f, -2.5f, 1.0f, 0.5f, 0.5f, -1.5f, 1.2f}});
  const torch::Tensor some =
      torch::tensor({{1, 1, 0, 1, 0, 1, 0, 1, 1, 1}}, torch::kUInt8);
  for (const torch::Tensor& mask : {torch::Tensor(), some}) {
    const Drawn drawn = DrawOften(space, outputs, {}, mask, /*seed=*/7);
    const std::vector<double> logits = Flat<double>(outputs);
    std::vector<uint8_t> allowed;
    if (mask.defined()) allowed = Flat<uint8_t>(mask);
    const uint8_t* may = allowed.empty() ? nullptr : allowed.data();
    const std::vector<double> p = Probabilities(logits.data(), 6, may);
    const std::vector<double> q =
        Probabilities(logits.data() + 6, 4, may == nullptr ? nullptr : may + 6);
    // Both together: they are independent.
    std::vector<int64_t> counts(24);
    std::vector<double> joint(24);
    int degrees = -1;
    for (int i = 0; i < 24; ++i) {
      joint[i] = p[i / 4] * q[i % 4];
      degrees += joint[i] > 0;
    }
    for (size_t d = 0; d < drawn.discrete.size(); d += 2) {
      ++counts[drawn.discrete[d] * 4 + drawn.discrete[d + 1]];
    }
    for (int i = 0; i < 24; ++i) {
      EXPECT_TRUE(joint[i] > 0 || counts[i] == 0) << "value " << i;
    }
    // One seed in 10,000 or so would be further off.
    EXPECT_LT(ChiSquare(counts, joint),
              degrees + 4.5 * std::sqrt(2.0 * degrees));
    EXPECT_EQ(degrees, mask.defined() ? 4 * 3 - 1 : 23);
  }
}

TEST(ActionHeadTest, WhatIsForbiddenIsNeverDrawn) {
  // The forbidden ones would be all but certain, and what is left all but
  // impossible.
  const ActionSpace space = Space({5, 3}, 1);
  const torch::Tensor outputs = torch::tensor(
      {{80.0f, -60.0f, 90.0f, -60.0f, 85.0f, 50.0f, -50.0f, 60.0f, 0.0f}});
  const torch::Tensor mask =
      torch::tensor({{0, 1, 0, 1, 0, 0, 1, 0}}, torch::kUInt8);
  const Drawn drawn =
      DrawOften(space, outputs, torch::zeros({1}), mask, /*seed=*/8);
  std::vector<int64_t> counts(5);
  for (size_t d = 0; d < drawn.discrete.size(); d += 2) {
    ++counts[drawn.discrete[d]];
    ASSERT_EQ(drawn.discrete[d + 1], 1);
  }
  EXPECT_EQ(counts[0] + counts[2] + counts[4], 0);
  EXPECT_NEAR(counts[1], 50000, 800);
}

TEST(ActionHeadTest, ValuesAreGaussian) {
  const ActionSpace space = Space({}, 2);
  const torch::Tensor mean = torch::tensor({{1.0f, -3.0f}});
  const torch::Tensor log_std = torch::tensor({0.5f, -1.0f});
  const Drawn drawn = DrawOften(space, mean, log_std, {}, /*seed=*/9);
  for (int j = 0; j < 2; ++j) {
    std::vector<double> z;
    for (size_t d = j; d < drawn.continuous.size(); d += 2) {
      z.push_back((drawn.continuous[d] - mean[0][j].item<double>()) /
                  std::exp(log_std[j].item<double>()));
    }
    // Sixteen parts that are equally likely, by the error function.
    std::vector<int64_t> counts(16);
    for (const double x : z) {
      const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
      ++counts[std::min(15, static_cast<int>(16 * below))];
    }
    EXPECT_LT(ChiSquare(counts, std::vector<double>(16, 1.0 / 16)),
              15 + 4.5 * std::sqrt(30.0));
  }
}

TEST(ActionHeadTest, AMaskThatForbidsEverythingForbidsNothing) {
  torch::manual_seed(10);
  for (const ActionSpace& space : {Space({4}, 0), Space({3, 2}, 1)}) {
    Rows rows = RandomRows(space, 500, /*per_row=*/false, /*masked=*/false,
                           torch::kFloat32);
    for (const bool greedy : {false, true}) {
      Draws a(10), b(10);
      rows.mask = torch::Tensor();
      const Drawn all = Sample(space, rows, greedy, &a);
      rows.mask = torch::zeros({500, space.logits()}, torch::kUInt8);
      const Drawn none = Sample(space, rows, greedy, &b);
      EXPECT_EQ(all.discrete, none.discrete);
      EXPECT_EQ(all.continuous, none.continuous);
      EXPECT_EQ(all.log_prob, none.log_prob);
      EXPECT_EQ(a.place(), b.place());
    }
    const ActionHead head(space);
    const LogProbAndEntropy none =
        head.Evaluate(rows.outputs, rows.log_std, rows.mask, rows.action);
    const LogProbAndEntropy all =
        head.Evaluate(rows.outputs, rows.log_std, {}, rows.action);
    EXPECT_TRUE(torch::equal(all.log_prob, none.log_prob));
    EXPECT_TRUE(torch::allclose(all.entropy, none.entropy));
  }
}

}  // namespace
}  // namespace flotilla
