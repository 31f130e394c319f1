#include "learner/actor/lockstep_collector.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <functional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "learner/actor/env_pool.h"
#include "learner/nn/policies.h"

namespace flotilla {
namespace {

// Pushes the cart at random; a value that says which observation it saw.
class RandomPolicy : public Policy {
 public:
  void Decide(const Observations& seen, bool, Draws* draws,
              const DecisionOutput& out) override {
    Value(seen, out.value);
    for (int64_t r = 0; r < seen.rows; ++r) {
      out.discrete[r] = static_cast<int64_t>(draws->Bits() % 2);
      out.log_prob[r] = -0.69314718f;
    }
  }
  void Value(const Observations& seen, float* value) override {
    const auto* vector = static_cast<const float*>(seen.leaf[0]);
    for (int64_t r = 0; r < seen.rows; ++r) value[r] = vector[r * 4];
  }
};

// Counts the steps that each row remembers. The value is that count, so a
// bootstrap value tells from which state it was computed.
class CountingPolicy : public Policy {
 public:
  void Decide(const Observations& seen, bool, Draws* draws,
              const DecisionOutput& out) override {
    Value(seen, out.value);
    for (int64_t r = 0; r < seen.rows; ++r) {
      out.discrete[r] = static_cast<int64_t>(draws->Bits() % 2);
      out.log_prob[r] = 0;
      for (int i = 0; i < 2; ++i)
        out.state[2 * r + i] = seen.state[2 * r + i] + 1;
    }
  }
  void Value(const Observations& seen, float* value) override {
    for (int64_t r = 0; r < seen.rows; ++r) value[r] = seen.state[2 * r + 1];
  }
  int64_t state_size() const override { return 2; }
};

struct Player {
  explicit Player(const EnvWorkerOptions& options,
                  const Collector::Options& collecting = {},
                  const v1::ModelConfig& model = {})
      : pool(EnvPool::Start(options, 0, 1).value()),
        spaces(DescribeSpaces(pool->spec(), model).value()),
        collector(pool.get(), spaces, collecting, &normalizer) {}

  absl::Status Collect(Rollout* rollout,
                       const Preemption* preemption = nullptr) {
    return collector.Collect(&policy, &draws, {}, preemption, rollout, &stats);
  }

