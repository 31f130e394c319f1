#include "learner/nn/linear.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <memory>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "learner/nn/convolution.h"
#include "learner/nn/layers.h"

namespace flotilla {
namespace {

using torch::Tensor;

// Numbers that bfloat16 holds.
Tensor Drawn(torch::IntArrayRef sizes, double scale = 1) {
  return (torch::randn(sizes) * scale).to(torch::kBFloat16).to(torch::kFloat32);
}

class LinearTest : public testing::TestWithParam<torch::Dtype> {
 protected:
  void SetUp() override {
    if (dtype() == torch::kBFloat16 && !KernelsMultiplyBfloat16()) {
      GTEST_SKIP() << "this CPU multiplies bfloat16 by the library";
    }
    torch::manual_seed(5);
  }
  ~LinearTest() override { at::set_num_threads(1); }

  static torch::Dtype dtype() { return GetParam(); }
  static double rounding() {
    return dtype() == torch::kBFloat16 ? 1.0 / 256 : 1e-4;
  }
};

TEST_P(LinearTest, IsTorchsWithItsGradients) {
  constexpr int64_t kIn = 3280, kOut = 80;
  const Tensor from_y = Drawn({11, kOut});
  for (const int threads : {1, 3, 9}) {
    at::set_num_threads(threads);
    for (const bool relu : {false, true}) {
      const Tensor x = Drawn({11, kIn}), weight = Drawn({kOut, kIn}, 0.1);
      const Tensor bias = torch::randn({kOut});
      const auto leaf = [](const Tensor& of, torch::Dtype type) {
        return of.detach().clone().to(type).requires_grad_();
      };
      const Tensor our_x = leaf(x, dtype());
      const Tensor our_weight = leaf(weight, torch::kFloat32);
      const Tensor our_bias = leaf(bias, torch::kFloat32);
      ASSERT_TRUE(IsLinearByKernel(our_weight, dtype()));
      const Tensor y = LinearByKernel(our_x, our_weight, our_bias, relu);
      EXPECT_EQ(y.scalar_type(), torch::kFloat32);
      y.backward(from_y);

      const Tensor its_x = leaf(x, torch::kFloat64);
      const Tensor its_weight = leaf(weight, torch::kFloat64);
      const Tensor its_bias = leaf(bias, torch::kFloat64);
      Tensor want = torch::linear(its_x, its_weight, its_bias);
      if (relu) want = torch::relu(want);
      want.backward(from_y.to(torch::kFloat64));

      const auto expect_equal = [](const Tensor& a, const Tensor& b,
                                   double relative) {
        EXPECT_TRUE(torch::allclose(a.to(torch::kFloat64), b, relative, 1e-4))
            << (a - b).abs().max();
      };
      expect_equal(y, want, 1e-4);
      expect_equal(our_weight.grad(), its_weight.grad(), 1e-4);
      expect_equal(our_bias.grad(), its_bias.grad(), 1e-4);
      expect_equal(our_x.grad(), its_x.grad(), rounding());
      torch::NoGradGuard no_grad;
      EXPECT_TRUE(
          torch::equal(LinearByKernel(our_x, our_weight, our_bias, relu), y));
      EXPECT_TRUE(torch::equal(
          LinearByPacked(our_x, PackLinearWeight(our_weight, dtype()), our_bias,
                         relu),
          y));
    }
  }
}

// As if zeros came back to the others, whatever does.
TEST_P(LinearTest, LearnsFromTheFirstRowsAlone) {
  constexpr int64_t kIn = 3280, kOut = 80, kLearned = 5;
  const Tensor from_y = Drawn({11, kOut});
  const Tensor x = Drawn({11, kIn}), weight = Drawn({kOut, kIn}, 0.1);
  const Tensor bias = torch::randn({kOut});
  const auto run = [&](const Tensor& back, int64_t learned) {
    std::vector<Tensor> leaves = {x.to(dtype()), weight.clone(), bias.clone()};
    for (Tensor& leaf : leaves) leaf.requires_grad_();
    const Tensor y = LinearByKernel(leaves[0], leaves[1], leaves[2],
                                    /*relu=*/true, learned);
    y.backward(back);
    return std::vector<Tensor>{y, leaves[0].grad(), leaves[1].grad(),
                               leaves[2].grad()};
  };
  Tensor zeros = from_y.clone();
  zeros.narrow(0, kLearned, 11 - kLearned).zero_();
  const auto want = run(zeros, kAllRows), got = run(from_y, kLearned);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(torch::equal(got[i], want[i])) << i;
  }
}

TEST_P(LinearTest, WhatIsNotLearnedFromIsFreed) {
  const Tensor weight = Drawn({80, 3280}, 0.1).requires_grad_();
  for (const int64_t learned : {kAllRows, int64_t{5}}) {
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;
    {
      const Tensor x = Drawn({11, 3280}).to(dtype()).requires_grad_();
      const Tensor y =
          LinearByKernel(x, weight, torch::zeros({80}), /*relu=*/true, learned);
      storage.emplace(y.storage().getWeakStorageImpl());
    }
    EXPECT_TRUE(storage->expired());
  }
}

// Without a tensor of its own, unless somebody wants to see that.
TEST_P(LinearTest, GradientOfWeightIsAddedToTheOneThatIsThere) {
  constexpr int64_t kIn = 3280, kOut = 80;
  const Tensor x = Drawn({11, kIn}).to(dtype());
  const Tensor weight = Drawn({kOut, kIn}, 0.1).requires_grad_();
  const Tensor bias = torch::zeros({kOut});
  const auto sum = [&] {
    return LinearByKernel(x, weight, bias, /*relu=*/false).sum();
  };
  const Tensor once = torch::autograd::grad({sum()}, {weight})[0];
  EXPECT_FALSE(weight.grad().defined());
  const Tensor gradient = torch::ones_like(weight);
  weight.mutable_grad() = gradient;
  int accumulated = 0, given = 0;
  const auto node = torch::autograd::impl::grad_accumulator(weight);
  node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [&](const auto& outputs, const auto& inputs) {
        ++accumulated;
        if (inputs[0].defined()) ++given;
        return outputs;
      }));
  sum().backward();
  sum().backward();
  EXPECT_TRUE(torch::allclose(gradient, 1 + 2 * once, 1e-4, 1e-4));
  EXPECT_TRUE(weight.grad().is_same(gradient));
  EXPECT_EQ(accumulated, 2);
  EXPECT_EQ(given, 0);
  const Tensor before = gradient.clone();
  EXPECT_TRUE(torch::equal(torch::autograd::grad({sum()}, {weight})[0], once));
  EXPECT_TRUE(torch::equal(gradient, before));
  Tensor seen;
  weight.register_hook([&](const Tensor& g) { seen = g.clone(); });
  sum().backward();
  ASSERT_TRUE(seen.defined());
  EXPECT_TRUE(torch::equal(seen, once));
  EXPECT_EQ(given, 1);
  EXPECT_TRUE(torch::allclose(gradient, before + once, 1e-4, 1e-4));
}

