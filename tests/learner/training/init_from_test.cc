#include "learner/training/init_from.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/checkpoint/checkpoint.h"
#include "tests/testing/spaces.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kRows = 4;

// A rank of a new run.
struct Learner {
  Learner(uint64_t seed, bool scales, int64_t numbers = 4) : numbers(numbers) {
    config.mutable_ppo();
    config.set_seed(seed);
    config.mutable_env()->set_num_envs(kRows);
    config.mutable_rollout()->set_length(8);
    config.mutable_model()->set_normalize_observations(scales);
    config.mutable_model()->set_normalize_rewards(true);
    algorithm =
        MakeAlgorithm(config, VectorSpaces(numbers, 2), torch::kCPU).value();
    normalizer = Normalizer(config.model(), 0.99, numbers, kRows);
  }
  LiveState live() { return LiveState(algorithm.get(), &normalizer); }

  // What it notes of an update.
  std::vector<double> See(double mean) {
    torch::Tensor seen = torch::randn({kRows, numbers}) + mean;
    normalizer.Observe(seen.data_ptr<float>(), kRows, numbers);
    const std::vector<uint8_t> ended(kRows, 0), valid(kRows, 1);
    std::vector<float> reward = {1, 2, 3, 4};
    normalizer.Reward(0, kRows, ended.data(), valid.data(), reward.data());
    return normalizer.Take();
  }

  std::string SaveIn(const TempDir& folder) {
    Snapshot snapshot;
    TakeSnapshot(live(), Progress(), &snapshot);
    CheckpointStore store(folder.path(), 1);
    EXPECT_OK(store.Save(ToCheckpoint(snapshot, config)));
    return folder / "latest";
  }

  const int64_t numbers;
  v1::RunConfig config;
  std::unique_ptr<Algorithm> algorithm;
  Normalizer normalizer;
};

// One that has seen something.
std::string Saved(bool scales, const TempDir& folder) {
  Learner learner(1, scales);
  learner.normalizer.Add(learner.See(/*mean=*/50));
  return learner.SaveIn(folder);
}

TEST(InitFromTest, APolicySeesItsObservationsScaledAsItLearned) {
  TempDir folder;
  Learner saved(1, /*scales=*/true), fresh(2, /*scales=*/true);
  saved.normalizer.Add(saved.See(/*mean=*/50));
  ASSERT_OK_AND_ASSIGN(const InitReport report,
                       InitializeFrom(saved.SaveIn(folder), fresh.live()));
  EXPECT_THAT(report.not_taken, IsEmpty());
  EXPECT_EQ(report.observations, kRows);
  EXPECT_EQ(WeightsDigest(fresh.live()), WeightsDigest(saved.live()));
  std::vector<float> there = {50, 51, 52, 53}, here = there;
  saved.normalizer.Scale(there.data(), 1, 4);
  fresh.normalizer.Scale(here.data(), 1, 4);
  EXPECT_EQ(here, there);
  EXPECT_LT(here[0], 3);
  // Its returns are its own.
  EXPECT_EQ(fresh.normalizer.reward_sums()[0].item<double>(), 0);
}

TEST(InitFromTest, WhatCameAlongIsAddedOnceOfAllRanks) {
  TempDir folder;
  const std::string path = Saved(/*scales=*/true, folder);
  std::vector<std::unique_ptr<Learner>> ranks;
  std::vector<double> noted;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::make_unique<Learner>(2, /*scales=*/true));
    ASSERT_OK(InitializeFrom(path, ranks.back()->live()));
    const std::vector<double> mine = ranks.back()->See(/*mean=*/rank);
    noted.resize(mine.size(), 0.0);
    for (size_t i = 0; i < mine.size(); ++i) noted[i] += mine[i];
  }
  for (const auto& rank : ranks) {
    rank->normalizer.Add(noted);  // as an update's end does
    const torch::Tensor sums = rank->normalizer.observation_sums();
    EXPECT_EQ(sums[0].item<double>(), kRows + 3 * kRows);
    EXPECT_TRUE(torch::equal(sums, ranks[0]->normalizer.observation_sums()));
  }
}

TEST(InitFromTest, WhoeverScalesAloneIsToldSo) {
  {
    TempDir folder;
    Learner fresh(2, /*scales=*/true);
    ASSERT_OK_AND_ASSIGN(
        const InitReport report,
        InitializeFrom(Saved(/*scales=*/false, folder), fresh.live()));
    EXPECT_EQ(report.observations, 0);
    EXPECT_THAT(
        report.not_taken,
        ElementsAre(AllOf(HasSubstr("observation_sums: [9] here, none there"),
                          HasSubstr("model.normalize_observations"))));
  }
  TempDir folder;
  Learner fresh(2, /*scales=*/false);
  ASSERT_OK_AND_ASSIGN(
      const InitReport report,
      InitializeFrom(Saved(/*scales=*/true, folder), fresh.live()));
  EXPECT_EQ(report.observations, 0);
  EXPECT_THAT(
      report.not_taken,
      ElementsAre(AllOf(HasSubstr("observation_sums: none here, [9] there"),
                        HasSubstr("set model.normalize_observations=true"))));
}

TEST(InitFromTest, OtherObservationsAreScaledFromAnew) {
  TempDir folder;
  Learner fresh(2, /*scales=*/true, /*numbers=*/5);
  ASSERT_OK_AND_ASSIGN(
      const InitReport report,
      InitializeFrom(Saved(/*scales=*/true, folder), fresh.live()));
  EXPECT_EQ(report.observations, 0);
  EXPECT_THAT(report.not_taken,
              Contains(HasSubstr("observation_sums: [11] here, [9] there")));
  EXPECT_EQ(fresh.normalizer.observation_sums()[0].item<double>(), 0);
}

TEST(InitFromTest, NeitherScalesAndNothingIsSaidOfIt) {
  TempDir folder;
  Learner fresh(2, /*scales=*/false);
  ASSERT_OK_AND_ASSIGN(
      const InitReport report,
      InitializeFrom(Saved(/*scales=*/false, folder), fresh.live()));
  EXPECT_THAT(report.not_taken, IsEmpty());
  EXPECT_EQ(report.observations, 0);
}

}  // namespace
}  // namespace flotilla
