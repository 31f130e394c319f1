#include "learner/algo/minibatches.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

constexpr int64_t kT = 5, kB = 6;

std::vector<int32_t> ToVector(const torch::Tensor& t) {
  return {t.data_ptr<int32_t>(), t.data_ptr<int32_t>() + t.numel()};
}

Rollout WithLostSteps() {
  Rollout r = RandomRollout(VectorSpaces(2, 2), kT, kB);
  r.valid[1][2] = 0;
  r.valid.narrow(0, 3, 2).narrow(1, 4, 1).fill_(0);
  return r;
}

std::vector<int32_t> ValidSteps(const Rollout& r) {
  return ToVector(r.valid.flatten().nonzero().squeeze(1).to(torch::kInt32));
}

TEST(MinibatchesTest, EveryValidStepComesOnceAnEpoch) {
  const Rollout r = WithLostSteps();
  for (bool by_column : {false, true}) {
    Minibatches parts(r, 3, by_column);
    EXPECT_EQ(parts.valid_steps(), kT * kB - 3);
    Random rng(1);
    for (int epoch = 0; epoch < 3; ++epoch) {
      parts.Shuffle(&rng);
      std::vector<int32_t> seen;
      for (int m = 0; m < parts.count(); ++m) {
        for (int32_t i : ToVector(parts.Get(m).index)) seen.push_back(i);
      }
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(seen, ValidSteps(r));
    }
  }
}

TEST(MinibatchesTest, ByColumnEnvironmentsStayWholeAndAreShuffled) {
  const Rollout r = WithLostSteps();
  Minibatches parts(r, 3, /*by_column=*/true);
  Random rng(1);
  std::vector<std::vector<int32_t>> orders;
  for (int epoch = 0; epoch < 4; ++epoch) {
    parts.Shuffle(&rng);
    std::vector<int32_t> order;
    for (int m = 0; m < 3; ++m) {
      const Minibatch part = parts.Get(m);
      const std::vector<int32_t> columns = ToVector(part.columns);
      EXPECT_EQ(columns.size(), 2u);
      order.insert(order.end(), columns.begin(), columns.end());
      // All valid steps of these environments, time first.
      std::vector<int32_t> want;
      for (int32_t t = 0; t < kT; ++t) {
        for (int32_t b : columns) {
          if (r.valid[t][b].item<uint8_t>()) want.push_back(t * kB + b);
        }
      }
      EXPECT_EQ(ToVector(part.index), want);
    }
    orders.push_back(order);
    std::vector<int32_t> all(kB);
    std::iota(all.begin(), all.end(), 0);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, all);
  }
  EXPECT_NE(orders[0], orders[1]);
}

// A rollout cut short, or lost, still gives as many gradient steps.
TEST(MinibatchesTest, HowManyDoesNotDependOnWhatIsValid) {
  Rollout r = WithLostSteps();
  r.valid.zero_();
  for (bool by_column : {false, true}) {
    Minibatches parts(r, 2, by_column);
    EXPECT_EQ(parts.count(), 2);
    EXPECT_EQ(parts.Get(1).index.numel(), 0);
  }
}

}  // namespace
}  // namespace flotilla
