#include "envserver/thread_vector_env.h"

#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <latch>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "envserver/envs/cartpole.h"
#include "services/base/random.h"
#include "services/base/steady_now.h"
#include "tests/envserver/vector_env_rig.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What one fake environment does, by the number of its step.
struct Plan {
  int64_t limit = 0;
  std::map<int, Outcome> outcome;
  std::map<int, std::string> failure;  // "throw": throws
  std::function<void()> on_step;
  std::function<bool(v1::EpisodeEnd*)> game_over;
  std::set<int> broken_makes;  // by the number of the call
  std::set<int> broken_resets;

  std::atomic<int> makes = 0;
  std::atomic<int> resets = 0;
};

v1::EnvSpec Limit(int64_t steps) {
  v1::EnvSpec spec;
  spec.set_max_episode_steps(steps);
  return spec;
}

// Observes its seed and its steps since the reset.
class FakeEnvironment final : public Environment {
 public:
  explicit FakeEnvironment(Plan* plan) : plan_(*plan) {
    spec_.set_env_id("Fake");
    v1::Leaf* leaf = spec_.add_observation();
    leaf->set_path("seed");
    leaf->set_dtype(v1::INT64);
    leaf = spec_.add_observation();
    leaf->set_path("step");
    leaf->set_dtype(v1::UINT8);
    leaf->add_shape(3);
    leaf = spec_.add_action();
    leaf->set_dtype(v1::INT64);
    leaf->set_num_values(10);
    spec_.set_max_episode_steps(plan->limit);
  }

  const v1::EnvSpec& spec() const override { return spec_; }

  absl::Status Reset(uint64_t seed, Row observation) override {
    const int reset = plan_.resets++;
    if (plan_.broken_resets.contains(reset)) {
      return absl::InternalError("no reset");
    }
    seed_ = seed;
    step_ = 0;
    Observe(observation);
    return absl::OkStatus();
  }

  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override {
    if (plan_.on_step) plan_.on_step();
    ++step_;
    if (const auto failure = plan_.failure.find(step_);
        failure != plan_.failure.end()) {
      if (failure->second == "throw") throw std::runtime_error("a\nthrow");
      return absl::InternalError(failure->second);
    }
    Observe(observation);
    const auto outcome = plan_.outcome.find(step_);
    if (outcome != plan_.outcome.end()) return outcome->second;
    return Outcome{.reward = static_cast<float>(ReadValue<int64_t>(action[0]))};
  }

  bool GameOver(v1::EpisodeEnd* end) override {
    return plan_.game_over ? plan_.game_over(end) : true;
  }

 private:
  void Observe(Row observation) {
    WriteValue(observation[0], 0, static_cast<int64_t>(seed_));
    std::memset(observation[1].data(), step_, 3);
  }

  Plan& plan_;
  v1::EnvSpec spec_;
  uint64_t seed_ = 0;
  int step_ = 0;
};

class FakeRig : public Rig {
 public:
  FakeRig(Plan* plan, ThreadVectorEnv::Options options)
      : Rig(options, [plan]() -> absl::StatusOr<std::unique_ptr<Environment>> {
          if (plan->broken_makes.contains(plan->makes++)) {
            return absl::InternalError("no make");
          }
          return std::make_unique<FakeEnvironment>(plan);
        }) {}
};

TEST(ThreadVectorEnvTest, RowsAreSeededByWorkerRowIncarnationAndEpisode) {
  Plan plan;
  plan.limit = 1;
  FakeRig rig(&plan, {.num_envs = 4,
                      .num_groups = 2,
                      .seed = 5,
                      .worker_id = 6,
                      .incarnation = 7});
  rig.Reset(0);
  rig.Reset(1);
  for (int row = 0; row < 4; ++row) {
    EXPECT_EQ(rig.Observed<uint64_t>(0, row % 2, row / 2),
              EpisodeSeed(5, 6, row, 7, 0));
  }
  rig.Step(0, 1);
  EXPECT_EQ(rig.Observed<uint64_t>(0, 1, 1), EpisodeSeed(5, 6, 3, 7, 1));
  EXPECT_EQ(rig.Observed<uint64_t>(0, 1, 0), EpisodeSeed(5, 6, 1, 7, 0));
}