  std::unique_ptr<EnvPool> pool;
  Spaces spaces;
  Normalizer normalizer;
  LockstepCollector collector;
  RandomPolicy policy;
  Draws draws{1};
  CollectStats stats;
};

// The vectors of all steps, [T + 1, B, D].
torch::Tensor Seen(const Rollout& r) { return r.observation.leaf(0); }

// SIGSTOP, and waits until every thread stands still.
void Stop(pid_t child) {
  kill(child, SIGSTOP);
  siginfo_t stopped;
  ASSERT_EQ(waitid(P_PID, child, &stopped, WSTOPPED | WNOWAIT), 0);
}

// Asks once `passes` is over. Steps on their way get as long as two have taken
// until then: no worker that is well may be late.
bool AskAfter(absl::Duration passes) {
  absl::SleepFor(passes);
  return true;
}

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

TEST(LockstepCollectorTest, RolloutsContinueEachOther) {
  Player player(CartPole(1, 2));
  Rollout first = MakeRollout(player.spaces, 20, 8, false);
  Rollout second = MakeRollout(player.spaces, 20, 8, false);
  ASSERT_TRUE(player.Collect(&first).ok());
  ASSERT_TRUE(player.Collect(&second).ok());
  EXPECT_TRUE(torch::equal(Seen(first)[20], Seen(second)[0]));
  EXPECT_EQ(first.valid_steps, 160);
  // The value recorded for a step is that of the observation recorded for it.
  EXPECT_TRUE(torch::equal(second.value, Seen(second).select(2, 0)));
}

TEST(LockstepCollectorTest, GroupsAndWorkersDoNotChangeWhatIsPlayed) {
  Player one(CartPole(1, 1)), two(CartPole(1, 4));
  Rollout a = MakeRollout(one.spaces, 50, 8, false);
  Rollout b = MakeRollout(two.spaces, 50, 8, false);
  ASSERT_TRUE(one.Collect(&a).ok());
  ASSERT_TRUE(two.Collect(&b).ok());
  EXPECT_TRUE(torch::equal(Seen(a), Seen(b)));
  EXPECT_TRUE(torch::equal(a.action.discrete, b.action.discrete));
  EXPECT_TRUE(torch::equal(a.terminated, b.terminated));
}

TEST(LockstepCollectorTest, EpisodesAreWholeEvenWhenAWorkerIsKilled) {
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
    const torch::Tensor x = Seen(r).select(2, 0);
    const torch::Tensor speed = Seen(r).select(2, 1);
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
  const torch::Tensor x = Seen(r).select(2, 0);
  const torch::Tensor speed = Seen(r).select(2, 1);
  const torch::Tensor goes_on =
      (r.valid != 0) & (r.terminated == 0) & (r.truncated == 0);
  const torch::Tensor jump =
      (x.narrow(0, 1, r.length) - x.narrow(0, 0, r.length) -
       0.02 * speed.narrow(0, 0, r.length))
          .abs();
  EXPECT_LT((jump * goes_on).max().item<float>(), 1e-5);
}

TEST(LockstepCollectorTest, APreemptedRolloutEndsShortAndTheNextContinuesIt) {
  Player player(CartPole(2, 2));
  Rollout r = MakeRollout(player.spaces, 20, 8, false);
  torch::Tensor last;
  for (int i = 0; i < 40; ++i) {
    Preemption preemption;
    int polls = 0;
    preemption.asked = [&] {
      return ++polls > i % 20 && AskAfter(absl::Milliseconds(200));
    };
    preemption.min_steps = 5;
    ASSERT_TRUE(player.Collect(&r, &preemption).ok());
    if (last.defined()) {
      EXPECT_TRUE(torch::equal(last, Seen(r)[0]));
    }
    const int64_t steps = r.valid.select(1, 0).sum().item<int64_t>();
    EXPECT_GE(steps, 5);
    EXPECT_EQ(r.played, steps);
    EXPECT_EQ(player.stats.preempted, steps < 20);
    // All that were taken, and none after.
    EXPECT_EQ(r.valid.narrow(0, 0, steps).min().item<int>(), 1);
    EXPECT_EQ(r.valid_steps, steps * 8);
    ExpectNoSplice(r);
    last = Seen(r)[steps].clone();
  }
}

TEST(LockstepCollectorTest, ALateStepOpensTheNextRollout) {
  Player player(CartPole(2, 1));
  Rollout r = MakeRollout(player.spaces, 20, 8, false);
  ASSERT_TRUE(player.Collect(&r).ok());
  const auto stuck = static_cast<pid_t>(player.pool->Describe()[1].pid());
  Stop(stuck);
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

// Its worker hangs, which it is not failed for: it may not be restarted again.
TEST(LockstepCollectorTest, WhoIsToldToEndDoesNotWaitForAStepThatDoesNotCome) {
  EnvWorkerOptions options = CartPole(2, 1);
  options.env.set_max_worker_restarts(0);
  bool ends = false;
  Player player(options, {.hurry = [&] { return ends; }});
  Rollout r = MakeRollout(player.spaces, 20, 8, false);
  ASSERT_TRUE(player.Collect(&r).ok());
  EXPECT_EQ(r.valid_steps, 20 * 8);
  const auto stuck = static_cast<pid_t>(player.pool->Describe()[1].pid());
  Stop(stuck);
  ends = true;
  ASSERT_TRUE(player.Collect(&r).ok());
  EXPECT_TRUE(player.stats.preempted);
  EXPECT_EQ(r.valid_steps, 4);  // a step of the other worker's rows
  ExpectNoSplice(r);
  // The next begins with a step that is late already.
  ASSERT_TRUE(player.Collect(&r).ok());
  EXPECT_TRUE(player.stats.preempted);
  EXPECT_EQ(r.valid_steps, 0);
  ends = false;
  kill(stuck, SIGCONT);
  ASSERT_TRUE(player.Collect(&r).ok());
  EXPECT_EQ(r.valid_steps, 20 * 8);
  ExpectNoSplice(r);
  EXPECT_EQ(player.pool->restarts(), 0);
}

// Four steps, and a fifth that the rows of the second worker, 4 to 7, take too late:
// it opens the rollout that is collected next. No pole falls as soon.
void TakeAFifthStepLate(Player* player, Rollout* r) {
  ASSERT_TRUE(player->Collect(r).ok());
  const auto stuck = static_cast<pid_t>(player->pool->Describe()[1].pid());
  Stop(stuck);
  Preemption preemption;
  preemption.asked = [] { return AskAfter(absl::Milliseconds(100)); };
  ASSERT_TRUE(player->Collect(r, &preemption).ok());
  ASSERT_EQ(r->valid_steps, 4);
  kill(stuck, SIGCONT);
}

// Its frames are those that led to it, unless it has ended its episode.
TEST(LockstepCollectorTest, StacksGoOnWhereAStepCameLate) {
  v1::ModelConfig model;
  model.add_leaf()->set_frame_stack(3);
  for (const int limit : {5, 100}) {
    EnvWorkerOptions options = CartPole(2, 1);
    options.env.mutable_options()->set_max_episode_steps(limit);
    Player player(options, {}, model);
    Rollout r = MakeRollout(player.spaces, 4, 8, false);
    TakeAFifthStepLate(&player, &r);
    ASSERT_TRUE(player.Collect(&r).ok());
    for (int64_t b = 0; b < 8; ++b) {
      ASSERT_EQ(r.observation.age()[0][b].item<int>(), limit == 5 ? 0 : 2)
          << "row " << b;
      for (int64_t array = 0; array < 2 && limit > 5; ++array) {
        const torch::Tensor before = Seen(r)[array][b];
        EXPECT_NEAR(Seen(r)[array + 1][b][0].item<float>(),
                    before[0].item<float>() + 0.02f * before[1].item<float>(),
                    1e-5)
            << "row " << b << ", array " << array;
      }
    }
  }
}

// Of which nobody hears what it earned.
TEST(LockstepCollectorTest, AnEpisodeThatALateStepEndedEarnsNothingMore) {
  EnvWorkerOptions options = CartPole(2, 1);
  options.env.mutable_options()->set_max_episode_steps(5);
  Player player(options);
  v1::ModelConfig model;
  model.set_normalize_rewards(true);
  player.normalizer = Normalizer(model, 0.9, /*features=*/4, /*rows=*/8);
  Rollout r = MakeRollout(player.spaces, 4, 8, false);
  TakeAFifthStepLate(&player, &r);
  player.normalizer.Take();
  ASSERT_TRUE(player.Collect(&r).ok());
  ASSERT_EQ(r.valid_steps, 4 * 8);
  const std::vector<double> taken = player.normalizer.Take();
  ASSERT_EQ(taken.size(), 3u);  // of returns alone: count, sum, squares
  EXPECT_EQ(taken[0], 4 * 8);
  // Rewards of 1 in all rows, each in an episode that has just begun.
  EXPECT_NEAR(taken[1], 8 * (1 + 1.9 + 2.71 + 3.439), 1e-6);
}

// Calls `at_end` when the first slot's last step is looked at.
class LastStepPolicy : public RandomPolicy {
 public:
  explicit LastStepPolicy(std::function<void()> at_end)
      : at_end_(std::move(at_end)) {}
  void Decide(const Observations& seen, bool greedy, Draws* draws,
              const DecisionOutput& out) override {
    deciding_ = true;
    RandomPolicy::Decide(seen, greedy, draws, out);
    deciding_ = false;
  }
  void Value(const Observations& seen, float* value) override {
    RandomPolicy::Value(seen, value);
    if (!deciding_ && at_end_) std::exchange(at_end_, nullptr)();
  }

 private:
  std::function<void()> at_end_;
  bool deciding_ = false;
};

// A generation that ends between two slots of a rollout's last step.
TEST(LockstepCollectorTest,
     WhatCameForALastStepThatWasNotFinishedOpensTheNext) {
  Player player(CartPole(1, 2));
  Rollout r = MakeRollout(player.spaces, 20, 8, false);
  ASSERT_TRUE(player.Collect(&r).ok());
  for (int i = 0; i < 5; ++i) {
    std::stop_source stop;
    LastStepPolicy policy([&] { stop.request_stop(); });
    EXPECT_TRUE(absl::IsCancelled(player.collector.Collect(
        &policy, &player.draws, stop.get_token(), nullptr, &r, &player.stats)));
    ASSERT_TRUE(player.Collect(&r).ok());
    ExpectNoSplice(r);
    EXPECT_EQ(r.valid_steps, 20 * 8);
  }
}

// And the worker of all is lost before the last has answered.
TEST(LockstepCollectorTest, WhatALostWorkerSentForALastStepIsNotLookedAtAgain) {
  // Before another worker came. Often all have answered by the time that the first's
  // answer is looked at; of eight slots seldom.
  bool stopped = false;
  for (int i = 0; i < 400 && !stopped; ++i) {
    Player player(CartPole(1, 8));
    Rollout r = MakeRollout(player.spaces, 20, 8, false);
    ASSERT_TRUE(player.Collect(&r).ok());
    std::stop_source stop;
    std::jthread stopper;
    const int64_t before = player.pool->restarts();
    LastStepPolicy policy([&] {
      kill(static_cast<pid_t>(player.pool->Describe()[0].pid()), SIGKILL);
      stopper = std::jthread([&](std::stop_token over) {
        while (player.pool->restarts() == before && !over.stop_requested()) {
          std::this_thread::yield();
        }
        stop.request_stop();
      });
    });
    const absl::Status status = player.collector.Collect(
        &policy, &player.draws, stop.get_token(), nullptr, &r, &player.stats);
    stopped = absl::IsCancelled(status);
    EXPECT_TRUE(stopped || status.ok()) << status;
    ASSERT_TRUE(player.Collect(&r).ok());
    ExpectNoSplice(r);
  }
  EXPECT_TRUE(stopped);
}

TEST(LockstepCollectorTest, ATimeLimitBootstrapsFromTheFinalObservation) {
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
      const float x = Seen(r)[t][b][0].item<float>();
      const float speed = Seen(r)[t][b][1].item<float>();
      EXPECT_NEAR(r.bootstrap_value[t][b].item<float>(), x + 0.02f * speed,
                  1e-5);
    }
  }
  EXPECT_EQ(truncations, 8 * 2);
}

// A maze of one way: right is the way in half of the mazes of this size.
TEST(LockstepCollectorTest, TheTasksOwnMetricsComeWithTheEpisode) {
  EnvWorkerOptions options = CartPole(1, 1);
  options.env.set_id("Maze");
  options.env.mutable_options()->mutable_maze()->set_size(5);
  Player player(options);
  class Walk : public RandomPolicy {
    void Decide(const Observations& seen, bool greedy, Draws* draws,
                const DecisionOutput& out) override {
      RandomPolicy::Decide(seen, greedy, draws, out);
      for (int64_t r = 0; r < seen.rows; ++r) {
        out.discrete[r] = static_cast<int64_t>(draws->Bits() % 4);
      }
    }
  } policy;
  Rollout r = MakeRollout(player.spaces, 300, 8, false);
  ASSERT_TRUE(
      player.collector
          .Collect(&policy, &player.draws, {}, nullptr, &r, &player.stats)
          .ok());
  ASSERT_EQ(player.pool->spec().episode_metric(0), "spl");
  int successes = 0;
  for (const auto& episode : player.stats.episodes) {
    ASSERT_EQ(episode.metrics.size(), 2u);
    EXPECT_EQ(episode.metrics[1], episode.raw_return);
    const double spl = episode.metrics[0];
    if (episode.metrics[1] == 0) {
      EXPECT_EQ(spl, 0);
      continue;
    }
    ++successes;
    // Every way from corner to corner of two by two cells has four steps.
    EXPECT_DOUBLE_EQ(spl, 4.0 / episode.length);
  }
  EXPECT_GT(successes, 0);
}

// What rows remember: carried over rollouts, forgotten at an episode's end and
// with a lost worker; a final observation's value comes from before that.
TEST(LockstepCollectorTest, StateLastsAnEpisodeEvenWhenAWorkerIsKilled) {
  EnvWorkerOptions options = CartPole(2, 2);
  options.env.mutable_options()->set_max_episode_steps(20);
  Player player(options);
  CountingPolicy policy;
  const int64_t T = 50;
  Rollout r = MakeRollout(player.spaces, T, 8, false, policy.state_size());
  std::vector<float> remembered(8, 0.0f);
  int64_t truncations = 0, terminations = 0, lost = 0;
  for (int i = 0; player.pool->restarts() < 2 || i < 4; ++i) {
    ASSERT_LT(i, 10000) << "no worker was replaced";
    const auto worker = player.pool->Describe()[1];
    if (i >= 2 && worker.state() == "playing") {
      kill(static_cast<pid_t>(worker.pid()), SIGKILL);
    }
    ASSERT_TRUE(
        player.collector
            .Collect(&policy, &player.draws, {}, nullptr, &r, &player.stats)
            .ok());
    for (int64_t b = 0; b < 8; ++b) {
      // A worker may be lost between two rollouts: nothing is remembered then.
      float count = r.initial_state[b][0].item<float>();
      ASSERT_TRUE(count == remembered[b] || (count == 0 && b >= 4));
      for (int64_t t = 0; t < T; ++t) {
        if (!r.valid[t][b].item<uint8_t>()) {
          ++lost;
          count = 0;
          continue;
        }
        ASSERT_EQ(r.value[t][b].item<float>(), count)
            << "t " << t << " b " << b;
        ++count;
        if (r.truncated[t][b].item<uint8_t>()) {
          ++truncations;
          ASSERT_EQ(r.bootstrap_value[t][b].item<float>(), 20);
          count = 0;
        } else if (r.terminated[t][b].item<uint8_t>()) {
          ++terminations;
          count = 0;
        }
      }
      // Valued and not advanced.
      ASSERT_TRUE(r.value[T][b].item<float>() == count || b >= 4);
      remembered[b] = count;
    }
  }
  EXPECT_GT(truncations, 0);
  EXPECT_GT(terminations, 0);
  EXPECT_GT(lost, 0);
}

TEST(LockstepCollectorTest, StateGoesOnWhereAStepCameLate) {
  Player player(CartPole(2, 1));
  CountingPolicy policy;
  Rollout r = MakeRollout(player.spaces, 4, 8, false, policy.state_size());
  auto collect = [&](const Preemption* preemption) {
    return player.collector.Collect(&policy, &player.draws, {}, preemption, &r,
                                    &player.stats);
  };
  ASSERT_TRUE(collect(nullptr).ok());
  const auto stuck = static_cast<pid_t>(player.pool->Describe()[1].pid());
  Stop(stuck);
  Preemption preemption;
  preemption.asked = [] { return AskAfter(absl::Milliseconds(100)); };
  ASSERT_TRUE(collect(&preemption).ok());
  kill(stuck, SIGCONT);
  EXPECT_EQ(r.valid_steps, 4);
  ASSERT_TRUE(collect(nullptr).ok());
  // Five decisions in every row, and no episode of CartPole is as short.
  EXPECT_EQ(r.initial_state.min().item<float>(), 5);
  EXPECT_EQ(r.initial_state.max().item<float>(), 5);
}

TEST(LockstepCollectorTest, StateIsZeroedAtEachRolloutsStartWhereAsked) {
  Player player(CartPole(1, 2), {.reset_state = true});
  CountingPolicy policy;
  Rollout r = MakeRollout(player.spaces, 4, 8, false, policy.state_size());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(
        player.collector
            .Collect(&policy, &player.draws, {}, nullptr, &r, &player.stats)
            .ok());
    EXPECT_EQ(r.initial_state.abs().max().item<float>(), 0);
    EXPECT_EQ(r.value[0].max().item<float>(), 0);
    // No episode of CartPole is as short as the first rollout.
    if (i == 0) {
      EXPECT_EQ(r.value[4].min().item<float>(), 4);
    }
  }
}

