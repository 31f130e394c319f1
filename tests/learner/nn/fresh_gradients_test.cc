#include "learner/nn/fresh_gradients.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <cmath>
#include <memory>
#include <stdexcept>

#include "gtest/gtest.h"
#include "learner/nn/linear.h"

namespace flotilla {
namespace {

using torch::Tensor;

// More weights than a library is left with.
constexpr int64_t kIn = 3280, kOut = 80;

// A small weight, then two large ones, a kernel's and anybody's, then a small one.
class FreshGradientsTest : public testing::Test {
 protected:
  FreshGradientsTest() {
    torch::manual_seed(7);
    torch::NoGradGuard no_grad;
    net_.parameters.copy_(torch::randn({net_.size()}) * 0.1);
    // What an earlier step left must not be seen.
    net_.gradients.fill_(std::nanf(""));
  }

  static int64_t Size() { return 48 + 2 * kIn * kOut + kOut; }

  Tensor ByKernel(const Tensor& weight) const {
    return LinearByKernel(x_, weight, bias_, /*relu=*/false);
  }

  // What backward passes make of gradients that begin at zero.
  template <typename Loss>
  Tensor FromZero(const Loss& loss, int passes) {
    net_.gradients.zero_();
    for (int i = 0; i < passes; ++i) loss().backward();
    return net_.gradients.clone();
  }

  template <typename Loss>
  void ExpectSame(const Loss& loss, int passes = 1) {
    const Tensor want = FromZero(loss, passes);
    net_.gradients.fill_(std::nanf(""));
    {
      const FreshGradients fresh(net_);
      for (int i = 0; i < passes; ++i) {
        if (i > 0) fresh.Settle();
        loss().backward();
      }
    }
    EXPECT_TRUE(torch::equal(net_.gradients, want))
        << (net_.gradients - want).abs().max();
    ExpectInPlace(net_);
  }

  static void ExpectInPlace(const FlatParameters& net) {
    int64_t at = 0;
    for (const Tensor& leaf : net.leaf) {
      EXPECT_EQ(leaf.grad().sizes(), leaf.sizes());
      EXPECT_TRUE(leaf.grad().is_alias_of(net.gradients));
      EXPECT_EQ(leaf.grad().storage_offset(), at);
      at += leaf.numel();
    }
  }

  FlatParameters net_{Size(), torch::kCPU};
  const Tensor first_ = net_.Take("first", {48});
  const Tensor large_ = net_.Take("large", {kOut, kIn});
  const Tensor other_ = net_.Take("other", {kOut, kIn});
  const Tensor bias_ = net_.Take("bias", {kOut});
  const Tensor x_ = torch::randn({11, kIn});
};

TEST_F(FreshGradientsTest, AreThoseFromZero) {
  ASSERT_TRUE(IsLinearByKernel(large_, torch::kFloat32));
  const auto loss = [&] {
    return ByKernel(large_).sum() + torch::linear(x_, other_).square().sum() +
           first_.sum();
  };
  for (const int passes : {1, 3}) ExpectSame(loss, passes);
}

TEST_F(FreshGradientsTest, OfWhatNothingDependsOnAreZero) {
  ExpectSame([&] { return first_.sum(); });
  EXPECT_EQ(other_.grad().abs().max().item<float>(), 0);
}

TEST_F(FreshGradientsTest, OfAWeightThatIsUsedTwiceAreTheSum) {
  ExpectSame([&] { return (ByKernel(large_) * ByKernel(large_)).sum(); });
  ExpectSame([&] {
    return (ByKernel(large_) * torch::linear(x_, large_)).sum() +
           ByKernel(other_).sum();
  });
}

TEST_F(FreshGradientsTest, AreWrittenInTheirPlace) {
  const FreshGradients fresh(net_);
  EXPECT_FALSE(large_.grad().defined());
  ByKernel(large_).sum().backward();
  EXPECT_TRUE(large_.grad().is_alias_of(net_.gradients));
  EXPECT_FALSE(other_.grad().defined());
}

TEST_F(FreshGradientsTest, WhoAsksForAGradientGetsItAndTheNetworkDoesNot) {
  Tensor asked;
  {
    const FreshGradients fresh(net_);
    asked = torch::autograd::grad({ByKernel(large_).sum()}, {large_})[0];
    EXPECT_FALSE(large_.grad().defined());
  }
  EXPECT_FALSE(asked.is_alias_of(net_.gradients));
  EXPECT_GT(asked.abs().max().item<float>(), 0);
  EXPECT_EQ(net_.gradients.abs().max().item<float>(), 0);
}

TEST_F(FreshGradientsTest, OfAnEmbeddingThatIsSparseAreDense) {
  const Tensor rows = torch::tensor({3, 5, 3});
  ExpectSame([&] {
    return torch::embedding(other_, rows, /*padding_idx=*/-1,
                            /*scale_grad_by_freq=*/false, /*sparse=*/true)
        .sum();
  });
  EXPECT_EQ(other_.grad().sum().item<float>(), 3 * kIn);
}

// What autograd gives the weights is one tensor, seen twice.
TEST_F(FreshGradientsTest, OfWeightsThatShareOneAreTheirOwn) {
  const auto loss = [&] {
    return (large_.flatten() + other_.flatten()).square().sum();
  };
  for (const int passes : {1, 3}) ExpectSame(loss, passes);
}

// It is listed twice then, and is where it is listed last.
TEST_F(FreshGradientsTest, OfAWeightOfTwoModulesAreInItsPlace) {
  const Tensor tied = torch::randn({kOut, kIn});
  const FlatParameters net =
      FlatParameters::Adopt({{"one", tied}, {"other", tied}});
  net.gradients.fill_(std::nanf(""));
  for (int i = 0; i < 2; ++i) {
    const FreshGradients fresh(net);
    ByKernel(tied).sum().backward();
  }
  const Tensor halves = net.gradients.view({2, kOut, kIn});
  EXPECT_EQ(halves[0].abs().max().item<float>(), 0);
  EXPECT_TRUE(
      torch::allclose(halves[1], x_.sum(0).expand({kOut, kIn}), 1e-4, 1e-3));
  EXPECT_TRUE(tied.grad().is_alias_of(net.gradients));
}

// GradientBuckets sums what is in its place then.
TEST_F(FreshGradientsTest, AreInTheirPlaceForWhoeverWatches) {
  int seen = 0;
  std::vector<std::shared_ptr<torch::autograd::Node>> nodes;
  for (const Tensor& leaf : {large_, other_}) {
    nodes.push_back(torch::autograd::impl::grad_accumulator(leaf));
    nodes.back()->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [&, leaf](const auto& outputs, const auto&) {
              EXPECT_TRUE(leaf.grad().is_alias_of(net_.gradients));
              EXPECT_GT(leaf.grad().abs().max().template item<float>(), 0);
              ++seen;
              return outputs;
            }));
  }
  const FreshGradients fresh(net_);
  (ByKernel(large_) + torch::linear(x_, other_)).sum().backward();
  EXPECT_EQ(seen, 2);
}

TEST_F(FreshGradientsTest, AnExceptionLeavesThemInTheirPlace) {
  try {
    const FreshGradients fresh(net_);
    ByKernel(large_).sum().backward();
    throw std::runtime_error("a loss that cannot be");
  } catch (const std::runtime_error&) {
  }
  ExpectInPlace(net_);
  EXPECT_TRUE(torch::isfinite(net_.gradients).all().item<bool>());
}

}  // namespace
}  // namespace flotilla