TEST(ThreadVectorEnvTest, EveryRowGetsItsOwnAction) {
  Plan plan;
  FakeRig rig(&plan, {.num_envs = 3, .num_groups = 1});
  rig.Reset();
  EXPECT_THAT(Rewards(rig.Step(4)), ElementsAre(4, 4, 4));
  EXPECT_EQ(rig.Observed<uint8_t>(1, 2), 1);
}

TEST(ThreadVectorEnvTest, StepLimitTruncatesAndResetsInTheSameStep) {
  Plan plan;
  plan.limit = 3;
  FakeRig rig(&plan, {.num_envs = 2, .num_groups = 1});
  rig.Reset();
  rig.Step(1);
  v1::StepBatch& step = rig.Step(2);
  EXPECT_THAT(step.final_row(), IsEmpty());
  EXPECT_THAT(step.episode_end(), IsEmpty());
  rig.Step(3);
  EXPECT_THAT(Flags(step.truncated()), ElementsAre(1, 1));
  EXPECT_THAT(Flags(step.terminated()), ElementsAre(0, 0));
  EXPECT_THAT(step.final_row(), ElementsAre(0, 1));
  EXPECT_EQ(step.final_observation().leaf(1), std::string(6, '\3'));
  EXPECT_EQ(rig.Observed<uint8_t>(1, 0), 0);  // the next episode's start
  ASSERT_EQ(step.episode_end_size(), 2);
  EXPECT_EQ(step.episode_end(1).row(), 1);
  EXPECT_EQ(step.episode_end(1).raw_return(), 6);
  EXPECT_EQ(step.episode_end(1).length(), 3);
  rig.Step(1);
  EXPECT_THAT(step.final_row(), IsEmpty());
  EXPECT_EQ(step.final_observation().leaf_size(), 0);
  EXPECT_THAT(step.episode_end(), IsEmpty());
}

TEST(ThreadVectorEnvTest, OptionsReplaceTheStepLimit) {
  Plan plan;
  plan.limit = 3;
  FakeRig rig(&plan, {.stated = Limit(1)});
  EXPECT_EQ(rig.env().spec().max_episode_steps(), 1);
  rig.Reset();
  EXPECT_THAT(Flags(rig.Step().truncated()), ElementsAre(1));
}

TEST(ThreadVectorEnvTest, TerminationWinsOverTheStepLimit) {
  Plan plan;
  plan.limit = 1;
  plan.outcome[1] = {.terminated = true, .truncated = true};
  FakeRig rig(&plan, {});
  rig.Reset();
  const v1::StepBatch& step = rig.Step();
  EXPECT_THAT(Flags(step.terminated()), ElementsAre(1));
  EXPECT_THAT(Flags(step.truncated()), ElementsAre(0));
}

TEST(ThreadVectorEnvTest, GameMayOutliveEpisodes) {
  Plan plan;
  plan.outcome[2] = {.reward = 1, .terminated = true};
  int ends = 0;
  plan.game_over = [&](v1::EpisodeEnd* end) {
    (*end->mutable_metric())["success"] = 0.5;
    return ++ends == 2;
  };
  FakeRig rig(&plan, {});
  rig.Reset();
  rig.Step(3);
  const v1::StepBatch& step = rig.Step(3);
  EXPECT_THAT(Flags(step.terminated()), ElementsAre(1));
  EXPECT_THAT(step.episode_end(), IsEmpty());
  rig.Step(3);
  rig.Step(3);
  ASSERT_EQ(step.episode_end_size(), 1);
  EXPECT_EQ(step.episode_end(0).length(), 4);
  EXPECT_EQ(step.episode_end(0).raw_return(), 3 + 1 + 3 + 1);
  EXPECT_EQ(step.episode_end(0).metric().at("success"), 0.5);
}

