#include "learner/actor/rollouts_ahead.h"

#include <signal.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "services/base/config.h"
#include "services/base/steady_now.h"

namespace flotilla {
namespace {

constexpr int64_t kT = 16, kB = 8;

// Pushes the cart at random; its value is its version.
class VersionPolicy : public Policy {
 public:
  VersionPolicy(int64_t version, std::atomic<int64_t>* decided)
      : version_(version), decided_(decided) {}
  void Decide(const Observations& seen, bool, Draws* draws,
              const DecisionOutput& out) override {
    if (*decided_ < 0) throw std::runtime_error("as Torch does");
    Value(seen, out.value);
    for (int64_t r = 0; r < seen.rows; ++r) {
      out.discrete[r] = static_cast<int64_t>(draws->Bits() % 2);
      out.log_prob[r] = -0.69314718f;
    }
    *decided_ += seen.rows;
  }
  void Value(const Observations& seen, float* value) override {
    for (int64_t r = 0; r < seen.rows; ++r) value[r] = version_;
  }

 private:
  const int64_t version_;
  std::atomic<int64_t>* const decided_;
};

// A source over a real env worker, and a count of the policies it froze.
struct Learner {
  explicit Learner(const v1::RunConfig& config) {
    EnvWorkerOptions workers;
    workers.env = config.env();
    workers.seed = config.seed();
    workers.learner_id = "learner/0/0";
    workers.name = "test";
    pool = EnvPool::Start(workers, 0, 1).value();
    RolloutSourceOptions options;
    options.config = config;
    options.spaces = DescribeSpaces(pool->spec(), config.model()).value();
    options.pool = pool.get();
    normalizer = Normalizer(config.model(), Discount(config),
                            options.spaces.normalized(), kB);
    options.normalizer = &normalizer;
    options.live_policy = &live;
    options.opponents = [] { return nullptr; };
    options.freeze = [this] {
      return std::make_unique<VersionPolicy>(version++, &decided);
    };
    source = MakeRolloutSource(options);
    source->Begin(/*rank=*/0, fence.get_token());
  }

  // Until the actor has begun `rollouts` of them in all and is at their end.
  void AwaitRollouts(int64_t rollouts) {
    const absl::Time deadline = SteadyNow() + absl::Seconds(20);
    while (decided < rollouts * kT * kB) {
      ASSERT_LT(SteadyNow(), deadline) << decided / (kT * kB) << " rollouts";
      std::this_thread::yield();
    }
  }

  // Ends its generation by the `fence_at`th row that it decides for.
  struct Live : VersionPolicy {
    explicit Live(Learner* learner)
        : VersionPolicy(0, &learner->decided), learner(learner) {}
    void Decide(const Observations& seen, bool greedy, Draws* draws,
                const DecisionOutput& out) override {
      VersionPolicy::Decide(seen, greedy, draws, out);
      if (learner->decided == learner->fence_at) learner->fence.request_stop();
    }
    Learner* learner;
  };

