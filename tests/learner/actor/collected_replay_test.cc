// What the collector gives a replay, on real env workers.

#include <signal.h>

#include <cmath>

#include "gtest/gtest.h"
#include "learner/actor/collector.h"
#include "learner/actor/env_pool.h"
#include "learner/replay/replay_buffer.h"

namespace flotilla {
namespace {

constexpr int64_t kRows = 8, kLength = 20;
constexpr int kLimit = 12;  // steps of an episode: many poles still stand
constexpr double kGamma = 0.9;

class RandomPolicy : public Policy {
 public:
  void Decide(const Observations& seen, bool, Draws* draws,
              const DecisionOutput& out) override {
    for (int64_t r = 0; r < seen.rows; ++r) {
      out.discrete[r] = static_cast<int64_t>(draws->Bits() % 2);
    }
  }
  void Value(const Observations&, float*) override {}
};

class CollectedReplayTest : public testing::TestWithParam<int> {
 protected:
  CollectedReplayTest() {
    options_.env.set_id("CartPole-v1");
    options_.env.set_num_envs(kRows);
    options_.env.set_num_workers(2);
    options_.env.set_groups(2);
    options_.env.mutable_options()->set_max_episode_steps(kLimit);
    options_.learner_id = "learner/0/0";
    options_.name = "test";
    pool_ = EnvPool::Start(options_, 0, 1).value();
    spaces_ = DescribeSpaces(pool_->spec(), {}).value();
    collector_ =
        MakeCollector(pool_.get(), spaces_, Collector::Options(), &normalizer_);
    replay_ = std::make_unique<ReplayBuffer>(
        spaces_, kRows,
        ReplayBuffer::Options{
            .capacity = 4000, .n_step = GetParam(), .discount = kGamma});
    rollout_ = MakeRollout(spaces_, kLength, kRows, /*pinned=*/false);
  }

  absl::Status Collect(std::stop_token stop = {}) {
    CollectStats stats;
    return collector_->Collect(&policy_, &draws_, stop, nullptr, &rollout_,
                               &stats);
  }

  // Every draw spans k steps of one episode, for k = 1 or n the physics can be
  // seen: the cart moves by its speed, and a pole that stands earns 1 a step.
  void ExpectWholeWindows() {
    ReplayBatch batch;
    Draws draws(3);
    ASSERT_TRUE(replay_->Sample(3000, 1, &draws, &batch));
    int terminations = 0, short_windows = 0;
    for (int64_t i = 0; i < 3000; ++i) {
      const float earned = batch.n_step_return[i].item<float>();
      const float discount = batch.discount[i].item<float>();
      int k = 1;
      double want = 1;
      while (want < earned - 1e-3) want += std::pow(kGamma, k++);
      ASSERT_NEAR(earned, want, 1e-4);
      ASSERT_LE(k, GetParam());
      short_windows += k < GetParam();
      if (discount == 0) {
        ++terminations;
        continue;
      }
      ASSERT_NEAR(discount, std::pow(kGamma, k), 1e-5);
      const float* before = batch.observation.leaf[0][i].data_ptr<float>();
      const float* after = batch.next_observation.leaf[0][i].data_ptr<float>();
      if (k == 1) {
        ASSERT_NEAR(after[0], before[0] + 0.02f * before[1], 1e-5);
        ASSERT_NEAR(after[2], before[2] + 0.02f * before[3], 1e-5);
        continue;
      }
      // A push changes the cart's speed by less than 0.22 a step.
      ASSERT_NEAR(after[0], before[0] + 0.02f * k * before[1],
                  0.02 * 0.22 * k * k);
    }
    EXPECT_GT(terminations, 0);
    if (GetParam() > 1) {
      EXPECT_GT(short_windows, terminations / 2);
    }
  }

  EnvWorkerOptions options_;
  std::unique_ptr<EnvPool> pool_;
  Spaces spaces_;
  Normalizer normalizer_;
  std::unique_ptr<Collector> collector_;
  std::unique_ptr<ReplayBuffer> replay_;
  Rollout rollout_;
  RandomPolicy policy_;
  Draws draws_{1};
};

TEST_P(CollectedReplayTest, ATimeLimitsFinalObservationIsKept) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Collect().ok());
    const int64_t limits =
        (rollout_.truncated * (1 - rollout_.terminated)).sum().item<int64_t>();
    EXPECT_EQ(rollout_.final_step.size(), limits);
    EXPECT_EQ(rollout_.final_observation.size(), limits * 4 * sizeof(float));
    replay_->Add(rollout_);
  }
  ExpectWholeWindows();
}

TEST_P(CollectedReplayTest, AKilledWorkerLeavesNoSplicedEpisode) {
  pid_t killed = 0;
  int64_t lost = 0;
  for (int i = 0; pool_->restarts() < 3; ++i) {
    ASSERT_LT(i, 10000) << "no worker was replaced";
    const auto worker = pool_->Describe()[1];
    if (worker.state() == "playing" && worker.pid() != killed) {
      killed = static_cast<pid_t>(worker.pid());
      kill(killed, SIGKILL);
    }
    ASSERT_TRUE(Collect().ok());
    lost += kLength * kRows - rollout_.valid_steps;
    replay_->Add(rollout_);
  }
  EXPECT_GT(lost, 0);
  ExpectWholeWindows();
}

TEST_P(CollectedReplayTest, AnAbandonedCollectionLeavesNoSplicedEpisode) {
  std::stop_source stopped;
  stopped.request_stop();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Collect().ok());
    replay_->Add(rollout_);
    ASSERT_FALSE(Collect(stopped.get_token()).ok());
  }
  ExpectWholeWindows();
}

INSTANTIATE_TEST_SUITE_P(Steps, CollectedReplayTest, testing::Values(1, 3));

}  // namespace
}  // namespace flotilla
