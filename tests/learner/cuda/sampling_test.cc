// flotilla::sample_actions and those beside it, beside loops in float64 written from
// what they mean, and beside what decides on the host.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "learner/cuda/operators.h"
#include "learner/kernels/draws.h"
#include "learner/nn/action_head.h"
#include "tests/learner/cuda/on_gpu.h"

namespace flotilla {
namespace {

// The largest bit is set: a seed is no number below 2^63.
constexpr uint64_t kSeed = UINT64_C(0xfedcba9876543210);
constexpr int64_t kPlace = 1000;

struct Case {
  std::vector<int64_t> num_values;
  int64_t continuous = 0;
  bool per_row = false;  // log_std
  bool masked = false;
};

std::string Name(const Case& c) {
  return absl::StrCat(c.num_values.size(), " choices and ", c.continuous,
                      " values", c.per_row ? " per row" : "",
                      c.masked ? " masked" : "");
}

std::vector<Case> EveryCase() {
  return {{{2}},          {{6}, 0, false, true},        {{3, 1, 5}},
          {{}, 3},        {{3, 4}, 0, false, true},     {{}, 2, true},
          {{40}},         {{4, 2}, 2, false, true},     {{2, 2, 2}, 1, true},
          {{}, 1, false}, {{5, 3, 2, 7}, 3, true, true}};
}

ActionSpace SpaceOf(const Case& c) {
  ActionSpace space;
  space.num_values = c.num_values;
  space.continuous = c.continuous;
  return space;
}

torch::Tensor Stream(uint64_t seed, int64_t place) {
  return torch::tensor({static_cast<int64_t>(seed), place});
}

// Row 0 of a mask forbids everything.
SampleInput RandomInput(const Case& c, int64_t R) {
  const ActionSpace space = SpaceOf(c);
  const int64_t L = space.logits(), A = space.continuous;
  SampleInput in;
  in.policy = torch::randn({R, L + A}) * 2;
  if (A > 0) {
    in.log_std = 0.5 * (c.per_row ? torch::randn({R, A}) : torch::randn({A}));
  }
  if (c.masked) {
    in.mask = (torch::rand({R, L}) < 0.5).to(torch::kUInt8);
    in.mask[0].zero_();
  }
  in.first_logit = torch::tensor(FirstLogits(space), torch::kInt32);
  in.stream = Stream(kSeed, kPlace);
  return in;
}

// Of one choice, from the definition; forbidden values have none.
std::vector<double> Probabilities(const float* logits, int64_t n,
                                  const uint8_t* mask) {
  const bool none =
      mask == nullptr || std::all_of(mask, mask + n, [](int m) { return !m; });
  std::vector<double> p(n);
  double sum = 0;
  for (int64_t a = 0; a < n; ++a) {
    if (none || mask[a] != 0) sum += p[a] = std::exp(double{logits[a]});
  }
  for (double& x : p) x /= sum;
  return p;
}

class SampleActionsTest : public testing::TestWithParam<int64_t> {};

TEST_P(SampleActionsTest, AreWhatTheirNumbersAndProbabilitiesSay) {
  const int64_t R = GetParam();
  torch::manual_seed(1);
  for (const Case& c : EveryCase()) {
    SCOPED_TRACE(Name(c));
    const SampleInput in = RandomInput(c, R);
    const SampledActions got = SampleActions(in);
    const auto K = static_cast<int64_t>(c.num_values.size());
    const int64_t A = c.continuous, O = in.policy.size(1), L = O - A;
    ASSERT_EQ(got.discrete.sizes(), (std::vector<int64_t>{R, K}));
    ASSERT_EQ(got.continuous.sizes(), (std::vector<int64_t>{R, A}));
    ASSERT_EQ(got.log_prob.sizes(), (std::vector<int64_t>{R}));
    for (int64_t r = 0; r < R; ++r) {
      const float* row = in.policy.data_ptr<float>() + r * O;
      const uint8_t* mask =
          c.masked ? in.mask.data_ptr<uint8_t>() + r * L : nullptr;
      uint64_t place = kPlace + r * (K + A);
      double log_prob = 0;
      for (int64_t k = 0; k < K; ++k) {
        const int64_t n = c.num_values[k];
        const std::vector<double> p = Probabilities(row, n, mask);
        const double u = UniformAt(kSeed, place++);
        const int64_t taken = got.discrete[r][k].item<int64_t>();
        ASSERT_TRUE(taken >= 0 && taken < n && p[taken] > 0) << taken;
        double below = 0;
        for (int64_t a = 0; a < taken; ++a) below += p[a];
        // A number on the border may fall to either side.
        ASSERT_GE(u, below - 1e-6) << r << " " << k;
        ASSERT_LE(u, below + p[taken] + 1e-6) << r << " " << k;
        log_prob += std::log(p[taken]);
        row += n;
        if (c.masked) mask += n;
      }
      for (int64_t j = 0; j < A; ++j) {
        const double s = c.per_row ? in.log_std[r][j].item<float>()
                                   : in.log_std[j].item<float>();
        const double z = NormalAt(kSeed, place++);
        ASSERT_NEAR(got.continuous[r][j].item<float>(),
                    row[j] + z * std::exp(s), 1e-5);
        log_prob -= 0.5 * z * z + s + 0.5 * std::log(2 * M_PI);
      }
      ASSERT_NEAR(got.log_prob[r].item<float>(), log_prob,
                  1e-6 * (1 + std::abs(log_prob)));
    }
  }
}

TEST_P(SampleActionsTest, AreTheHosts) {
  const int64_t R = GetParam();
  torch::manual_seed(2);
  for (const Case& c : EveryCase()) {
    SCOPED_TRACE(Name(c));
    const SampleInput in = RandomInput(c, R);
    const SampledActions got = SampleActions(in);
    const auto K = static_cast<int64_t>(c.num_values.size());
    torch::Tensor discrete = torch::empty({R, K}, torch::kInt64);
    torch::Tensor continuous = torch::empty({R, c.continuous});
    torch::Tensor log_prob = torch::empty({R});
    DecisionOutput out;
    out.discrete = discrete.data_ptr<int64_t>();
    out.continuous = continuous.data_ptr<float>();
    out.log_prob = log_prob.data_ptr<float>();
    Draws draws(kSeed);
    draws.Skip(kPlace);
    ActionHead(SpaceOf(c))
        .Sample(in.policy.data_ptr<float>(),
                in.log_std.defined() ? in.log_std.data_ptr<float>() : nullptr,
                c.per_row, c.masked ? in.mask.data_ptr<uint8_t>() : nullptr, R,
                /*greedy=*/false, &draws, out);
    EXPECT_EQ(draws.place(), uint64_t(kPlace + R * (K + c.continuous)));
    EXPECT_TRUE(torch::equal(got.discrete, discrete));
    EXPECT_TRUE(torch::allclose(got.continuous, continuous, 1e-6, 1e-6));
    EXPECT_TRUE(torch::allclose(got.log_prob, log_prob, 1e-6, 1e-6));
  }
}

// Around a block's rows.
INSTANTIATE_TEST_SUITE_P(Rows, SampleActionsTest,
                         testing::Values(1, 2, 255, 256, 257, 700));

TEST(SampleActionsFrequencyTest, FollowsTheProbabilities) {
  const int64_t R = 100'000;
  const torch::Tensor row = torch::tensor({0.3f, -1.0f, 2.0f, 0.0f, 1.0f});
  for (const bool masked : {false, true}) {
    SampleInput in;
    in.policy = row.expand({R, 5}).contiguous();
    in.first_logit = torch::tensor({0, 5}, torch::kInt32);
    in.stream = Stream(3, 0);
    const torch::Tensor mask = torch::tensor({1, 0, 1, 1, 0}, torch::kUInt8);
    if (masked) in.mask = mask.expand({R, 5}).contiguous();
    const torch::Tensor counts =
        torch::bincount(SampleActions(in).discrete.flatten(), {}, 5);
    const std::vector<double> p = Probabilities(
        row.data_ptr<float>(), 5, masked ? mask.data_ptr<uint8_t>() : nullptr);
    for (int a = 0; a < 5; ++a) {
      EXPECT_NEAR(counts[a].item<double>() / R, p[a],
                  4.5 * std::sqrt(p[a] * (1 - p[a]) / R))
          << a;
    }
  }
}

// What rounding leaves over is the last allowed value's, where the others have all
// the probability that a float holds.
TEST(SampleActionsFrequencyTest, NoNumberLeavesTheAllowedOnes) {
  const int64_t R = 20'000;
  SampleInput in;
  in.policy = torch::tensor({50.0f, -60.0f, 0.0f, -60.0f, 90.0f})
                  .expand({R, 5})
                  .contiguous();
  in.mask =
      torch::tensor({0, 1, 0, 1, 0}, torch::kUInt8).expand({R, 5}).contiguous();
  in.first_logit = torch::tensor({0, 5}, torch::kInt32);
  in.stream = Stream(4, 0);
  const torch::Tensor counts =
      torch::bincount(SampleActions(in).discrete.flatten(), {}, 5);
  EXPECT_EQ(counts[1].item<int64_t>() + counts[3].item<int64_t>(), R);
  EXPECT_NEAR(counts[1].item<double>() / R, 0.5, 0.016);
}

TEST(SampleActionsFrequencyTest, NamesWhatDoesNotFit) {
  SampleInput in = RandomInput({{3}, 1}, 4);
  in.stream = torch::zeros({2});
  try {
    SampleActions(in);
    FAIL() << "it took a stream of floats";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what_without_backtrace())
                  .find(std::string("stream is Float [2] by [1] on ") +
                        KernelsDevice() + ", want 2 numbers of Long"),
              std::string::npos)
        << error.what_without_backtrace();
  }
}

