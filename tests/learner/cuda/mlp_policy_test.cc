// flotilla::mlp_forward and flotilla::mlp_backward beside loops in float64, written from
// kernels/mlp_shape.h, and beside Torch's layers.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/cuda/operators.h"
#include "tests/learner/cuda/on_gpu.h"

namespace flotilla {
namespace {

using testing::HasSubstr;

struct Case {
  std::string name;
  MlpShape shape;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

MlpShape Shape(int observations, std::vector<int> hidden, Activation activation,
               bool share_trunk, int actions, bool continuous) {
  MlpShape shape;
  shape.observations = observations;
  shape.hidden = std::move(hidden);
  shape.activation = activation;
  shape.share_trunk = share_trunk;
  shape.actions = actions;
  shape.continuous = continuous;
  return shape;
}

// Weights as large as those that networks start with.
torch::Tensor Parameters(const MlpShape& shape) {
  const torch::Tensor all = torch::empty({ParameterCount(shape)});
  for (const ParameterBlock& block : ParameterLayout(shape)) {
    const double scale =
        block.shape.size() == 2
            ? std::sqrt(1.5 / static_cast<double>(block.shape[1]))
            : 0.3;
    all.narrow(0, block.offset, block.size()).normal_(0, scale);
  }
  return all;
}

MlpSlopes RandomSlopes(const MlpShape& shape, int64_t R) {
  MlpSlopes slopes;
  slopes.policy = torch::randn({R, shape.actions});
  slopes.value = torch::randn({R});
  if (shape.continuous) slopes.log_std = torch::randn({R, shape.actions});
  return slopes;
}

// One observation after another, layer by layer and number by number.
class InDoubles {
 public:
  InDoubles(const MlpShape& shape, const torch::Tensor& parameters)
      : shape_(shape),
        layout_(ParameterLayout(shape)),
        p_(Numbers(parameters)),
        gradient(p_.size()) {}

  struct Output {
    std::vector<double> policy, value;
  };

  Output Forward(const torch::Tensor& observation) const {
    return {Through(true, Numbers(observation)).back(),
            Through(false, Numbers(observation)).back()};
  }

  void Backward(const torch::Tensor& observation, const torch::Tensor& policy,
                const torch::Tensor& value, const torch::Tensor& log_std) {
    Back(true, Numbers(observation), Numbers(policy));
    Back(false, Numbers(observation), Numbers(value));
    if (!shape_.continuous) return;
    const std::vector<double> slopes = Numbers(log_std);
    for (int a = 0; a < shape_.actions; ++a) {
      gradient[At("actor_logstd") + a] += slopes[a];
    }
  }

  static std::vector<double> Numbers(const torch::Tensor& t) {
    const torch::Tensor d = t.to(torch::kFloat64).contiguous();
    return {d.data_ptr<double>(), d.data_ptr<double>() + d.numel()};
  }

 private:
  struct Layer {
    int64_t weight, bias;
    int in, out;
  };

  int64_t At(const std::string& name) const {
    for (const ParameterBlock& block : layout_) {
      if (block.name == name) return block.offset;
    }
    ADD_FAILURE() << "no " << name;
    return 0;
  }

  std::vector<Layer> Layers(bool policy) const {
    const std::string stack = shape_.share_trunk  ? "trunk"
                              : !policy           ? "critic"
                              : shape_.continuous ? "actor_mean"
                                                  : "actor";
    std::vector<Layer> layers;
    int in = shape_.observations;
    const auto add = [&](const std::string& name, int out) {
      layers.push_back({At(name + ".weight"), At(name + ".bias"), in, out});
      in = out;
    };
    for (size_t i = 0; i < shape_.hidden.size(); ++i) {
      add(absl::StrCat(stack, ".", 2 * i), shape_.hidden[i]);
    }
    add(!shape_.share_trunk ? absl::StrCat(stack, ".", 2 * shape_.hidden.size())
        : policy            ? "policy"
                            : "value",
        policy ? shape_.actions : 1);
    return layers;
  }

