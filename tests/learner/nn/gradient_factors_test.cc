#include "learner/nn/gradient_factors.h"

#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include "gtest/gtest.h"
#include "learner/device/host.h"
#include "learner/nn/convolution.h"
#include "learner/nn/fresh_gradients.h"
#include "learner/nn/linear.h"
#include "learner/nn/q_network.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

using torch::Tensor;

// Neither in parts of one width, nor out in blocks of one height.
constexpr int64_t kIn = 2 * 1024 + 272, kOut = 128 + 16, kRows = 5;
constexpr size_t kLeaf = 1;

class GradientFactorsTest : public testing::TestWithParam<torch::Dtype> {
 protected:
  GradientFactorsTest() {
    torch::manual_seed(11);
    torch::NoGradGuard no_grad;
    net_.parameters.copy_(torch::randn({net_.size()}) * 0.1);
    net_.gradients.fill_(std::nanf(""));
    at::set_num_threads(2);
  }
  ~GradientFactorsTest() override { at::set_num_threads(1); }

  void SetUp() override {
    if (!IsLinearByKernel(large_, GetParam())) {
      GTEST_SKIP() << "no kernel of this machine's multiplies these";
    }
  }

  GradientFactors Factors() const { return {net_, kLeaf, GetParam(), kRows}; }
  Tensor Rows() const {
    return torch::randn({kRows, kIn}).to(GetParam()).set_requires_grad(true);
  }
  Tensor Loss(const Tensor& x, const Tensor& wanted) const {
    const Tensor y = LinearByKernel(x, large_, bias_, /*relu=*/true);
    return (y * wanted).sum() + first_.sum();
  }

  // What ForProduct has, after whatever else is there; each number once.
  Tensor Product(const GradientFactors& factors) const {
    const Tensor all = torch::zeros({net_.size()});
    const Tensor times = torch::zeros({net_.size()});
    std::mutex mu;
    factors.ForProduct([&](int64_t first, int64_t count, const float* some) {
      const std::lock_guard lock(mu);
      for (int64_t i = 0; i < count; ++i) {
        Host<float>(all)[first + i] = some[i];
        Host<float>(times)[first + i] += 1;
      }
    });
    const Tensor expected = torch::zeros({net_.size()});
    expected.narrow(0, factors.first(), factors.size()).fill_(1);
    EXPECT_TRUE(torch::equal(times, expected));
    return all.narrow(0, factors.first(), factors.size()).view({kOut, kIn});
  }

  FlatParameters net_{48 + kOut * kIn + kOut, torch::kCPU};
  const Tensor first_ = net_.Take("first", {48});
  const Tensor large_ = net_.Take("large", {kOut, kIn});
  const Tensor bias_ = net_.Take("bias", {kOut});
};

// One rank's, by two: the gradients that their backward passes write, added up; and all
// other gradients are where they ever are.
TEST_P(GradientFactorsTest, AreTheGradientOfAllRanksRows) {
  GradientFactors factors = Factors();
  EXPECT_EQ(factors.first(), 48);
  const Tensor x[] = {Rows(), Rows()};
  const Tensor wanted[] = {torch::randn({kRows, kOut}),
                           torch::randn({kRows, kOut})};
  Tensor want = torch::zeros({kOut, kIn}), to_x[2], all;
  for (int rank = 0; rank < 2; ++rank) {
    {
      const FreshGradients fresh(net_);
      Loss(x[rank], wanted[rank]).backward();
    }
    want += large_.grad();
    to_x[rank] = x[rank].grad().clone();
    x[rank].mutable_grad() = Tensor();
    all = net_.gradients.clone();
  }

  std::vector<Tensor> rows, from_y;
  for (int rank = 0; rank < 2; ++rank) {
    factors.Begin(rank, 2);
    {
      const FreshGradients fresh(net_, &factors);
      Loss(x[rank], wanted[rank]).backward();
    }
    EXPECT_TRUE(torch::equal(x[rank].grad(), to_x[rank]));
    EXPECT_TRUE(large_.grad().is_alias_of(net_.gradients));
    rows.push_back(factors.x(rank).clone());
    from_y.push_back(factors.from_y(rank).clone());
  }
  const int64_t end = 48 + kOut * kIn;
  EXPECT_TRUE(
      torch::equal(net_.gradients.narrow(0, 0, 48), all.narrow(0, 0, 48)));
  EXPECT_TRUE(torch::equal(net_.gradients.narrow(0, end, kOut),
                           all.narrow(0, end, kOut)));

  // As another rank brings them.
  factors.x(0).copy_(rows[0]);
  factors.from_y(0).copy_(from_y[0]);
  EXPECT_LT((Product(factors) - want).abs().max().item<double>(), 1e-4);
  const double squares = want.to(torch::kFloat64).square().sum().item<double>();
  EXPECT_NEAR(factors.SumOfSquares(), squares, 1e-4 * squares);
}