TEST(ExploreActionsTest, TakeTheLargestOrAnyAsTheirNumbersSay) {
  torch::manual_seed(5);
  const ActionSpace space = SpaceOf({{4, 1, 7}});
  const int64_t K = 3, L = 12;
  const torch::Tensor first = torch::tensor(FirstLogits(space), torch::kInt32);
  for (const int64_t R : {1, 255, 600}) {
    for (const bool masked : {false, true}) {
      for (const double epsilon : {0.0, 0.3, 1.0}) {
        // Few different ones: the first of several counts.
        const torch::Tensor value = torch::randint(3, {R, L}, torch::kFloat32);
        torch::Tensor mask;
        if (masked) {
          mask = (torch::rand({R, L}) < 0.5).to(torch::kUInt8);
          mask[0].zero_();
        }
        const torch::Tensor got =
            ExploreActions(value, mask, first, Stream(kSeed, kPlace),
                           torch::tensor({epsilon}, torch::kFloat64));
        int64_t explored = 0;
        for (int64_t r = 0; r < R; ++r) {
          const uint64_t place = kPlace + r * (1 + K);
          const bool explores = UniformAt(kSeed, place) < epsilon;
          explored += explores;
          int64_t at = r * L;
          for (int64_t k = 0; k < K; ++k) {
            std::vector<int64_t> allowed, all;
            for (int64_t a = 0; a < space.num_values[k]; ++a) {
              all.push_back(a);
              if (masked && mask.data_ptr<uint8_t>()[at + a] != 0) {
                allowed.push_back(a);
              }
            }
            if (allowed.empty()) allowed = all;
            const float* q = value.data_ptr<float>() + at;
            const int64_t want =
                explores ? allowed[static_cast<size_t>(
                               UniformAt(kSeed, place + 1 + k) *
                               static_cast<double>(allowed.size()))]
                         : *std::max_element(allowed.begin(), allowed.end(),
                                             [&](int64_t a, int64_t b) {
                                               return q[a] < q[b];
                                             });
            ASSERT_EQ(got[r][k].item<int64_t>(), want) << r << " " << k;
            at += space.num_values[k];
          }
        }
        EXPECT_NEAR(static_cast<double>(explored) / R, epsilon,
                    R < 2 ? 1 : 0.12);
      }
    }
  }
}