  // The observation, and what each layer gives.
  std::vector<std::vector<double>> Through(bool policy,
                                           std::vector<double> seen) const {
    std::vector<std::vector<double>> all = {std::move(seen)};
    const std::vector<Layer> layers = Layers(policy);
    for (size_t l = 0; l < layers.size(); ++l) {
      const Layer& layer = layers[l];
      std::vector<double> x(layer.out);
      for (int o = 0; o < layer.out; ++o) {
        x[o] = p_[layer.bias + o];
        for (int i = 0; i < layer.in; ++i) {
          x[o] += p_[layer.weight + o * layer.in + i] * all.back()[i];
        }
        if (l + 1 == layers.size()) continue;
        x[o] = shape_.activation == Activation::kTanh ? std::tanh(x[o])
               : x[o] > 0                             ? x[o]
                                                      : 0;
      }
      all.push_back(std::move(x));
    }
    return all;
  }

  void Back(bool policy, std::vector<double> seen, std::vector<double> slope) {
    const std::vector<Layer> layers = Layers(policy);
    const std::vector<std::vector<double>> x = Through(policy, std::move(seen));
    for (size_t l = layers.size(); l-- > 0;) {
      const Layer& layer = layers[l];
      std::vector<double> below(layer.in);
      for (int o = 0; o < layer.out; ++o) {
        gradient[layer.bias + o] += slope[o];
        for (int i = 0; i < layer.in; ++i) {
          gradient[layer.weight + o * layer.in + i] += slope[o] * x[l][i];
          below[i] += slope[o] * p_[layer.weight + o * layer.in + i];
        }
      }
      for (int i = 0; l > 0 && i < layer.in; ++i) {
        below[i] *= shape_.activation == Activation::kTanh
                        ? 1 - x[l][i] * x[l][i]
                    : x[l][i] > 0 ? 1
                                  : 0;
      }
      slope = std::move(below);
    }
  }

  const MlpShape shape_;
  const std::vector<ParameterBlock> layout_;
  const std::vector<double> p_;

 public:
  std::vector<double> gradient;  // [P]
};

// The same of Torch's layers, of the type that the parameters have. With `kept`, units
// of ReLU are those that are above 0 there: of many some are so near that rounding
// decides.
class Twin {
 public:
  Twin(const MlpShape& shape, const torch::Tensor& parameters,
       const torch::Tensor& kept = {})
      : shape_(shape),
        all_(parameters.clone().set_requires_grad(true)),
        kept_(kept) {
    for (const ParameterBlock& block : ParameterLayout(shape)) {
      p_.push_back(
          all_.narrow(0, block.offset, block.size()).view(block.shape));
    }
  }

  MlpOutputs Forward(const torch::Tensor& observation) const {
    const size_t first = shape_.continuous ? 1 : 0;
    const size_t n = 2 * shape_.hidden.size();
    if (shape_.share_trunk) {
      const torch::Tensor x = Hidden(first, 0, observation);
      return {Head(first + n, x), Head(first + n + 2, x).squeeze(1), {}};
    }
    int64_t units = 0;
    for (const int width : shape_.hidden) units += width;
    const torch::Tensor critic = Hidden(first, 0, observation);
    const torch::Tensor actor = Hidden(first + n + 2, units, observation);
    return {
        Head(first + 2 * n + 2, actor), Head(first + n, critic).squeeze(1), {}};
  }

  torch::Tensor Gradient(const torch::Tensor& observation,
                         const MlpSlopes& slopes) const {
    const MlpOutputs out = Forward(observation);
    const auto as = [&](const torch::Tensor& t) { return t.to(all_.dtype()); };
    torch::Tensor sum = (out.policy * as(slopes.policy)).sum() +
                        (out.value * as(slopes.value)).sum();
    if (shape_.continuous) sum = sum + (p_[0] * as(slopes.log_std)).sum();
    sum.backward();
    return all_.grad();
  }

 private:
  torch::Tensor Head(size_t at, const torch::Tensor& x) const {
    return torch::linear(x, p_[at], p_[at + 1]);
  }
  torch::Tensor Hidden(size_t at, int64_t unit, torch::Tensor x) const {
    for (size_t i = 0; i < shape_.hidden.size(); ++i) {
      x = Head(at + 2 * i, x);
      x = shape_.activation == Activation::kTanh ? x.tanh()
          : kept_.defined() ? x * (kept_.narrow(1, unit, x.size(1)) > 0)
                            : x.relu();
      unit += x.size(1);
    }
    return x;
  }

