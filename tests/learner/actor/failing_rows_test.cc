// What becomes of rows that fail, from a server that does not check its own, to
// the rollout.

#include <atomic>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/actor/collector.h"
#include "learner/actor/env_pool.h"
#include "services/base/steady_now.h"
#include "services/env/env_service.h"
#include "tests/learner/actor/leases.h"
#include "tests/services/env/fake_vector_env.h"
#include "tests/testing/in_process_server.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// An env server of another host, as far as the learner can tell.
struct FakeServer {
  explicit FakeServer(const std::string& path)
      : service(&factory, {}),
        server(
            {{v1::EnvService::service_full_name(), &service}},
            [this] { service.Shutdown(); }, "unix:" + path) {}

  FakeFactory factory;
  EnvService service;
  InProcessServer server;
};

class ActionOne : public Policy {
 public:
  void Decide(const Observations& seen, bool, Draws*,
              const DecisionOutput& out) override {
    const auto* vector = static_cast<const float*>(seen.leaf[0]);
    for (int64_t i = 0; i < seen.rows * 2; ++i) {
      EXPECT_TRUE(std::isfinite(vector[i]));
    }
    for (int64_t r = 0; r < seen.rows; ++r) {
      out.discrete[r] = action;
      out.log_prob[r] = 0;
    }
    Value(seen, out.value);
  }
  void Value(const Observations& seen, float* value) override {
    std::fill_n(value, seen.rows, 0.0f);
  }
  int64_t action = 1;
};

class FailingRowsTest : public testing::Test {
 protected:
  FailingRowsTest() : leases_(dir_.path(), /*again=*/true) {
    options_.env.set_id("Fake");
    options_.env.set_num_envs(4);
    options_.env.set_num_workers(1);
    options_.env.set_groups(2);
    options_.env.set_remote_workers(1);
    options_.learner_id = "learner/0/0";
    options_.name = "test";
    options_.coordinator = &leases_;
    model_.set_normalize_observations(true);
    model_.set_normalize_rewards(true);
  }

  FakeServer* Serve(const std::string& name) {
    servers_.push_back(std::make_unique<FakeServer>(dir_ / name));
    leases_.Offer(name, servers_.back()->server.address());
    return servers_.back().get();
  }

  void Start(const Collector::Options& options = {}) {
    auto pool = EnvPool::Start(options_, 0, 1);
    ASSERT_OK(pool.status());
    pool_ = *std::move(pool);
    spaces_ = DescribeSpaces(pool_->spec(), model_).value();
    normalizer_ = Normalizer(model_, 0.99, spaces_.normalized(), 4);
    collector_ = MakeCollector(pool_.get(), spaces_, options, &normalizer_);
    rollout_ = MakeRollout(spaces_, 8, 4, /*pinned=*/false);
  }

  absl::Status Collect() {
    stats_ = {};
    return collector_->Collect(&policy_, &draws_, {}, nullptr, &rollout_,
                               &stats_);
  }

  // Row `row`'s steps that are not valid.
  std::vector<int64_t> Lost(int64_t row) {
    std::vector<int64_t> lost;
    for (int64_t t = 0; t < rollout_.length; ++t) {
      if (!rollout_.valid[t][row].item<uint8_t>()) lost.push_back(t);
    }
    return lost;
  }

  void ExpectFinite() {
    for (const torch::Tensor& t :
         {rollout_.observation.leaf(0), rollout_.reward, rollout_.value}) {
      EXPECT_TRUE(t.isfinite().all().item<bool>());
    }
    for (double noted : normalizer_.Take()) EXPECT_TRUE(std::isfinite(noted));
  }

  TempDir dir_;
  Leases leases_;
  EnvWorkerOptions options_;
  v1::ModelConfig model_;
  std::vector<std::unique_ptr<FakeServer>> servers_;
  std::unique_ptr<EnvPool> pool_;
  Spaces spaces_;
  Normalizer normalizer_;
  std::unique_ptr<Collector> collector_;
  ActionOne policy_;
  Draws draws_{1};
  Rollout rollout_;
  CollectStats stats_;
};