TEST(ThreadVectorEnvTest, FailedStepIsARowErrorAndTheRowStartsAnew) {
  for (const std::string failure : {"out of memory", "throw"}) {
    Plan plan;
    plan.limit = 10;
    plan.failure[2] = failure;
    FakeRig rig(&plan, {.num_envs = 1, .seed = 3, .renew_failed = true});
    rig.Reset();
    rig.Step(5);
    v1::StepBatch& step = rig.Step(5);
    ASSERT_EQ(step.error_size(), 1);
    EXPECT_EQ(step.error(0).row(), 0);
    EXPECT_THAT(step.error(0).message(),
                HasSubstr(failure == "throw" ? "a throw" : failure));
    EXPECT_THAT(step.error(0).message(), HasSubstr("env \"Fake\", row 0"));
    EXPECT_THAT(Rewards(step), ElementsAre(0));
    EXPECT_THAT(Flags(step.terminated()), ElementsAre(0));
    EXPECT_THAT(step.final_row(), IsEmpty());
    EXPECT_EQ(rig.Observed<uint8_t>(1, 0), 0);
    EXPECT_EQ(rig.Observed<uint64_t>(0, 0), EpisodeSeed(3, 0, 0, 0, 1));
    EXPECT_EQ(plan.makes, 2);
    // What was lost is not in the next game's statistics.
    plan.failure.clear();
    rig.Step(1);
    EXPECT_THAT(step.error(), IsEmpty());
    plan.outcome[2] = {.terminated = true};
    rig.Step(1);
    ASSERT_EQ(step.episode_end_size(), 1);
    EXPECT_EQ(step.episode_end(0).raw_return(), 1);
    EXPECT_EQ(step.episode_end(0).length(), 2);
  }
}

TEST(ThreadVectorEnvTest, AGameOverThatThrowsIsARowError) {
  Plan plan;
  plan.limit = 2;
  plan.game_over = [](v1::EpisodeEnd*) -> bool {
    throw std::runtime_error("whose game?");
  };
  FakeRig rig(&plan, {.num_envs = 1});
  rig.Reset();
  rig.Step(5);
  v1::StepBatch& step = rig.Step(5);
  ASSERT_EQ(step.error_size(), 1);
  EXPECT_THAT(step.error(0).message(), HasSubstr("whose game?"));
  EXPECT_THAT(step.episode_end(), IsEmpty());
  EXPECT_THAT(step.final_row(), IsEmpty());
  EXPECT_THAT(rig.Step(5).error(), IsEmpty());
}

TEST(ThreadVectorEnvTest, RewardThatIsNoNumberIsARowError) {
  Plan plan;
  plan.outcome[1] = {.reward = std::numeric_limits<float>::quiet_NaN()};
  FakeRig rig(&plan, {});
  rig.Reset();
  const v1::StepBatch& step = rig.Step();
  ASSERT_EQ(step.error_size(), 1);
  EXPECT_THAT(step.error(0).message(), HasSubstr("reward is nan"));
  EXPECT_THAT(Rewards(step), ElementsAre(0));
}

TEST(ThreadVectorEnvTest, RowThatCannotBeMadeAnewIsTriedEveryStep) {
  Plan plan;
  plan.failure[1] = "first";
  plan.broken_makes = {1, 2};
  FakeRig rig(&plan, {.renew_failed = true});
  rig.Reset();
  v1::StepBatch& step = rig.Step();
  EXPECT_THAT(step.error(0).message(), HasSubstr("first; then: no make"));
  EXPECT_EQ(rig.Observed<uint64_t>(0, 0), 0u);
  rig.Step();
  EXPECT_THAT(step.error(0).message(), HasSubstr("no make"));
  plan.failure.clear();
  rig.Step();  // made; this transition is lost all the same
  ASSERT_EQ(step.error_size(), 1);
  EXPECT_EQ(step.error(0).message(), "");
  EXPECT_EQ(rig.Observed<uint8_t>(1, 0), 0);
  rig.Step();
  EXPECT_THAT(step.error(), IsEmpty());
  EXPECT_EQ(rig.Observed<uint8_t>(1, 0), 1);
}