  const MlpShape shape_;
  const torch::Tensor all_, kept_;
  std::vector<torch::Tensor> p_;  // ParameterLayout's
};

// To 1e-5 of the larger of 1 and the number.
void ExpectClose(const torch::Tensor& got, const torch::Tensor& want,
                 const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  if (got.numel() == 0) return;
  const torch::Tensor w = want.detach().to(torch::kFloat64);
  const torch::Tensor off =
      (got.to(torch::kFloat64) - w).abs() / w.abs().clamp_min(1);
  EXPECT_LT(off.max().item<double>(), 1e-5) << what;
}

// To 1e-5 of the largest of each weight's or bias's, or of 1, as large as the terms are
// that are summed: what cancels among rows is lost to rounding.
void ExpectGradient(const MlpShape& shape, const torch::Tensor& got,
                    const torch::Tensor& want) {
  ASSERT_EQ(got.sizes(), want.sizes());
  for (const ParameterBlock& block : ParameterLayout(shape)) {
    const auto of = [&](const torch::Tensor& t) {
      return t.narrow(0, block.offset, block.size()).to(torch::kFloat64);
    };
    const double scale = std::max(1.0, of(want).abs().max().item<double>());
    EXPECT_LE((of(got) - of(want)).abs().max().item<double>(), 1e-5 * scale)
        << block.name;
  }
}

bool Same(const MlpOutputs& a, const MlpOutputs& b) {
  return torch::equal(a.policy, b.policy) && torch::equal(a.value, b.value);
}

class MlpPolicyTest : public testing::TestWithParam<Case> {
 protected:
  MlpPolicyTest() : parameters_(Make()) {}
  torch::Tensor Seen(int64_t R) const {
    return torch::randn({R, shape_.observations});
  }
  MlpOutputs Forward(const torch::Tensor& seen, bool keep = false) const {
    return MlpForwardOperator(shape_, parameters_, seen, keep);
  }
  torch::Tensor Backward(const torch::Tensor& seen,
                         const MlpSlopes& slopes) const {
    const torch::Tensor gradient = torch::zeros_like(parameters_);
    MlpBackwardOperator(shape_, parameters_, seen, Forward(seen, true).kept,
                        slopes, gradient);
    return gradient;
  }

  const MlpShape& shape_ = GetParam().shape;
  const torch::Tensor parameters_;

