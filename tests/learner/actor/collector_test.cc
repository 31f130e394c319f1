#include "learner/actor/collector.h"

#include <signal.h>

#include <algorithm>

#include "gtest/gtest.h"
#include "learner/actor/env_pool.h"

namespace flotilla {
namespace {

// Pushes the cart at random; a value that says which observation it saw.
class RandomPolicy : public Policy {
 public:
  void Decide(const Observations& seen, bool, Random* rng,
              const DecisionOutput& out) override {
    Value(seen, out.value);
    for (int64_t r = 0; r < seen.rows; ++r) {
      out.discrete[r] = static_cast<int64_t>(rng->Below(2));
      out.log_prob[r] = -0.69314718f;
    }
  }
  void Value(const Observations& seen, float* value) override {
    for (int64_t r = 0; r < seen.rows; ++r) value[r] = seen.vector[r * 4];
  }
};

struct Player {
  explicit Player(const EnvWorkerOptions& options)
      : pool(EnvPool::Start(options, 0, 1).value()),
        spaces(DescribeSpaces(pool->spec()).value()),
        collector(pool.get(), spaces, options.env.num_envs(), true,
                  &normalizer) {}

  absl::Status Collect(Rollout* rollout,
                       const Preemption* preemption = nullptr) {
    return collector.Collect(&policy, &rng, {}, preemption, rollout, &stats);
  }

