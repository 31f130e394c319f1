#include "learner/training/episode_window.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "learner/collective/solo_collective.h"

namespace flotilla {
namespace {

using Episodes = std::vector<CollectStats::Episode>;

CollectStats::Episode Episode(double raw_return, double length, double metric) {
  CollectStats::Episode e;
  e.raw_return = raw_return;
  e.length = length;
  e.metrics = {metric};
  return e;
}

Episodes Returns(std::vector<double> returns) {
  Episodes episodes;
  for (const double r : returns) episodes.push_back(Episode(r, 2 * r, -r));
  return episodes;
}

// The returns that `window` holds, the oldest first.
std::vector<double> Held(const EpisodeWindow& window) {
  std::vector<double> returns;
  for (int64_t i = 1; i <= window.episodes(); ++i) {
    returns.push_back(window.tensor()[i][0].item<double>());
  }
  return returns;
}

// One update of one rank alone.
void Finish(EpisodeWindow* window, const Episodes& episodes) {
  SoloCollective alone;
  Agreement agreement(0, 1);
  window->Add(episodes, &agreement);
  ASSERT_TRUE(agreement.Reduce(&alone).ok());
  window->Take(agreement);
}

TEST(EpisodeWindowTest, HoldsTheNewestAndMeansOverThem) {
  EpisodeWindow window(3, 1);
  EXPECT_EQ(window.episodes(), 0);
  EXPECT_TRUE(window.Means().empty());
  Finish(&window, {});
  EXPECT_TRUE(window.Means().empty());
  Finish(&window, Returns({1, 2}));
  EXPECT_EQ(window.Means(), (std::vector<double>{1.5, 3, -1.5}));
  Finish(&window, Returns({6}));
  EXPECT_EQ(Held(window), (std::vector<double>{1, 2, 6}));
  Finish(&window, Returns({9}));
  EXPECT_EQ(Held(window), (std::vector<double>{2, 6, 9}));
  Finish(&window, Returns({11, 12, 13, 14, 15}));
  EXPECT_EQ(Held(window), (std::vector<double>{13, 14, 15}));
}

// Ranks one after the other: first it adds up what they bring, then it gives
// each the sum.
class TwoPasses : public SoloCollective {
 public:
  absl::Status AllReduceSum(torch::Tensor tensor) override {
    if (told_) {
      tensor.copy_(sum_);
    } else {
      sum_ = sum_.defined() ? sum_ + tensor : tensor.clone();
    }
    return absl::OkStatus();
  }
  void Tell() { told_ = true; }

 private:
  bool told_ = false;
  torch::Tensor sum_;
};

// One update of all ranks.
void Finish(std::vector<EpisodeWindow>* windows,
            const std::vector<Episodes>& finished) {
  const int world = static_cast<int>(windows->size());
  TwoPasses ranks;
  for (int pass = 0; pass < 2; ++pass) {
    if (pass == 1) ranks.Tell();
    for (int rank = 0; rank < world; ++rank) {
      Agreement agreement(rank, world);
      (*windows)[rank].Add(finished[rank], &agreement);
      const absl::Status reduced = agreement.Reduce(&ranks);
      if (pass == 0) continue;
      ASSERT_TRUE(reduced.ok()) << reduced;
      (*windows)[rank].Take(agreement);
    }
  }
}

TEST(EpisodeWindowTest, EveryRankHoldsTheEpisodesOfAll) {
  std::vector<EpisodeWindow> windows;
  for (int rank = 0; rank < 3; ++rank) windows.emplace_back(4, 1);
  // Of four, two of a rank at most.
  Finish(&windows, {Returns({1, 2, 3}), Returns({}), Returns({10})});
  Finish(&windows, {Returns({}), Returns({0.1}), Returns({})});
  for (const EpisodeWindow& window : windows) {
    EXPECT_EQ(Held(window), (std::vector<double>{2, 3, 10, 0.1}));
  }
  Finish(&windows, {Returns({5}), Returns({6}), Returns({7})});
  EXPECT_EQ(Held(windows[1]), (std::vector<double>{0.1, 5, 6, 7}));
}

TEST(EpisodeWindowTest, GoesOnFromWhatWasSaved) {
  EpisodeWindow before(3, 1);
  Finish(&before, Returns({1, 2, 3, 4}));
  EpisodeWindow after(3, 1);
  ASSERT_TRUE(after.Load(before.tensor().clone()).ok());
  EXPECT_TRUE(torch::equal(after.tensor(), before.tensor()));
  EXPECT_EQ(after.Means(), before.Means());
  Finish(&after, Returns({5}));
  EXPECT_EQ(Held(after), (std::vector<double>{3, 4, 5}));
}

TEST(EpisodeWindowTest, AWindowOfAnotherSizeTakesWhatFits) {
  EpisodeWindow before(3, 1);
  Finish(&before, Returns({1, 2, 3}));
  EpisodeWindow smaller(2, 1), larger(9, 1);
  ASSERT_TRUE(smaller.Load(before.tensor()).ok());
  ASSERT_TRUE(larger.Load(before.tensor()).ok());
  EXPECT_EQ(Held(smaller), (std::vector<double>{2, 3}));
  EXPECT_EQ(Held(larger), (std::vector<double>{1, 2, 3}));
}

TEST(EpisodeWindowTest, EpisodesOfOtherMetricsAreNotMixedIn) {
  EpisodeWindow window(3, 1);
  Finish(&window, Returns({1}));
  EXPECT_TRUE(window.Load(EpisodeWindow(3, 2).tensor()).ok());
  EXPECT_EQ(window.episodes(), 0);
  Finish(&window, Returns({2}));
  EXPECT_EQ(Held(window), (std::vector<double>{2}));
}

TEST(EpisodeWindowTest, WhatIsNoWindowIsRefusedAndChangesNothing) {
  EpisodeWindow window(3, 1);
  Finish(&window, Returns({1}));
  const torch::Tensor shapes[] = {
      torch::zeros({4}, torch::kFloat64),
      torch::zeros({0, 3}, torch::kFloat64),
      torch::zeros({4, 3}, torch::kFloat32),
      torch::full({4, 3}, 4.0, torch::kFloat64),
      torch::full({4, 3}, -1.0, torch::kFloat64),
      torch::full({4, 3}, std::nan(""), torch::kFloat64)};
  for (const torch::Tensor& bad : shapes) {
    EXPECT_TRUE(absl::IsDataLoss(window.Load(bad))) << bad;
  }
  EXPECT_EQ(Held(window), (std::vector<double>{1}));
}

}  // namespace
}  // namespace flotilla