TEST_P(GradientFactorsTest, OfWhoHasNoRowsAreZero) {
  GradientFactors factors = Factors();
  for (const int ranks : {2, 1, 3}) {  // they come and go
    for (int rank = 0; rank < ranks; ++rank) factors.Begin(rank, ranks);
    EXPECT_EQ(factors.SumOfSquares(), 0);
    EXPECT_EQ(Product(factors).abs().max().item<double>(), 0);
  }
}

TEST_P(GradientFactorsTest, SquaresAreNeverNegativeAndANanIsSeen) {
  GradientFactors factors = Factors();
  factors.Begin(0, 1);
  // Rows that are nearly one, and cancel.
  const Tensor x =
      (torch::randn({1, kIn}) * 100).expand({kRows, kIn}).to(GetParam());
  Tensor from_y = torch::randn({kRows, kOut});
  from_y = (from_y - from_y.mean(0, /*keepdim=*/true)).to(GetParam());
  factors.Set(x, from_y);
  const double size = x.to(torch::kFloat32).norm().item<double>() *
                      from_y.to(torch::kFloat32).norm().item<double>();
  EXPECT_GE(factors.SumOfSquares(), 0);
  EXPECT_LT(std::sqrt(factors.SumOfSquares()), 0.02 * size);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    from_y[3][7] = bad;
    factors.Set(x, from_y);
    EXPECT_FALSE(std::isfinite(factors.SumOfSquares()));
  }
}

TEST_P(GradientFactorsTest, PayWhileRowsAreFew) {
  EXPECT_TRUE(Factors().Pays(1));
  EXPECT_TRUE(Factors().Pays(2));
  EXPECT_FALSE(Factors().Pays(30));
  // They are more than a gradient that is not so large.
  FlatParameters small(4112 * 64, torch::kCPU);
  small.Take("weight", {64, 4112});
  EXPECT_TRUE(GradientFactors(small, 0, GetParam(), 8).Pays(1));
  EXPECT_FALSE(GradientFactors(small, 0, GetParam(), 40).Pays(1));
}

using GradientFactorsDeathTest = GradientFactorsTest;

TEST_P(GradientFactorsDeathTest, AWeightThatIsUsedTwiceIsRefused) {
  const auto twice = [&] {
    GradientFactors factors = Factors();
    factors.Begin(0, 1);
    const FreshGradients fresh(net_, &factors);
    const Tensor x = Rows(), wanted = torch::randn({kRows, kOut});
    (Loss(x, wanted) + Loss(x, wanted)).backward();
  };
  at::set_num_threads(1);
  EXPECT_DEATH(twice(), "used twice");
}

INSTANTIATE_TEST_SUITE_P(Dtype, GradientFactorsTest,
                         testing::Values(torch::kFloat32, torch::kBFloat16),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param));
                         });
INSTANTIATE_TEST_SUITE_P(Dtype, GradientFactorsDeathTest,
                         testing::Values(torch::kFloat32),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param));
                         });

TEST(LargestWeightTest, IsTheOneBehindConvolutions) {
  const auto of = [](const Spaces& spaces, int hidden, bool bf16) {
    v1::ModelConfig config;
    config.add_hidden(hidden);
    config.set_activation(v1::RELU);
    QNetwork net =
        QNetwork::Make(spaces, config, /*dueling=*/true, torch::kCPU).value();
    net.set_bf16(bf16);
    const auto largest = net.LargestWeight();
    if (!largest.has_value()) return std::string();
    EXPECT_EQ(largest->dtype, bf16 ? torch::kBFloat16 : torch::kFloat32);
    return net.Named()[largest->leaf].name;
  };
  EXPECT_EQ(of(AtariSpaces(6), 512, false), "encoder.7.weight");
  EXPECT_EQ(of(AtariSpaces(6), 512, true),
            KernelsMultiplyBfloat16() ? "encoder.7.weight" : "");
  EXPECT_EQ(of(AtariSpaces(6), 24, false), "");  // no kernel takes it
  EXPECT_EQ(of(VectorSpaces(4, 2), 1024, false), "");
}

}  // namespace
}  // namespace flotilla