TEST(ThreadVectorEnvTest, FailedRowIsResetOrMadeAnewAsTold) {
  for (const bool renew : {false, true}) {
    Plan plan;
    plan.failure[1] = "failed";
    FakeRig rig(&plan, {.renew_failed = renew});
    rig.Reset();
    const v1::StepBatch& step = rig.Step();
    ASSERT_EQ(step.error_size(), 1);
    EXPECT_EQ(plan.makes, renew ? 2 : 1);
    EXPECT_EQ(plan.resets, 2);
    EXPECT_EQ(rig.Observed<uint64_t>(0, 0), EpisodeSeed(0, 0, 0, 0, 1));
  }
}

TEST(ThreadVectorEnvTest, WhereAResetFailsTooItIsMadeAnew) {
  Plan plan;
  plan.failure[1] = "failed";
  plan.broken_resets = {1};
  FakeRig rig(&plan, {});
  rig.Reset();
  const v1::StepBatch& step = rig.Step();
  EXPECT_THAT(step.error(0).message(), HasSubstr("failed; then: no reset"));
  EXPECT_EQ(plan.makes, 2);
}

TEST(ThreadVectorEnvTest, RowWaitsBeforeItIsTriedAgainAndTheOthersGoOn) {
  Plan plans[2];
  plans[0].failure[1] = "failed";
  int made = 0;
  Rig rig({.num_envs = 2, .retry_wait = absl::Hours(1)},
          [&]() -> absl::StatusOr<std::unique_ptr<Environment>> {
            return std::make_unique<FakeEnvironment>(&plans[made++]);
          });
  rig.Reset();
  const v1::StepBatch& step = rig.Step(5);
  ASSERT_EQ(step.error_size(), 1);
  EXPECT_THAT(step.error(0).message(), HasSubstr("failed"));
  for (int i = 2; i < 5; ++i) {
    rig.Step(5);
    EXPECT_EQ(rig.done().delay(), absl::ZeroDuration());
    ASSERT_EQ(step.error_size(), 1);
    EXPECT_EQ(step.error(0).row(), 0);
    EXPECT_EQ(step.error(0).message(), "");  // nothing new
    EXPECT_THAT(Rewards(step), ElementsAre(0, 5));
    EXPECT_EQ(rig.Observed<uint64_t>(0, 0), 0u);
    EXPECT_EQ(rig.Observed<uint8_t>(1, 1), i);
  }
  EXPECT_EQ(plans[0].resets, 1);
}

TEST(ThreadVectorEnvTest, RowIsBackAfterItsWait) {
  Plan plan;
  plan.failure[1] = "failed";
  FakeRig rig(&plan, {.retry_wait = absl::Milliseconds(5)});
  rig.Reset();
  const absl::Time failed = SteadyNow();
  const v1::StepBatch& step = rig.Step();
  const absl::Time deadline = failed + absl::Seconds(30);
  while (plan.resets < 2) {
    ASSERT_LT(SteadyNow(), deadline);
    rig.Step();
    EXPECT_EQ(step.error_size(), 1);
  }
  EXPECT_GE(SteadyNow() - failed, absl::Milliseconds(5));
  EXPECT_EQ(rig.Observed<uint64_t>(0, 0), EpisodeSeed(0, 0, 0, 0, 1));
  plan.failure.clear();
  rig.Step();
  EXPECT_THAT(step.error(), IsEmpty());
  EXPECT_EQ(plan.resets, 2);
}