TEST_P(LinearTest, LeavesToTorchWhatItsKernelsDoNotFit) {
  EXPECT_TRUE(IsLinearByKernel(torch::zeros({512, 528}), dtype()));
  EXPECT_FALSE(IsLinearByKernel(torch::zeros({518, 528}), dtype()));
  EXPECT_FALSE(IsLinearByKernel(torch::zeros({512, 536}), dtype()));
  EXPECT_FALSE(IsLinearByKernel(torch::zeros({512, 528, 1, 1}), dtype()));
  EXPECT_FALSE(
      IsLinearByKernel(torch::zeros({512, 528}, torch::kFloat64), dtype()));
  EXPECT_FALSE(IsLinearByKernel(torch::zeros({512, 528}), torch::kFloat64));
}

TEST(SmallLinearTest, IsLeftToTorchInFloat32) {
  EXPECT_EQ(IsLinearByKernel(torch::zeros({16, 32}), torch::kBFloat16),
            KernelsMultiplyBfloat16());
  EXPECT_FALSE(IsLinearByKernel(torch::zeros({512, 512}), torch::kFloat32));
}

INSTANTIATE_TEST_SUITE_P(Dtype, LinearTest,
                         testing::Values(torch::kFloat32, torch::kBFloat16));

}  // namespace
}  // namespace flotilla
