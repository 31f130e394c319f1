// flotilla::gather_ring: what a loop from the definition shows.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "learner/cuda/operators.h"
#include "tests/learner/cuda/on_gpu.h"

namespace flotilla {
namespace {

constexpr int64_t kN = 9, kB = 3, kS = 4;

// The bytes of what place m shows, oldest first.
torch::Tensor Slow(const RingTensors& ring, int64_t stack, int64_t offset,
                   int64_t m) {
  const torch::Tensor bytes =
      ring.arrays.view({kN, kB, -1}).view(torch::kUInt8);
  const int64_t M = ring.place.numel(), F = ring.slot.numel();
  const int64_t t = ring.place[m].item<int64_t>() / kB;
  const int64_t b = ring.place[m].item<int64_t>() % kB;
  const int64_t age = ring.age[t][b].item<int64_t>();
  const int64_t slot = m < M - F ? -1 : ring.slot[m - (M - F)].item<int64_t>();
  std::vector<torch::Tensor> shown;
  for (int64_t back = stack - 1 - (slot >= 0); back >= 0; --back) {
    const int64_t then = t - std::min(back, age);
    shown.push_back(bytes[then < 0 ? then + kN : then][b]);
  }
  if (slot >= 0) {
    shown.push_back(ring.finals[slot].narrow(0, offset, bytes.size(2)));
  }
  return torch::stack(shown);
}

TEST(GatherRingTest, ShowsWhatALoopShows) {
  torch::manual_seed(1);
  struct Case {
    std::vector<int64_t> array;
    torch::Dtype type;
    int64_t stack, offset, row_bytes;
  };
  // Words of 16 bytes, of 4 (by the array, and by where it lies in a final row), and of
  // one.
  const std::vector<Case> cases = {
      {{8, 6}, torch::kUInt8, 4, 16, 64}, {{8, 6}, torch::kUInt8, 4, 8, 56},
      {{5, 4}, torch::kUInt8, 2, 0, 24},  {{3, 5}, torch::kUInt8, 3, 8, 24},
      {{4}, torch::kFloat32, 1, 0, 16},   {{3}, torch::kFloat32, 1, 8, 24},
      {{2, 3}, torch::kInt64, 2, 8, 56},  {{}, torch::kUInt8, 4, 8, 16}};
  for (const Case& c : cases) {
    std::vector<int64_t> sizes = {kN, kB};
    sizes.insert(sizes.end(), c.array.begin(), c.array.end());
    RingTensors ring;
    ring.arrays = torch::randint(99, sizes, torch::kInt64).to(c.type);
    ring.age = torch::randint(c.stack, {kN, kB}, torch::kUInt8);
    ring.finals = torch::randint(99, {kS, c.row_bytes}, torch::kUInt8);
    for (const auto& [M, F] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 0}, {1, 1}, {50, 25}, {300, 300}}) {
      ring.place = torch::randint(kN * kB, {M}, torch::kInt32);
      ring.slot = torch::randint(-1, kS, {F}, torch::kInt32);
      const torch::Tensor got = GatherRing(ring, c.stack, c.offset);
      ASSERT_EQ(got.size(0), M);
      ASSERT_EQ(got.size(1), c.stack);
      ASSERT_EQ(got.scalar_type(), c.type);
      const torch::Tensor bytes =
          got.view({M, c.stack, -1}).view(torch::kUInt8);
      for (int64_t m = 0; m < M; ++m) {
        ASSERT_TRUE(torch::equal(bytes[m], Slow(ring, c.stack, c.offset, m)))
            << "place " << m << " of " << M << ", arrays "
            << ring.arrays.sizes();
      }
    }
  }
}

// Before the first time limit there is no row of a final observation.
TEST(GatherRingTest, NeedsNoFinalObservations) {
  const torch::Tensor got = GatherRing(
      {torch::arange(6).view({3, 2}), torch::zeros({3, 2}, torch::kUInt8),
       torch::arange(6, torch::kInt32), torch::full({6}, -1, torch::kInt32),
       torch::empty({0, 8}, torch::kUInt8)},
      /*stack=*/1, /*offset=*/0);
  EXPECT_TRUE(torch::equal(got.flatten(), torch::arange(6)));
}

TEST(GatherRingTest, NamesWhatDoesNotFit) {
  try {
    GatherRing(
        {torch::zeros({3, 2}), torch::zeros({3, 3}, torch::kUInt8),
         torch::zeros({4}, torch::kInt32), torch::zeros({0}, torch::kInt32),
         torch::zeros({0, 8}, torch::kUInt8)},
        1, 0);
    FAIL() << "it took nine ages of six arrays";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what_without_backtrace())
                  .find(std::string("age is Byte [3, 3] by [3, 1] on ") +
                        KernelsDevice() + ", want 6 numbers"),
              std::string::npos)
        << error.what_without_backtrace();
  }
}

}  // namespace
}  // namespace flotilla