TEST(ThreadVectorEnvTest, GroupWithNobodyToPlayDoesNotSpinNorHoldOthersUp) {
  for (const absl::Duration wait : {absl::ZeroDuration(), absl::Hours(1)}) {
    Plan plan;
    plan.failure[1] = "failed";
    plan.broken_makes = {2, 3, 4, 5, 6, 7, 8, 9};
    FakeRig rig(&plan,
                {.num_envs = 2, .retry_wait = wait, .renew_failed = true});
    rig.Reset();
    EXPECT_EQ(rig.done().delay(), absl::ZeroDuration());
    for (int i = 0; i < 3; ++i) {
      const v1::StepBatch& step = rig.Step();
      EXPECT_EQ(step.error_size(), 2);
      EXPECT_EQ(rig.done().delay(), ThreadVectorEnv::kHold);
      EXPECT_LE(rig.done().delay(), absl::Milliseconds(5));
    }
  }
}

TEST(ThreadVectorEnvTest, WhatARowSaysIsShortAndPrintable) {
  Plan plan;
  plan.failure[1] = std::string(500'000, 'x') + "\xff";
  FakeRig rig(&plan, {.retry_wait = absl::Hours(1)});
  rig.Reset();
  const std::string message = rig.Step().error(0).message();
  EXPECT_LE(message.size(), 512u);
  EXPECT_THAT(message, HasSubstr("row 0: xxx"));
  EXPECT_THAT(message, testing::EndsWith("bytes in all)"));

  plan.failure[1] = "\xff\x1b[31m\n" + std::string(500'000, 'x');
  plan.broken_resets = {2};
  FakeRig both(&plan, {});
  both.Reset();
  const std::string reasons = both.Step().error(0).message();
  EXPECT_LE(reasons.size(), 512u);
  EXPECT_THAT(reasons, HasSubstr("row 0: \\xff\\x1b[31m xxx"));
  EXPECT_THAT(reasons, testing::EndsWith("; then: no reset"));
}

// Its observation is what a test says.
class Seer final : public Environment {
 public:
  explicit Seer(std::vector<float> seen) : seen_(std::move(seen)) {
    v1::Leaf* leaf = spec_.add_observation();
    leaf->set_path("eye");
    leaf->set_dtype(v1::FLOAT32);
    leaf = spec_.add_action();
    leaf->set_dtype(v1::INT64);
    leaf->set_num_values(10);
  }
  const v1::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(uint64_t, Row observation) override {
    WriteValue(observation[0], 0, seen_[next_++ % seen_.size()]);
    return absl::OkStatus();
  }
  absl::StatusOr<Outcome> Step(ConstRow, Row observation) override {
    WriteValue(observation[0], 0, seen_[next_++ % seen_.size()]);
    return Outcome{.terminated = true};
  }

 private:
  const std::vector<float> seen_;
  size_t next_ = 0;
  v1::EnvSpec spec_;
};

TEST(ThreadVectorEnvTest, ObservationThatIsNoNumberIsARowError) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), 2e18f}) {
    // At the step, whose episode ends, and then at the reset.
    Rig rig({}, [&]() -> absl::StatusOr<std::unique_ptr<Environment>> {
      return std::make_unique<Seer>(std::vector<float>{1, bad, 2, 3, bad, 4});
    });
    rig.Reset();
    for (const float after : {2.0f, 4.0f}) {
      const v1::StepBatch& step = rig.Step();
      ASSERT_EQ(step.error_size(), 1);
      EXPECT_THAT(step.error(0).message(),
                  HasSubstr(absl::StrCat("the observation \"eye\" is ", bad,
                                         ", want a finite number")));
      EXPECT_THAT(step.final_row(), IsEmpty());
      EXPECT_EQ(rig.Observed<float>(0, 0), after);
    }
  }
}