TEST_F(FailingRowsTest, OneObservationThatIsNoNumberCostsTheStepsAroundIt) {
  Serve("env")->factory.set_spoil(
      [](int step, float* seen, v1::StepBatch* batch) {
        if (step == 3 && batch->group() == 1) seen[2] = kNan;  // row 3's
      });
  Start();
  ASSERT_OK(Collect());
  // To it, and from it.
  EXPECT_THAT(Lost(3), testing::ElementsAre(2, 3));
  for (int64_t row : {0, 1, 2}) EXPECT_THAT(Lost(row), testing::IsEmpty());
  EXPECT_EQ(rollout_.valid_steps, 8 * 4 - 2);
  ExpectFinite();
  EXPECT_EQ(pool_->failed_rows().failed(), 1);
  EXPECT_EQ(pool_->Describe()[0].failed_rows(), 1);
  EXPECT_THAT(pool_->failed_rows().newest(),
              AllOf(HasSubstr("env worker 0 at unix:"),
                    HasSubstr("row 3, step 3: the observation, element 0, is "
                              "nan, want a finite number")));
  EXPECT_EQ(pool_->restarts(), 0);
}

TEST_F(FailingRowsTest, OneRewardThatIsNoNumberCostsItsStep) {
  Serve("env")->factory.set_spoil([](int step, float*, v1::StepBatch* batch) {
    if (step != 3 || batch->group() != 0) return;
    const float infinite = std::numeric_limits<float>::infinity();
    std::memcpy(batch->mutable_reward()->data() + 4, &infinite, 4);  // row 1's
  });
  Start();
  ASSERT_OK(Collect());
  EXPECT_THAT(Lost(1), testing::ElementsAre(2));
  EXPECT_EQ(rollout_.valid_steps, 8 * 4 - 1);
  ExpectFinite();
}

TEST_F(FailingRowsTest, PendingRowsAreNotLearnedFromUntilTheyAreBack) {
  Serve("env")->factory.set_spoil(
      [](int step, float* seen, v1::StepBatch* batch) {
        if (batch->group() != 0 || step < 2 || step > 5) return;
        seen[0] = seen[1] = step < 5 ? 0 : 1000;
        v1::RowError* error = batch->add_error();
        error->set_row(0);
        if (step == 2) error->set_message("it broke");
      });
  Start();
  ASSERT_OK(Collect());
  // Into 2, from 2 to 4, and to 5, which starts its new episode.
  EXPECT_THAT(Lost(0), testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(rollout_.valid_steps, 8 * 4 - 4);
  EXPECT_EQ(pool_->failed_rows().failed(), 1);  // once
  EXPECT_EQ(pool_->failed_rows().Recent().lost, 4);
  // What it did not see is in no mean: 9 observations of 4 rows, but 4.
  EXPECT_EQ(normalizer_.Take()[0], 9 * 4 - 4);
  // But it goes on from what it sees when it is back, scaled as all is.
  EXPECT_EQ(rollout_.observation.leaf(0)[5][0][0].item<float>(), 10);
}

TEST_F(FailingRowsTest, ALastStepThatEveryRowLostWasPlayed) {
  Serve("env")->factory.set_spoil([](int step, float*, v1::StepBatch* batch) {
    for (int r = 0; step == 8 && r < 2; ++r) {
      batch->add_error()->set_row(r);
      batch->mutable_error(r)->set_message("it broke");
    }
  });
  Start();
  ASSERT_OK(Collect());
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_THAT(Lost(row), testing::ElementsAre(7));
  }
  EXPECT_EQ(rollout_.played, 8);
}

TEST_F(FailingRowsTest, AServerThatGoesOnIsDroppedAndAnotherLeased) {
  Serve("good");
  // The newest is leased first, and again after it was given back.
  Serve("bad")->factory.set_spoil(
      [](int, float* seen, v1::StepBatch*) { seen[0] = kNan; });
  Start();
  const std::string good = servers_[0]->server.address();
  for (int i = 0; pool_->Describe()[0].address() != good; ++i) {
    ASSERT_LT(i, 1000);
    ASSERT_OK(Collect());
    ExpectFinite();
  }
  EXPECT_EQ(pool_->restarts(), 1);
  EXPECT_THAT(leases_.released(), testing::Contains("bad"));
  ASSERT_OK(Collect());
  ASSERT_OK(Collect());
  EXPECT_EQ(rollout_.valid_steps, 8 * 4);
  EXPECT_EQ(pool_->Describe()[0].address(), good);
}