  std::atomic<int64_t> decided = 0;  // by all policies
  int64_t fence_at = -1;
  Live live{this};
  int64_t version = 0;  // of the next policy
  std::unique_ptr<EnvPool> pool;
  Normalizer normalizer;
  std::stop_source fence;
  std::unique_ptr<RolloutSource> source;
};

v1::RunConfig Config(bool deterministic_lag) {
  v1::RunConfig config;
  config.mutable_impala()->set_deterministic_lag(deterministic_lag);
  config.mutable_env()->set_id("CartPole-v1");
  config.mutable_env()->set_num_envs(kB);
  config.mutable_rollout()->set_length(kT);
  return config;
}

TEST(RolloutsAheadTest, OneAheadLagsOneUpdateAndRepeatsExactly) {
  Learner one(Config(true)), two(Config(true));
  for (int64_t u = 0; u < 12; ++u) {
    const auto a = one.source->Next(u, nullptr),
               b = two.source->Next(u, nullptr);
    ASSERT_TRUE(a.ok() && b.ok());
    const int64_t version = u == 0 ? 0 : u - 1;
    EXPECT_EQ(a->rollout->policy_version, version);
    EXPECT_EQ(a->policy_lag, u - version);
    EXPECT_EQ(a->dropped, 0);
    EXPECT_EQ(a->env_steps, kT * kB);
    EXPECT_TRUE((a->rollout->value == version).all().item<bool>());
    EXPECT_TRUE(torch::equal(a->rollout->observation.leaf(0),
                             b->rollout->observation.leaf(0)));
    EXPECT_TRUE(
        torch::equal(a->rollout->action.discrete, b->rollout->action.discrete));
  }
}

// The same for any algorithm.
TEST(RolloutsAheadTest, OverlapOneUpdateIsOneAhead) {
  v1::RunConfig config = Config(true);
  config.mutable_ppo();
  config.mutable_rollout()->set_overlap_one_update(true);
  Learner learner(config);
  for (int64_t u = 0; u < 3; ++u) {
    const auto got = learner.source->Next(u, nullptr);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->policy_lag, u == 0 ? 0 : 1);
  }
}

TEST(RolloutsAheadTest, AFullQueueHoldsTheActorBack) {
  v1::RunConfig config = Config(false);
  config.mutable_rollout()->set_queue_capacity(2);
  config.mutable_rollout()->set_max_policy_lag(100);
  Learner learner(config);
  for (int64_t u = 0; u < 20; ++u) {
    const auto got = learner.source->Next(u, nullptr);
    ASSERT_TRUE(got.ok());
    // Those taken, two that wait, and one that finds no room.
    const int64_t most = u + 1 + 2 + 1;
    learner.AwaitRollouts(most);
    EXPECT_EQ(learner.decided, most * kT * kB);
    EXPECT_LE(got->policy_lag, 4);
  }
}

TEST(RolloutsAheadTest, RolloutsThatAreTooOldAreDroppedAndCounted) {
  v1::RunConfig config = Config(false);
  config.mutable_rollout()->set_queue_capacity(4);
  config.mutable_rollout()->set_max_policy_lag(2);
  config.mutable_env()->mutable_options()->set_max_episode_steps(kT / 2);
  config.mutable_model()->set_normalize_observations(true);
  Learner learner(config);
  ASSERT_TRUE(learner.source->Next(0, nullptr).ok());
  learner.AwaitRollouts(1 + 4 + 1);
  learner.version = 10;
  const auto got = learner.source->Next(10, nullptr);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->dropped, 5);
  EXPECT_EQ(got->rollout->policy_version, 10);
  EXPECT_EQ(got->policy_lag, 0);
  // What was played was played.
  EXPECT_EQ(got->env_steps, 6 * kT * kB);
  EXPECT_GE(got->stats.episodes.size(), 6 * kB);
  EXPECT_EQ(got->noted[0], 6 * kT * kB);
}

TEST(RolloutsAheadTest, ALagAtTheLimitIsKept) {
  v1::RunConfig config = Config(false);
  config.mutable_rollout()->set_max_policy_lag(2);
  Learner learner(config);
  ASSERT_TRUE(learner.source->Next(0, nullptr).ok());
  learner.AwaitRollouts(3);
  const auto got = learner.source->Next(2, nullptr);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->policy_lag, 2);
  EXPECT_EQ(got->dropped, 0);
}

TEST(RolloutsAheadTest, AFenceEndsEveryWaitAndTheNextGenerationGoesOn) {
  for (const bool deterministic_lag : {false, true}) {
    Learner learner(Config(deterministic_lag));
    int64_t u = 0;
    for (int generation = 0; generation < 3; ++generation) {
      std::thread fencing([&] {
        learner.AwaitRollouts(1 + learner.decided / (kT * kB));
        learner.fence.request_stop();
      });
      absl::Status status;
      while (status.ok()) status = learner.source->Next(u++, nullptr).status();
      fencing.join();
      EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
      learner.source->End();
      const int64_t decided = learner.decided;
      learner.version = u = 40 * (generation + 1);
      learner.fence = std::stop_source();
      learner.source->Begin(/*rank=*/0, learner.fence.get_token());
      EXPECT_EQ(learner.decided, decided);  // nobody plays without a policy
      const auto got = learner.source->Next(u, nullptr);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->rollout->policy_version, u);
      EXPECT_TRUE((got->rollout->value == u).all().item<bool>());
      ++u;
    }
  }
}