TEST(ThreadVectorEnvTest, FailedResetIsARowError) {
  Plan plan;
  plan.broken_resets = {0};
  FakeRig rig(&plan, {});
  const v1::StepBatch& step = rig.Reset();
  ASSERT_EQ(step.error_size(), 1);
  EXPECT_THAT(step.error(0).message(), HasSubstr("no reset"));
  EXPECT_EQ(rig.Observed<uint64_t>(0, 0), EpisodeSeed(0, 0, 0, 0, 1));
}

TEST(ThreadVectorEnvTest, MakeFailsIfAnEnvironmentCannotBeMade) {
  Completions done;
  EXPECT_THAT(
      ThreadVectorEnv::Make(
          {}, [] { return absl::NotFoundError("no such thing"); }, &done),
      StatusIs(absl::StatusCode::kNotFound));
}

TEST(ThreadVectorEnvTest, OneThreadStepsInsideTheCall) {
  Plan plan;
  FakeRig rig(&plan, {.num_envs = 2});
  rig.Reset();
  EXPECT_EQ(rig.done().thread(), std::this_thread::get_id());
}

TEST(ThreadVectorEnvTest, ThreadsStepRowsOfAllGroupsAtOnce) {
  Plan plan;
  // Nobody gets through before all four are there.
  std::latch all(4);
  plan.on_step = [&] { all.arrive_and_wait(); };
  FakeRig rig(&plan, {.num_envs = 4, .num_groups = 2, .threads = 4});
  rig.Reset(0);
  rig.Reset(1);
  rig.Begin(1, 0);
  rig.Begin(1, 1);
  rig.done().Await(0);
  rig.done().Await(1);
  EXPECT_NE(rig.done().thread(), std::this_thread::get_id());
}

TEST(ThreadVectorEnvTest, DelayIsTheSlowestRows) {
  Plan plans[3];
  int made = 0;
  Rig rig({.num_envs = 3},
          [&]() -> absl::StatusOr<std::unique_ptr<Environment>> {
            Plan* const own = &plans[made++];
            own->outcome[1] = {.delay = absl::Milliseconds(made * 10)};
            return std::make_unique<FakeEnvironment>(own);
          });
  rig.Reset();
  EXPECT_EQ(rig.done().delay(), absl::ZeroDuration());
  rig.Step();
  EXPECT_EQ(rig.done().delay(), absl::Milliseconds(30));
}

TEST(ThreadVectorEnvTest, DestructionWaitsForRunningRows) {
  Plan plan;
  std::latch running(2), go(1);
  std::atomic<int> finished = 0;
  plan.on_step = [&] {
    running.count_down();
    go.wait();
    ++finished;
  };
  FakeRig rig(&plan, {.num_envs = 2, .threads = 2});
  rig.Reset();
  rig.Begin(0, 0);
  running.wait();
  std::thread destroyer([&] {
    rig.Destroy();
    EXPECT_EQ(finished, 2);
  });
  go.count_down();
  destroyer.join();
}

TEST(ThreadVectorEnvTest, BatchesDoNotDependOnTheThreads) {
  const auto play = [](int threads) {
    ThreadVectorEnv::Options options = {.num_envs = 8,
                                        .num_groups = 2,
                                        .seed = 42,
                                        .stated = Limit(20),
                                        .threads = threads};
    Rig rig(options, []() -> absl::StatusOr<std::unique_ptr<Environment>> {
      return std::make_unique<CartPole>();
    });
    std::vector<std::string> seen;
    for (int group : {0, 1}) {
      rig.Reset(group);
      seen.push_back(rig.Snapshot(group));
    }
    for (int i = 0; i < 200; ++i) {
      rig.Step(i / 3 % 2, i % 2);
      seen.push_back(rig.Snapshot(i % 2));
    }
    return seen;
  };
  const auto alone = play(1);
  EXPECT_EQ(play(2), alone);
  EXPECT_EQ(play(5), alone);
}

}  // namespace
}  // namespace flotilla
