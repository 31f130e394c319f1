#include "learner/nn/convolution.h"

#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace flotilla {
namespace {

using torch::Tensor;

struct Result {
  Tensor y, to_x, to_weight, to_bias;
};

// Leaves whose gradients are wanted, made anew from the same numbers.
struct Leaves {
  Leaves(const Tensor& x, const Tensor& weight, const Tensor& bias, bool images)
      : x(x.detach().clone().requires_grad_(images)),
        weight(weight.detach().clone().requires_grad_()),
        bias(bias.detach().clone().requires_grad_()) {}

  Result Finish(const Tensor& y, const Tensor& from_y) {
    y.backward(from_y.to(y.scalar_type()));
    return {y.detach(), x.grad(), weight.grad(), bias.grad()};
  }

  Tensor x, weight, bias;
};

class ConvolutionTest : public testing::Test {
 protected:
  ~ConvolutionTest() override { at::set_num_threads(1); }
};

TEST_F(ConvolutionTest, IsTorchsWithItsGradients) {
  torch::manual_seed(3);
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    for (const bool last : {false, true}) {
      for (const bool images : {false, true}) {
        Tensor x = torch::randn({11, 16, 10, 12});
        if (last) x = x.contiguous(torch::MemoryFormat::ChannelsLast);
        const Tensor weight = torch::randn({32, 16, 4, 4}) * 0.1;
        const Tensor bias = torch::randn({32});
        const Tensor from_y = torch::randn({11, 32, 4, 5});
        Leaves ours(x, weight, bias, images);
        Leaves torchs(x.to(torch::kFloat64), weight.to(torch::kFloat64),
                      bias.to(torch::kFloat64), images);
        ASSERT_TRUE(ConvolvesByKernel(ours.x, ours.weight));
        const Result got = ours.Finish(
            ConvolveRelu(ours.x, ours.weight, ours.bias, 2), from_y);
        const Result want = torchs.Finish(
            torch::relu(torch::conv2d(torchs.x, torchs.weight, torchs.bias, 2)),
            from_y);
        const auto expect_equal = [](const Tensor& a, const Tensor& b) {
          EXPECT_TRUE(torch::allclose(a.to(torch::kFloat64), b, 1e-4, 1e-4))
              << (a - b).abs().max();
        };
        expect_equal(got.y, want.y);
        expect_equal(got.to_weight, want.to_weight);
        expect_equal(got.to_bias, want.to_bias);
        ASSERT_EQ(got.to_x.defined(), images);
        if (images) expect_equal(got.to_x, want.to_x);
      }
    }
  }
}

// As if zeros came back to the others, whatever does.
TEST_F(ConvolutionTest, LearnsFromTheFirstImagesAlone) {
  torch::manual_seed(4);
  constexpr int64_t kLearned = 5;
  const Tensor x = torch::randn({11, 16, 10, 12});
  const Tensor weight = torch::randn({32, 16, 4, 4}) * 0.1;
  const Tensor bias = torch::randn({32});
  const Tensor from_y = torch::randn({11, 32, 4, 5});
  const auto run = [&](const Tensor& back, int64_t learned) {
    Leaves leaves(x, weight, bias, /*images=*/true);
    return leaves.Finish(
        ConvolveRelu(leaves.x, leaves.weight, leaves.bias, 2, learned), back);
  };
  Tensor zeros = from_y.clone();
  zeros.narrow(0, kLearned, 11 - kLearned).zero_();
  const Result want = run(zeros, kAllRows), got = run(from_y, kLearned);
  EXPECT_TRUE(torch::equal(got.y, want.y));
  EXPECT_TRUE(torch::equal(got.to_x, want.to_x));
  EXPECT_TRUE(torch::allclose(got.to_weight, want.to_weight));
  EXPECT_TRUE(torch::allclose(got.to_bias, want.to_bias));
}

TEST_F(ConvolutionTest, WhatIsNotLearnedFromIsFreed) {
  for (const int64_t learned : {kAllRows, int64_t{5}}) {
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;
    {
      const Leaves leaves(torch::randn({11, 16, 10, 12}),
                          torch::randn({32, 16, 4, 4}), torch::randn({32}),
                          /*images=*/true);
      storage.emplace(
          ConvolveRelu(leaves.x, leaves.weight, leaves.bias, 2, learned)
              .storage()
              .getWeakStorageImpl());
    }
    EXPECT_TRUE(storage->expired());
  }
}