// Replaying a rollout from its initial state gives what the actor decided.
TEST(LockstepCollectorTest, ARecurrentNetworksDecisionsAreThoseOfTheReplay) {
  for (const auto& [cell, reset_state] :
       {std::pair(v1::LSTM, false), std::pair(v1::GRU, false),
        std::pair(v1::LSTM, true), std::pair(v1::GRU, true)}) {
    EnvWorkerOptions options = CartPole(1, 2);
    options.env.mutable_options()->set_max_episode_steps(15);
    Player player(options, {.reset_state = reset_state});
    v1::ModelConfig model;
    model.set_recurrent(cell);
    model.set_recurrent_size(16);
    model.set_recurrent_layers(2);
    const auto net = MakeNetwork(player.spaces, model, torch::kCPU).value();
    net->Initialize(1);
    torch::manual_seed(1);
    net->parameters().add_(0.2 * torch::randn_like(net->parameters()));
    const auto policy = MakeNetworkPolicy(net.get(), player.spaces);
    const int64_t T = 40;
    Rollout r = MakeRollout(player.spaces, T, 8, false, policy->state_size());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(player.collector
                      .Collect(policy.get(), &player.draws, {}, nullptr, &r,
                               &player.stats)
                      .ok());
      EXPECT_EQ(r.initial_state.abs().sum().item<float>() > 0,
                i > 0 && !reset_state);
      EXPECT_GE(Starts(r).narrow(0, 0, T).sum().item<int64_t>(), 16);
      torch::NoGradGuard no_grad;
      Sequences sequences;
      sequences.state = r.initial_state;
      sequences.keep =
          (1 - Starts(r).narrow(0, 0, T)).to(torch::kFloat32).unsqueeze(2);
      const NetworkOutput out =
          net->Forward({{Seen(r).narrow(0, 0, T).flatten(0, 1)}}, sequences);
      const torch::Tensor log_prob =
          torch::log_softmax(out.policy, 1)
              .gather(1, r.action.discrete.flatten(0, 1))
              .view({T, 8});
      EXPECT_TRUE(torch::allclose(log_prob, r.log_prob, 0, 1e-5));
      EXPECT_TRUE(torch::allclose(out.value.view({T, 8}),
                                  r.value.narrow(0, 0, T), 0, 1e-5));
    }
  }
}

}  // namespace
}  // namespace flotilla
