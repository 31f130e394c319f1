#include "learner/algo/gradient_shards.h"

#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace flotilla {
namespace {

class GradientShardsTest : public testing::Test {
 protected:
  ~GradientShardsTest() override { at::set_num_threads(1); }
};

TEST_F(GradientShardsTest, EachSampleIsInOneOfThem) {
  constexpr int64_t kSize = 100000;
  const torch::Tensor gradient = torch::full({kSize}, 7.0f);
  for (const int threads : {1, 2, 3, 8}) {
    at::set_num_threads(threads);
    for (const int64_t rows : {0, 1, 23, 24, 47, 48, 49, 100, 192, 1021}) {
      GradientShards shards;
      const int64_t count = GradientShards::CountOf(rows, kSize);
      std::mutex mutex;
      std::vector<std::pair<int64_t, int64_t>> parts(count);
      const auto sum = shards.Run<int64_t>(
          rows, gradient,
          [&](int64_t shard, int64_t first, int64_t n, float* part) {
            for (int64_t p = 0; p < kSize; ++p) part[p] = static_cast<float>(n);
            const std::lock_guard<std::mutex> lock(mutex);
            parts[shard] = {first, n};
            return n;
          });
      EXPECT_EQ(sum, rows);
      EXPECT_TRUE((gradient == static_cast<float>(rows)).all().item<bool>());
      int64_t next = 0;
      for (const auto& [first, n] : parts) {
        EXPECT_EQ(first, next);
        EXPECT_TRUE(n > 0 || rows == 0);
        next = first + n;
      }
      EXPECT_EQ(next, rows);
    }
  }
}

TEST_F(GradientShardsTest, ThereAreAsManyAsThreadsIfTheyHaveEnoughToDo) {
  at::set_num_threads(4);
  EXPECT_EQ(GradientShards::CountOf(512, 9155), 4);  // CartPole's network
  EXPECT_EQ(GradientShards::CountOf(256, 9155), 2);
  EXPECT_EQ(GradientShards::CountOf(128, 9155), 1);
  EXPECT_EQ(GradientShards::CountOf(256, 135000), 4);  // of SAC's critics
  EXPECT_EQ(GradientShards::CountOf(48, 1000000), 2);
  at::set_num_threads(1);
  EXPECT_EQ(GradientShards::CountOf(1 << 20, 135000), 1);
}

TEST_F(GradientShardsTest, ThreadsRunThem) {
  at::set_num_threads(3);
  const torch::Tensor gradient = torch::zeros({100000});
  std::mutex mutex;
  std::set<std::thread::id> seen;
  GradientShards().Run<int>(300, gradient,
                            [&](int64_t, int64_t, int64_t, float* part) {
                              part[0] = 1;
                              const std::lock_guard<std::mutex> lock(mutex);
                              seen.insert(std::this_thread::get_id());
                              return 0;
                            });
  EXPECT_EQ(seen.size(), 3);
}

}  // namespace
}  // namespace flotilla