// What is shared between Torch's threads is, in files compiled as these are.
TEST_F(ConvolutionTest, ThreadsShareImages) {
#ifndef _OPENMP
  GTEST_SKIP() << "built without OpenMP: at::parallel_for does all by itself";
#endif
  at::set_num_threads(2);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  at::parallel_for(0, 8, 1, [&](int64_t, int64_t) {
    const std::scoped_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(threads.size(), 2);
}

// Against float64 of the same rounded numbers: what its own sums round is theirs.
TEST_F(ConvolutionTest, IsTorchsInBfloat16) {
  torch::manual_seed(4);
  const auto rounded = [](const Tensor& x) {
    return x.to(torch::kBFloat16).to(torch::kFloat32);
  };
  const Tensor x = torch::randn({11, 16, 10, 12}).to(torch::kBFloat16);
  const Tensor weight = rounded(torch::randn({32, 16, 4, 4}) * 0.1);
  const Tensor bias = torch::randn({32});
  const Tensor from_y = rounded(torch::randn({11, 32, 4, 5}));
  Leaves ours(x, weight, bias, /*images=*/true);
  if (!ConvolvesByKernel(ours.x, ours.weight)) {
    GTEST_SKIP() << "this CPU multiplies bfloat16 by the library";
  }
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    Leaves halves(x, weight, bias, /*images=*/true);
    Leaves torchs(x.to(torch::kFloat64), weight.to(torch::kFloat64),
                  bias.to(torch::kFloat64), /*images=*/true);
    const Result got = halves.Finish(
        ConvolveRelu(halves.x, halves.weight, halves.bias, 2), from_y);
    const Result want = torchs.Finish(
        torch::relu(torch::conv2d(torchs.x, torchs.weight, torchs.bias, 2)),
        from_y);
    EXPECT_EQ(got.y.scalar_type(), torch::kBFloat16);
    EXPECT_EQ(got.to_x.scalar_type(), torch::kBFloat16);
    const auto expect_equal = [](const Tensor& a, const Tensor& b,
                                 double relative) {
      EXPECT_TRUE(torch::allclose(a.to(torch::kFloat64), b, relative, 1e-3))
          << (a - b).abs().max();
    };
    expect_equal(got.y, want.y, 1.0 / 256);
    expect_equal(got.to_x, want.to_x, 1.0 / 256);
    expect_equal(got.to_weight, want.to_weight, 1e-4);
    expect_equal(got.to_bias, want.to_bias, 1e-4);
  }
}

TEST_F(ConvolutionTest, DecisionsAreTheForwardPassOfTheGradient) {
  const Tensor x = torch::randn({5, 3, 9, 9});
  const Tensor weight = torch::randn({16, 3, 3, 3}), bias = torch::randn({16});
  const Tensor learning =
      ConvolveRelu(x, weight.clone().requires_grad_(), bias, 2);
  torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::equal(ConvolveRelu(x, weight, bias, 2), learning));
}

TEST_F(ConvolutionTest, LeavesToTorchWhatItsKernelsDoNotFit) {
  const Tensor x = torch::zeros({1, 4, 8, 8});
  EXPECT_TRUE(ConvolvesByKernel(x, torch::zeros({16, 4, 3, 3})));
  EXPECT_FALSE(ConvolvesByKernel(x, torch::zeros({17, 4, 3, 3})));
  EXPECT_FALSE(ConvolvesByKernel(x, torch::zeros({16, 4, 3, 2})));
  EXPECT_FALSE(
      ConvolvesByKernel(x.to(torch::kFloat64), torch::zeros({16, 4, 3, 3})));
  EXPECT_FALSE(ConvolvesByKernel(x, torch::zeros({16, 3, 3, 3})));
  EXPECT_FALSE(ConvolvesByKernel(x, torch::zeros({16, 4, 9, 9})));
  EXPECT_TRUE(ConvolvesByKernel(torch::zeros({1, 64, 9, 9}),
                                torch::zeros({64, 64, 3, 3})));
  EXPECT_TRUE(ConvolvesByKernel(torch::zeros({1, 128, 9, 9}),
                                torch::zeros({512, 128, 3, 3})));
  EXPECT_FALSE(ConvolvesByKernel(torch::zeros({1, 512, 9, 9}),
                                 torch::zeros({512, 512, 3, 3})));
  // A gradient of the images wants channels in that fill vectors too.
  EXPECT_FALSE(ConvolvesByKernel(x.clone().requires_grad_(),
                                 torch::zeros({16, 4, 3, 3})));
}

TEST(ChannelsFirstTest, IsContiguousAndHasTheGradientOfACopy) {
  for (const auto dtype :
       {torch::kFloat32, torch::kBFloat16, torch::kFloat64}) {
    for (const int64_t side : {1, 7, 16}) {
      const Tensor x =
          torch::randn({5, side, side, 48}).to(dtype).requires_grad_();
      const Tensor first = ChannelsFirst(x.permute({0, 3, 1, 2}));
      EXPECT_TRUE(first.is_contiguous());
      EXPECT_TRUE(torch::equal(first, x.permute({0, 3, 1, 2})));
      const Tensor wanted = torch::randn_like(first);
      (first * wanted).sum().backward();
      EXPECT_TRUE(torch::equal(x.grad(), wanted.permute({0, 2, 3, 1})));
    }
  }
  const Tensor volume = torch::randn({2, 3, 4, 5, 6}).transpose(1, 4);
  EXPECT_TRUE(torch::equal(ChannelsFirst(volume), volume));
}

}  // namespace
}  // namespace flotilla