TEST_F(FailingRowsTest, ARolloutOfNothingIsCollectedAgainForAWhile) {
  Serve("env")->factory.set_spoil([](int step, float*, v1::StepBatch* batch) {
    for (int r = 0; step < 100 && r < 2; ++r) {
      batch->add_error()->set_row(r);
      batch->mutable_error(r)->set_message("it broke");
    }
  });
  Start();
  ASSERT_OK(Collect());
  EXPECT_GT(rollout_.valid_steps, 0);
  EXPECT_FALSE(stats_.preempted);
}

TEST_F(FailingRowsTest, WhereTooManyFailARolloutEndsSoThatRanksCanAgree) {
  options_.env.set_failed_seconds(0.2);
  options_.env.set_max_failed_share(0.3);
  Serve("env")->factory.set_spoil([](int, float*, v1::StepBatch* batch) {
    for (int r = 0; batch->group() == 0 && r < 2; ++r) {
      batch->add_error()->set_row(r);
      batch->mutable_error(r)->set_message("it broke");
    }
  });
  Start();
  const absl::Time began = SteadyNow();
  do {
    ASSERT_OK(Collect());
    ASSERT_LT(SteadyNow(), began + absl::Seconds(30));
  } while (rollout_.valid_steps == 8 * 2);
  // In the middle, with what the other group had played.
  EXPECT_LT(rollout_.valid_steps, 8 * 2);
  EXPECT_EQ(rollout_.valid_steps % 2, 0);
  EXPECT_TRUE(pool_->failed_rows().TooMany());
  // All of the window, which is counted in twentieths.
  EXPECT_GE(SteadyNow() - began, absl::Milliseconds(190));
  EXPECT_FALSE(stats_.preempted);
}

TEST_F(FailingRowsTest, WhoIsToldToEndDoesNotTryAgain) {
  options_.env.set_failed_seconds(3600);
  std::atomic<int> spoiled = 0;
  Serve("env")->factory.set_spoil([&](int, float*, v1::StepBatch* batch) {
    for (int r = 0; r < 2; ++r) batch->add_error()->set_row(r);
    ++spoiled;
  });
  constexpr int kOfARollout = 2 * 8;                        // of both groups
  constexpr int kTold = 2 * kOfARollout + kOfARollout / 2;  // in the third
  Collector::Options options;
  options.hurry = [&] { return spoiled >= kTold; };
  Start(options);
  ASSERT_OK(Collect());
  EXPECT_GE(spoiled, kTold);
  EXPECT_LE(spoiled, 3 * kOfARollout + 2);  // and what was asked for the next
  EXPECT_EQ(rollout_.valid_steps, 0);
}

TEST_F(FailingRowsTest, WhoIsToldToEndDoesNotWaitForAServerThatIsGone) {
  Serve("env");
  Collector::Options options;
  options.hurry = [] { return true; };
  Start(options);
  servers_.clear();
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(Collect());
    EXPECT_EQ(rollout_.valid_steps, 0);
    EXPECT_TRUE(stats_.preempted);
  }
}

TEST_F(FailingRowsTest, RewardsAreClampedAndReturnsStayRaw) {
  options_.env.set_reward_clamp(1.5);
  model_.set_normalize_rewards(false);
  policy_.action = 2;  // a reward of 2, and the episode's end
  Serve("env")->factory.set_spoil([](int step, float*, v1::StepBatch* batch) {
    for (v1::EpisodeEnd& end : *batch->mutable_episode_end()) {
      end.set_raw_return(2);
    }
    const float low = -7;
    if (step == 1) std::memcpy(batch->mutable_reward()->data(), &low, 4);
  });
  Start();
  ASSERT_OK(Collect());
  EXPECT_EQ(rollout_.reward.max().item<float>(), 1.5f);
  EXPECT_EQ(rollout_.reward[0][0].item<float>(), -1.5f);
  ASSERT_EQ(stats_.episodes.size(), 8u * 4);
  for (const auto& episode : stats_.episodes) {
    EXPECT_EQ(episode.raw_return, 2);
  }
}

}  // namespace
}  // namespace flotilla