// The trainer gives up a generation for its own reasons too.
TEST(RolloutsAheadTest, EndNeedsNoFence) {
  Learner learner(Config(false));
  ASSERT_TRUE(learner.source->Next(0, nullptr).ok());
  learner.source->End();
  learner.source->End();
  const int64_t decided = learner.decided;
  EXPECT_LE(decided, 7 * kT * kB);
}

TEST(RolloutsAheadTest, WhatAPolicyThrowsReachesTheTrainer) {
  Learner learner(Config(false));
  learner.decided = -1;
  EXPECT_EQ(learner.source->Next(0, nullptr).status(),
            absl::InternalError("as Torch does"));
}

TEST(RolloutsAheadTest, ALostWorkersErrorReachesTheTrainer) {
  v1::RunConfig config = Config(false);
  config.mutable_env()->set_max_worker_restarts(0);
  Learner learner(config);
  ASSERT_TRUE(learner.source->Next(0, nullptr).ok());
  kill(static_cast<pid_t>(learner.pool->Describe()[0].pid()), SIGKILL);
  absl::Status status;
  for (int64_t u = 1; status.ok(); ++u) {
    ASSERT_LT(u, 100000);
    status = learner.source->Next(u, nullptr).status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(RolloutsAheadTest, AKilledWorkerIsReplacedWhileTheLearnerLearns) {
  Learner learner(Config(false));
  ASSERT_TRUE(learner.source->Next(0, nullptr).ok());
  kill(static_cast<pid_t>(learner.pool->Describe()[0].pid()), SIGKILL);
  int64_t lost = 0, u = 1;
  for (; lost == 0; ++u) {
    ASSERT_LT(u, 100000);
    const auto got = learner.source->Next(u, nullptr);
    ASSERT_TRUE(got.ok()) << got.status();
    lost += kT * kB - got->rollout->valid_steps;
    EXPECT_EQ(got->env_steps, got->rollout->valid_steps);
  }
  EXPECT_EQ(learner.pool->restarts(), 1);
  ASSERT_TRUE(learner.source->Next(u, nullptr).ok());
}

// Who learns from none of a rollout notes none of what it saw.
TEST(RolloutsWhenAskedTest, OfARolloutThatIsCutOffNothingIsNoted) {
  v1::RunConfig config = Config(false);
  config.mutable_ppo();
  config.mutable_model()->set_normalize_observations(true);
  Learner learner(config);
  ASSERT_TRUE(learner.source->Next(0, nullptr).ok());
  learner.fence_at = learner.decided + kB * kT / 2;
  ASSERT_FALSE(learner.source->Next(1, nullptr).ok());
  learner.source->Begin(/*rank=*/0, std::stop_source().get_token());
  const auto after = learner.source->Next(1, nullptr);
  ASSERT_TRUE(after.ok());
  // As of the first: with the step that opens it.
  EXPECT_EQ(after->noted[0], (kT + 1) * kB);
}

TEST(RolloutsAheadTest, ScalingIsThatOfThePolicyAndNotesTravelAlong) {
  v1::RunConfig config = Config(true);
  config.mutable_model()->set_normalize_observations(true);
  Learner learner(config);
  const auto first = learner.source->Next(0, nullptr);
  ASSERT_TRUE(first.ok());
  ASSERT_EQ(first->noted.size(), 1u + 2 * 4);
  EXPECT_EQ(first->noted[0], (kT + 1) * kB);
  // Nothing was added yet: observations are as they are.
  const float raw =
      first->rollout->observation.leaf(0).abs().max().item<float>();
  learner.normalizer.Add(first->noted);
  ASSERT_TRUE(learner.source->Next(1, nullptr).ok());  // begun before that
  const auto scaled = learner.source->Next(2, nullptr);
  ASSERT_TRUE(scaled.ok());
  EXPECT_EQ(scaled->noted[0], kT * kB);
  EXPECT_NEAR(scaled->rollout->observation.leaf(0).std().item<float>(), 1, 0.5);
  EXPECT_GT(scaled->rollout->observation.leaf(0).abs().max().item<float>(),
            raw / 2);
}

}  // namespace
}  // namespace flotilla
