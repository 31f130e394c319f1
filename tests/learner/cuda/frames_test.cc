// flotilla::gather_stacks and flotilla::scale_pixels: to the bit what Torch's
// operators and plain loops make of it.

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "learner/cuda/operators.h"
#include "tests/learner/cuda/on_gpu.h"

namespace flotilla {
namespace {

TEST(GatherStacksTest, ShowsWhatEachStepShows) {
  torch::manual_seed(1);
  const int64_t N = 36, S = 27, k = 4;
  const torch::Tensor shown = torch::randint(N, {S, k}, torch::kInt32);
  // Arrays of 16 bytes' words, of 4 bytes', and of odd numbers of bytes.
  const std::vector<std::vector<int64_t>> shapes = {
      {N, 8, 6}, {N, 5, 4}, {N, 3, 5, 3}};
  for (const std::vector<int64_t>& shape : shapes) {
    const torch::Tensor arrays = torch::randint(256, shape, torch::kUInt8);
    for (const int64_t M : {1, 2, 27, 300}) {
      const torch::Tensor index = torch::randint(S, {M}, torch::kInt32);
      const torch::Tensor got = GatherStacks(arrays, shown, index);
      EXPECT_TRUE(torch::equal(
          got, arrays.index_select(0, shown.index_select(0, index).flatten())
                   .view_as(got)));
      for (int64_t m = 0; m < M; ++m) {
        for (int64_t j = 0; j < k; ++j) {
          const int64_t step = index[m].item<int64_t>();
          ASSERT_TRUE(
              torch::equal(got[m][j], arrays[shown[step][j].item<int64_t>()]));
        }
      }
    }
  }
}

TEST(GatherStacksTest, IsOfAnyType) {
  torch::manual_seed(2);
  const torch::Tensor shown = torch::randint(6, {5, 2}, torch::kInt32);
  const torch::Tensor index = torch::arange(5, torch::kInt32);
  for (const torch::Tensor& arrays :
       {torch::randn({6, 3}), torch::randint(99, {6}, torch::kInt64)}) {
    const torch::Tensor got = GatherStacks(arrays, shown, index);
    EXPECT_EQ(got.scalar_type(), arrays.scalar_type());
    EXPECT_TRUE(torch::equal(
        got, arrays.index_select(0, shown.flatten()).view_as(got)));
  }
}

TEST(GatherStacksTest, NamesWhatDoesNotFit) {
  try {
    GatherStacks(torch::zeros({5, 2, 3}), torch::zeros({4, 2}, torch::kInt32),
                 torch::zeros({4}, torch::kInt64));
    FAIL() << "it took int64 indices";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what_without_backtrace())
                  .find(std::string("index is Long [4] by [1] on ") +
                        KernelsDevice() + ", want 4 numbers of Int"),
              std::string::npos)
        << error.what_without_backtrace();
  }
}

TEST(ScalePixelsTest, IsWhatTorchDoes) {
  torch::manual_seed(3);
  const std::vector<std::vector<int64_t>> shapes = {
      {1, 1, 1, 1}, {2, 4, 9, 7}, {3, 3, 16, 16}, {33, 12, 5, 5}};
  for (const std::vector<int64_t>& shape : shapes) {
    const torch::Tensor pixels = torch::randint(256, shape, torch::kUInt8);
    const torch::Tensor got = ScalePixels(pixels, 1.0 / 255);
    const torch::Tensor want = pixels
                                   .to(torch::kFloat32, false, false,
                                       torch::MemoryFormat::ChannelsLast)
                                   .mul_(1.0 / 255);
    EXPECT_TRUE(torch::equal(got, want));
    EXPECT_TRUE(got.is_contiguous(torch::MemoryFormat::ChannelsLast));
  }
}

}  // namespace
}  // namespace flotilla