  std::unique_ptr<EnvPool> pool;
  Spaces spaces;
  Normalizer normalizer;
  Collector collector;
  RandomPolicy policy;
  Random rng{1};
  CollectStats stats;
};

EnvWorkerOptions CartPole(int workers, int groups) {
  EnvWorkerOptions options;
  options.env.set_id("CartPole-v1");
  options.env.set_num_envs(8);
  options.env.set_num_workers(workers);
  options.env.set_groups(groups);
  options.learner_id = "learner/0/0";
  options.name = "test";
  return options;
}

TEST(CollectorTest, RolloutsContinueEachOther) {
  Player player(CartPole(1, 2));
  Rollout first = MakeRollout(player.spaces, 20, 8, false);
  Rollout second = MakeRollout(player.spaces, 20, 8, false);
  ASSERT_TRUE(player.Collect(&first).ok());
  ASSERT_TRUE(player.Collect(&second).ok());
  EXPECT_TRUE(torch::equal(first.observation[20], second.observation[0]));
  EXPECT_EQ(first.valid_steps, 160);
  // The value recorded for a step is that of the observation recorded for it.
  EXPECT_TRUE(torch::equal(second.value, second.observation.select(2, 0)));
}

TEST(CollectorTest, GroupsAndWorkersDoNotChangeWhatIsPlayed) {
  Player one(CartPole(1, 1)), two(CartPole(1, 4));
  Rollout a = MakeRollout(one.spaces, 50, 8, false);
  Rollout b = MakeRollout(two.spaces, 50, 8, false);
  ASSERT_TRUE(one.Collect(&a).ok());
  ASSERT_TRUE(two.Collect(&b).ok());
  EXPECT_TRUE(torch::equal(a.observation, b.observation));
  EXPECT_TRUE(torch::equal(a.action, b.action));
  EXPECT_TRUE(torch::equal(a.terminated, b.terminated));
}

TEST(CollectorTest, EpisodesAreWholeEvenWhenAWorkerIsKilled) {
  Player player(CartPole(2, 2));
  Rollout r = MakeRollout(player.spaces, 100, 8, false);
  int64_t lost = 0;
  pid_t killed = 0;
  for (int i = 0; player.pool->restarts() < 3; ++i) {
    ASSERT_LT(i, 10000) << "no worker was replaced";
    const auto worker = player.pool->Describe()[1];
    if (worker.state() == "playing" && worker.pid() != killed) {
      killed = static_cast<pid_t>(worker.pid());
      kill(killed, SIGKILL);
    }
    ASSERT_TRUE(player.Collect(&r).ok());
    lost += 100 * 8 - r.valid_steps;
    // Between two ends a row's observations follow CartPole's dynamics: the
    // cart moves by its speed. A spliced episode would jump, and a step that
    // was lost has to be marked.
    const torch::Tensor x = r.observation.select(2, 0);
    const torch::Tensor speed = r.observation.select(2, 1);
    for (int64_t t = 0; t < 100; ++t) {
      for (int64_t b = 0; b < 8; ++b) {
        if (!r.valid[t][b].item<uint8_t>() ||
            r.terminated[t][b].item<uint8_t>() ||
            r.truncated[t][b].item<uint8_t>()) {
          continue;
        }
        ASSERT_NEAR(x[t + 1][b].item<float>(),
                    x[t][b].item<float>() + 0.02f * speed[t][b].item<float>(),
                    1e-5)
            << "t " << t << " b " << b;
      }
    }
  }
  EXPECT_GT(lost, 0);
  for (const auto& episode : player.stats.episodes) {
    EXPECT_EQ(episode.raw_return, episode.length);  // 1 a step, whole episodes
  }
}

// The cart moves by its speed from every valid step that no episode's end
// follows.
void ExpectNoSplice(const Rollout& r) {
  const torch::Tensor x = r.observation.select(2, 0);
  const torch::Tensor speed = r.observation.select(2, 1);
  const torch::Tensor goes_on =
      (r.valid != 0) & (r.terminated == 0) & (r.truncated == 0);
  const torch::Tensor jump =
      (x.narrow(0, 1, r.length) - x.narrow(0, 0, r.length) -
       0.02 * speed.narrow(0, 0, r.length))
          .abs();
  EXPECT_LT((jump * goes_on).max().item<float>(), 1e-5);
}

TEST(CollectorTest, APreemptedRolloutEndsShortAndTheNextContinuesIt) {
  Player player(CartPole(2, 2));
  Rollout r = MakeRollout(player.spaces, 20, 8, false);
  torch::Tensor last;
  for (int i = 0; i < 40; ++i) {
    Preemption preemption;
    int polls = 0;
    preemption.asked = [&] { return ++polls > i % 20; };
    preemption.min_steps = 5;
    ASSERT_TRUE(player.Collect(&r, &preemption).ok());
    if (last.defined()) {
      EXPECT_TRUE(torch::equal(last, r.observation[0]));
    }
    const int64_t steps = r.valid.select(1, 0).sum().item<int64_t>();
    EXPECT_GE(steps, 5);
    EXPECT_EQ(player.stats.preempted, steps < 20);
    // All that were taken, and none after.
    EXPECT_EQ(r.valid.narrow(0, 0, steps).min().item<int>(), 1);
    EXPECT_EQ(r.valid_steps, steps * 8);
    ExpectNoSplice(r);
    last = r.observation[steps].clone();
  }
}

TEST(CollectorTest, ALateStepOpensTheNextRollout) {
  Player player(CartPole(2, 1));
  Rollout r = MakeRollout(player.spaces, 20, 8, false);
  ASSERT_TRUE(player.Collect(&r).ok());
  const auto stuck = static_cast<pid_t>(player.pool->Describe()[1].pid());
  kill(stuck, SIGSTOP);
  Preemption preemption;
  preemption.asked = [] { return true; };
  preemption.min_steps = 1;
  ASSERT_TRUE(player.Collect(&r, &preemption).ok());
  EXPECT_TRUE(player.stats.preempted);
  EXPECT_EQ(r.valid.narrow(1, 4, 4).sum().item<int64_t>(), 0);
  ExpectNoSplice(r);
  kill(stuck, SIGCONT);
  ASSERT_TRUE(player.Collect(&r).ok());
  EXPECT_EQ(r.valid_steps, 20 * 8);
  ExpectNoSplice(r);
  EXPECT_EQ(player.pool->restarts(), 0);
}

TEST(CollectorTest, ATimeLimitBootstrapsFromTheFinalObservation) {
  EnvWorkerOptions options = CartPole(1, 2);
  options.env.mutable_options()->set_max_episode_steps(5);
  Player player(options);
  Rollout r = MakeRollout(player.spaces, 12, 8, false);
  ASSERT_TRUE(player.Collect(&r).ok());
  int truncations = 0;
  for (int64_t t = 0; t < 12; ++t) {
    for (int64_t b = 0; b < 8; ++b) {
      if (!r.truncated[t][b].item<uint8_t>()) continue;
      ++truncations;
      // The policy's value is the cart's place, which the dynamics give.
      const float x = r.observation[t][b][0].item<float>();
      const float speed = r.observation[t][b][1].item<float>();
      EXPECT_NEAR(r.bootstrap_value[t][b].item<float>(), x + 0.02f * speed,
                  1e-5);
    }
  }
  EXPECT_EQ(truncations, 8 * 2);
}

}  // namespace
}  // namespace flotilla