TEST(SquashedActionsTest, AreTheFormulas) {
  torch::manual_seed(6);
  SquashedInput in;
  in.low = torch::tensor({-2.0f, 0.0f, 10.0f});
  in.high = torch::tensor({2.0f, 1.0f, 10.5f});
  const auto act = [&](double share, int64_t j) {
    const double low = in.low[j].item<float>(), high = in.high[j].item<float>();
    return low + (high - low) * share;
  };
  for (const int64_t R : {1, 85, 86, 300}) {
    in.mean = torch::randn({R, 3});
    in.log_std = 0.5 * torch::randn({R, 3});
    in.stream = Stream(kSeed, kPlace);
    const torch::Tensor drawn = SquashedActions(in, R);
    const torch::Tensor any =
        SquashedActions({{}, {}, in.low, in.high, in.stream}, R);
    in.stream = torch::Tensor();
    const torch::Tensor greedy = SquashedActions(in, R);
    for (int64_t r = 0; r < R; ++r) {
      for (int64_t j = 0; j < 3; ++j) {
        const uint64_t place = kPlace + r * 3 + j;
        const double mean = in.mean[r][j].item<float>();
        const double u = mean + std::exp(in.log_std[r][j].item<double>()) *
                                    NormalAt(kSeed, place);
        ASSERT_NEAR(drawn[r][j].item<float>(), act((std::tanh(u) + 1) / 2, j),
                    1e-6);
        ASSERT_NEAR(greedy[r][j].item<float>(),
                    act((std::tanh(mean) + 1) / 2, j), 1e-6);
        ASSERT_NEAR(any[r][j].item<float>(), act(UniformAt(kSeed, place), j),
                    1e-6);
      }
    }
  }
}

TEST(NormalDrawsTest, AreTheNumbersAtTheirPlaces) {
  for (const int64_t n : {1, 6, 256, 1000}) {
    const torch::Tensor got =
        NormalDraws(static_cast<int64_t>(kSeed), kPlace, {n, 2}, torch::kCPU);
    ASSERT_EQ(got.sizes(), (std::vector<int64_t>{n, 2}));
    for (int64_t i = 0; i < 2 * n; ++i) {
      ASSERT_EQ(got.data_ptr<float>()[i],
                static_cast<float>(NormalAt(kSeed, kPlace + i)));
    }
  }
}

}  // namespace
}  // namespace flotilla
