#include "learner/nn/gradient_factors.h"

#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
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

// The sum of the gradients that all ranks' backward passes write; and all other gradients
// are where they ever are.
TEST_P(GradientFactorsTest, AreTheGradientOfAllRanksRows) {
  for (const int ranks : {1, 2, 3}) {  // an odd number of rows, and an even one
    GradientFactors factors = Factors();
    EXPECT_EQ(factors.first(), 48);
    Tensor sum = torch::zeros({kOut, kIn});
    std::vector<Tensor> rows, from_y;
    for (int rank = 0; rank < ranks; ++rank) {
      const Tensor x = Rows(), wanted = torch::randn({kRows, kOut});
      {
        const FreshGradients fresh(net_);
        Loss(x, wanted).backward();
      }
      sum += large_.grad();
      const Tensor want = net_.gradients.clone(), to_x = x.grad().clone();
      x.mutable_grad() = Tensor();
      factors.Begin(rank, ranks);
      {
        const FreshGradients fresh(net_, &factors);
        Loss(x, wanted).backward();
      }
      EXPECT_TRUE(torch::equal(x.grad(), to_x));
      EXPECT_TRUE(large_.grad().is_alias_of(net_.gradients));
      const int64_t end = 48 + kOut * kIn;
      for (const auto& [first, count] :
           {std::pair(int64_t{0}, int64_t{48}), std::pair(end, kOut)}) {
        EXPECT_TRUE(torch::equal(net_.gradients.narrow(0, first, count),
                                 want.narrow(0, first, count)));
      }
      rows.push_back(factors.x(rank).clone());
      from_y.push_back(factors.from_y(rank).clone());
    }
    for (int rank = 0; rank < ranks; ++rank) {  // as another rank brings them
      factors.x(rank).copy_(rows[rank]);
      factors.from_y(rank).copy_(from_y[rank]);
    }
    EXPECT_LT((Product(factors) - sum).abs().max().item<double>(), 1e-4);
    const double squares =
        sum.to(torch::kFloat64).square().sum().item<double>();
    EXPECT_NEAR(factors.SumOfSquares(), squares, 1e-4 * squares);
  }
}

TEST_P(GradientFactorsTest, OfWhoHasNoRowsAreZero) {
  GradientFactors factors = Factors();
  for (const int ranks : {2, 2, 1, 3}) {  // they come and go
    for (int rank = 0; rank < ranks; ++rank) {
      factors.Begin(rank, ranks);
      factors.Set(torch::ones({kRows, kIn}, GetParam()),
                  torch::ones({kRows, kOut}, GetParam()));
    }
    EXPECT_GT(factors.SumOfSquares(), 0);
    // Whatever was there before.
    factors.x(0).fill_(std::numeric_limits<float>::quiet_NaN());
    for (int rank = 0; rank < ranks; ++rank) {
      factors.Begin(rank, ranks);
      if (rank > 0) {
        factors.SetNothing();
        continue;
      }
      const FreshGradients fresh(net_, &factors);
      first_.sum().backward();  // without the weight
    }
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
  // Float32 may not hold sums of some of these rows, though all of them cancel.
  const Tensor signs = torch::tensor({1.f, 1.f, -1.f, -1.f, 0.f}).view({-1, 1});
  factors.Set(torch::full({kRows, kIn}, 3e17f).to(GetParam()),
              (torch::full({kRows, kOut}, 1.5e18f) * signs).to(GetParam()));
  EXPECT_FALSE(std::isfinite(factors.SumOfSquares()));
}

TEST_P(GradientFactorsTest, PayWhileRowsAreFew) {
  EXPECT_TRUE(Factors().Pays(1));
  EXPECT_TRUE(Factors().Pays(2));
  EXPECT_FALSE(Factors().Pays(30));
  EXPECT_TRUE(GradientFactors(net_, kLeaf, GetParam(), 16).Pays(2));
  // Few of a weight that has many more numbers, but each rank multiplies all.
  FlatParameters square(2048 * 2048, torch::kCPU);
  square.Take("weight", {2048, 2048});
  EXPECT_TRUE(GradientFactors(square, 0, GetParam(), 64).Pays(2));
  EXPECT_FALSE(GradientFactors(square, 0, torch::kFloat32, 129).Pays(1));
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

// So many rows, so wide, are multiplied by kernels.
TEST(WideFactorsTest, SquaresAreTheGradients) {
  constexpr int64_t kWide = 20'000, kRows = 16;
  torch::manual_seed(5);
  FlatParameters net(64 * kWide, torch::kCPU);
  net.Take("weight", {64, kWide});
  GradientFactors factors(net, 0, torch::kFloat32, kRows);
  factors.Begin(0, 1);
  const Tensor x = torch::rand({kRows, kWide}),
               from_y = torch::randn({kRows, 64});
  ASSERT_TRUE(IsLinearByKernel(x, torch::kFloat32));
  factors.Set(x, from_y);
  const double want =
      torch::mm(from_y.t().to(torch::kFloat64), x.to(torch::kFloat64))
          .square()
          .sum()
          .item<double>();
  EXPECT_NEAR(factors.SumOfSquares(), want, 1e-4 * want);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    x[3][17] = bad;
    factors.Set(x, from_y);
    EXPECT_FALSE(std::isfinite(factors.SumOfSquares()));
  }
}

// In bfloat16 kernels take small ones too, whose zeros are else written as others' are.
TEST(SmallFactorsTest, AreLeftAsLargeOnesAre) {
  if (!KernelsMultiplyBfloat16()) {
    GTEST_SKIP() << "no kernel of this machine's multiplies these";
  }
  FlatParameters net(64 * 256 + 64, torch::kCPU);
  const Tensor weight = net.Take("weight", {64, 256});
  const Tensor bias = net.Take("bias", {64});
  GradientFactors factors(net, 0, torch::kBFloat16, 4);
  EXPECT_TRUE(factors.Pays(1));
  factors.Begin(0, 1);
  {
    const FreshGradients fresh(net, &factors);
    LinearByKernel(torch::ones({4, 256}, torch::kBFloat16), weight, bias,
                   /*relu=*/false)
        .sum()
        .backward();
  }
  EXPECT_EQ(factors.SumOfSquares(), 64 * 256 * 4 * 4);
  EXPECT_EQ(bias.grad().sum().item<double>(), 4 * 64);
}

TEST(WidestWeightTest, IsTheOneBehindConvolutions) {
  const auto of = [](const Spaces& spaces, int hidden, bool bf16) {
    v1::ModelConfig config;
    config.add_hidden(hidden);
    config.set_activation(v1::RELU);
    QNetwork net =
        QNetwork::Make(spaces, config, /*dueling=*/true, torch::kCPU).value();
    net.set_bf16(bf16);
    const auto widest = net.WidestWeight();
    if (!widest.has_value()) return std::string();
    EXPECT_EQ(widest->dtype, bf16 ? torch::kBFloat16 : torch::kFloat32);
    return net.Named()[widest->leaf].name;
  };
  EXPECT_EQ(of(AtariSpaces(6), 512, false), "encoder.7.weight");
  EXPECT_EQ(of(AtariSpaces(6), 512, true),
            KernelsMultiplyBfloat16() ? "encoder.7.weight" : "");
  EXPECT_EQ(of(AtariSpaces(6), 24, false), "");  // no kernel takes it
  EXPECT_EQ(of(VectorSpaces(4, 2), 1024, false), "");
}

}  // namespace
}  // namespace flotilla