 private:
  torch::Tensor Make() const {
    torch::manual_seed(8);
    return Parameters(GetParam().shape);
  }
};

TEST_P(MlpPolicyTest, IsTheDefinition) {
  ASSERT_TRUE(MlpOperatorsTake(shape_));
  const InDoubles want(shape_, parameters_);
  for (const int64_t R : {1, 7, 256, 1000}) {
    const torch::Tensor seen = Seen(R);
    const MlpOutputs got = Forward(seen);
    EXPECT_EQ(got.value.sizes(), at::IntArrayRef({R}));
    // All of few, some of many.
    std::vector<int64_t> rows = {R - 1};
    for (int64_t r = 0; r + 1 < R; r += R > 7 ? 37 : 1) rows.push_back(r);
    for (const int64_t r : rows) {
      const InDoubles::Output one = want.Forward(seen[r]);
      ExpectClose(got.policy[r], torch::tensor(one.policy, torch::kFloat64),
                  absl::StrCat("the policy of row ", r, " of ", R));
      ExpectClose(got.value.narrow(0, r, 1),
                  torch::tensor(one.value, torch::kFloat64),
                  absl::StrCat("the value of row ", r, " of ", R));
    }
  }
}

TEST_P(MlpPolicyTest, IsTorchs) {
  for (const int64_t R : {1, 7, 16, 17, 256, 1000}) {
    const torch::Tensor seen = Seen(R);
    const MlpOutputs got = Forward(seen);
    const MlpOutputs want = Twin(shape_, parameters_).Forward(seen);
    ExpectClose(got.policy, want.policy, absl::StrCat("policy of ", R));
    ExpectClose(got.value, want.value, absl::StrCat("value of ", R));
    EXPECT_FALSE(got.policy.requires_grad());
    EXPECT_EQ(got.kept.numel(), 0);
  }
}

// What a row gives depends on that row alone: not on how many there are.
TEST_P(MlpPolicyTest, RowsAreApart) {
  const torch::Tensor seen = Seen(40);
  const MlpOutputs all = Forward(seen);
  EXPECT_TRUE(Same(Forward(seen, /*keep=*/true), all));
  for (const int64_t R : {1, 5, 16}) {
    const MlpOutputs some = Forward(seen.narrow(0, 19, R).contiguous());
    EXPECT_TRUE(Same(
        some, {all.policy.narrow(0, 19, R), all.value.narrow(0, 19, R), {}}));
  }
  EXPECT_EQ(Forward(Seen(0)).policy.sizes(),
            at::IntArrayRef({0, shape_.actions}));

  const torch::Tensor bad = seen.clone();
  bad[21][shape_.observations / 2] = std::numeric_limits<float>::quiet_NaN();
  const MlpOutputs got = Forward(bad);
  EXPECT_TRUE(got.policy[21].isnan().all().item<bool>());
  EXPECT_TRUE(got.value[21].isnan().item<bool>());
  for (const MlpOutputs* out : {&got, &all}) {
    out->policy[21].zero_();
    out->value[21].zero_();
  }
  EXPECT_TRUE(Same(got, all));
}

TEST_P(MlpPolicyTest, TheGradientIsTheDefinition) {
  for (const int64_t R : {1, 7, 40}) {
    const torch::Tensor seen = Seen(R);
    const MlpSlopes slopes = RandomSlopes(shape_, R);
    InDoubles want(shape_, parameters_);
    for (int64_t r = 0; r < R; ++r) {
      want.Backward(seen[r], slopes.policy[r], slopes.value.narrow(0, r, 1),
                    shape_.continuous ? slopes.log_std[r] : torch::Tensor());
    }
    ExpectGradient(shape_, Backward(seen, slopes),
                   torch::tensor(want.gradient, torch::kFloat64));
  }
}

TEST_P(MlpPolicyTest, TheGradientIsAutograds) {
  for (const int64_t R : {16, 65, 256, 1000, 4100}) {
    SCOPED_TRACE(R);
    const torch::Tensor seen = Seen(R);
    const MlpSlopes slopes = RandomSlopes(shape_, R);
    const torch::Tensor want = Twin(shape_, parameters_.to(torch::kFloat64),
                                    Forward(seen, /*keep=*/true).kept)
                                   .Gradient(seen.to(torch::kFloat64), slopes);
    const torch::Tensor got = Backward(seen, slopes);
    ExpectGradient(shape_, got, want);
    EXPECT_TRUE(torch::equal(Backward(seen, slopes), got));
  }
}

TEST_P(MlpPolicyTest, TheGradientIsAddedToWhatIsThere) {
  const torch::Tensor seen = Seen(70);
  const MlpSlopes slopes = RandomSlopes(shape_, 70);
  const torch::Tensor there = torch::randn_like(parameters_);
  const torch::Tensor sum = there.clone();
  const torch::Tensor kept = Forward(seen, true).kept;
  MlpBackwardOperator(shape_, parameters_, seen, kept, slopes, sum);
  EXPECT_TRUE(torch::equal(sum, there + Backward(seen, slopes)));
  // Of nothing there is none.
  MlpSlopes none = slopes;
  for (torch::Tensor* t : {&none.policy, &none.value, &none.log_std}) {
    if (t->defined()) *t = t->narrow(0, 0, 0);
  }
  const torch::Tensor before = sum.clone();
  MlpBackwardOperator(shape_, parameters_, Seen(0), kept.narrow(0, 0, 0), none,
                      sum);
  EXPECT_TRUE(torch::equal(sum, before));
}

constexpr Activation kTanh = Activation::kTanh, kRelu = Activation::kRelu;

INSTANTIATE_TEST_SUITE_P(
    Shapes, MlpPolicyTest,
    testing::Values(
        Case{"CartPole", Shape(4, {64, 64}, kTanh, false, 2, false)},
        Case{"CartPoleShared", Shape(4, {64, 64}, kRelu, true, 2, false)},
        Case{"Least", Shape(1, {1}, kTanh, false, 1, false)},
        Case{"OneNumber", Shape(1, {32}, kRelu, false, 3, true)},
        Case{"OddShared", Shape(11, {33, 17}, kTanh, true, 3, true)},
        Case{"Humanoid", Shape(376, {256, 256}, kTanh, false, 17, true)},
        Case{"HumanoidShared", Shape(376, {256, 128}, kRelu, true, 17, true)},
        Case{"Uneven", Shape(150, {100, 256, 129}, kRelu, false, 18, false)},
        Case{"ThroughOne", Shape(27, {5, 1, 130}, kTanh, true, 256, false)},
        Case{"Deep", Shape(65, {24, 40, 24, 40, 24, 40, 24, 40}, kTanh, false,
                           65, false)}),
    [](const auto& info) { return info.param.name; });

TEST(MlpOperatorsTest, TanhIsTorchs) {
  const MlpShape one = Shape(1, {1}, kTanh, true, 1, false);
  // Weights of 1 and biases of 0: the value is the hidden unit.
  const torch::Tensor parameters =
      torch::tensor({1.f, 0.f, 0.f, 0.f, 1.f, 0.f});
  const torch::Tensor x = torch::cat(
      {torch::linspace(-12, 12, 20001), torch::linspace(-1e-3, 1e-3, 2001)});
  const torch::Tensor got =
      MlpForwardOperator(one, parameters, x.unsqueeze(1)).value;
  EXPECT_LT((got - x.tanh()).abs().max().item<double>(), 1e-6);
}

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "none";
}

TEST(MlpOperatorsTest, NamesWhatDoesNotFit) {
  const MlpShape shape = Shape(4, {8}, kTanh, false, 2, true);
  const torch::Tensor parameters = Parameters(shape),
                      seen = torch::randn({3, 4});
  const auto forward = [&](const torch::Tensor& p, const torch::Tensor& s) {
    return Refusal([&] { MlpForwardOperator(shape, p, s); });
  };
  EXPECT_EQ(forward(parameters, seen), "none");
  EXPECT_THAT(forward(parameters.narrow(0, 1, 100), seen),
              HasSubstr(std::string("parameters is Float [100] by [1] on ") +
                        KernelsDevice() + ", want 109 numbers"));
  EXPECT_THAT(forward(parameters, seen.to(torch::kFloat64)),
              HasSubstr("observation is Double [3, 4]"));
  EXPECT_THAT(forward(parameters, torch::randn({4, 3}).t()),
              HasSubstr("observation is Float [3, 4] by [1, 3]"));
  EXPECT_THAT(forward(parameters, torch::randn({3, 5})),
              HasSubstr("parameters is Float [109]"));
  EXPECT_THAT(forward(parameters, torch::randn({12})),
              HasSubstr("observation is [12], want [R, D]"));

  const torch::Tensor kept =
      MlpForwardOperator(shape, parameters, seen, /*keep=*/true).kept;
  const auto backward = [&](const torch::Tensor& k, const MlpSlopes& slopes,
                            const torch::Tensor& gradient) {
    return Refusal([&] {
      MlpBackwardOperator(shape, parameters, seen, k, slopes, gradient);
    });
  };
  const MlpSlopes slopes = RandomSlopes(shape, 3);
  const torch::Tensor gradient = torch::zeros_like(parameters);
  EXPECT_EQ(backward(kept, slopes, gradient), "none");
  EXPECT_THAT(backward(kept.narrow(0, 0, 2), slopes, gradient),
              HasSubstr("kept is Float [2, 16]"));
  EXPECT_THAT(backward(kept, RandomSlopes(shape, 2), gradient),
              HasSubstr("policy_slope is Float [2, 2]"));
  EXPECT_THAT(backward(kept, {slopes.policy, slopes.value, {}}, gradient),
              HasSubstr("2 deviations want a log_std_slope"));
  EXPECT_THAT(backward(kept, slopes, gradient.narrow(0, 0, 5)),
              HasSubstr("gradient is Float [5]"));
}

TEST(MlpOperatorsTest, WhatIsTooWideOrTooDeepIsTorchs) {
  const auto takes = [](const MlpShape& shape) {
    const bool may = MlpOperatorsTake(shape);
    const torch::Tensor parameters = torch::zeros({ParameterCount(shape)});
    const std::string refusal = Refusal([&] {
      MlpForwardOperator(shape, parameters,
                         torch::zeros({1, shape.observations}));
    });
    EXPECT_EQ(may, refusal == "none") << refusal;
    return may;
  };
  EXPECT_TRUE(takes(Shape(2000, {256}, kTanh, false, 256, false)));
  EXPECT_FALSE(takes(Shape(4, {257}, kTanh, false, 2, false)));
  EXPECT_FALSE(takes(Shape(4, {64}, kTanh, false, 257, false)));
  EXPECT_TRUE(takes(Shape(4, std::vector<int>(8, 3), kTanh, true, 2, false)));
  EXPECT_FALSE(takes(Shape(4, std::vector<int>(9, 3), kTanh, true, 2, false)));
  MlpShape q = Shape(4, {64}, kRelu, false, 2, false);
  q.output = MlpOutput::kQ;
  EXPECT_FALSE(MlpOperatorsTake(q));
}

}  // namespace
}  // namespace flotilla
