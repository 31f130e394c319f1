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
#include "absl/time/clock.h"
#include "envserver/envs/cartpole.h"
#include "services/base/random.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Waits for groups, whichever thread completes them.
class Completions final : public VectorEnv::Listener {
 public:
  void OnFailure(absl::Status status) override { FAIL() << status; }
  void OnGroupDone(int group, absl::Duration delay) override {
    MutexLock lock(&mu_);
    done_.insert(group);
    thread_ = std::this_thread::get_id();
    delay_ = delay;
    cv_.notify_all();
  }

  void Await(int group) {
    MutexLock lock(&mu_);
    while (!done_.contains(group)) {
      ASSERT_TRUE(lock.WaitFor(&cv_, absl::Seconds(30))) << "group " << group;
    }
    done_.erase(group);
  }

  std::thread::id thread() {
    MutexLock lock(&mu_);
    return thread_;
  }
  absl::Duration delay() {
    MutexLock lock(&mu_);
    return delay_;
  }

 private:
  Mutex mu_;
  std::condition_variable cv_;
  std::set<int> done_ ABSL_GUARDED_BY(mu_);
  std::thread::id thread_ ABSL_GUARDED_BY(mu_);
  absl::Duration delay_ ABSL_GUARDED_BY(mu_);
};

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

// One vector env with memory for its groups.
class Rig {
 public:
  Rig(Plan* plan, ThreadVectorEnv::Options options)
      : Rig(options, [plan]() -> absl::StatusOr<std::unique_ptr<Environment>> {
          if (plan->broken_makes.contains(plan->makes++)) {
            return absl::InternalError("no make");
          }
          return std::make_unique<FakeEnvironment>(plan);
        }) {}

  Rig(ThreadVectorEnv::Options options, ThreadVectorEnv::MakeEnv make)
      : rows_(options.num_envs / options.num_groups),
        steps_(options.num_groups) {
    auto made = ThreadVectorEnv::Make(options, std::move(make), &done_);
    CHECK(made.ok()) << made.status();
    env_ = *std::move(made);
    for (int g = 0; g < options.num_groups; ++g) {
      memory_.emplace_back();
      for (const v1::Leaf& leaf : env_->spec().observation()) {
        size_t bytes = leaf.dtype() == v1::INT64     ? 8
                       : leaf.dtype() == v1::FLOAT32 ? 4
                                                     : 1;
        for (int64_t dim : leaf.shape()) bytes *= dim;
        memory_.back().emplace_back(bytes * rows_);
      }
    }
    for (auto& group : memory_) {
      spans_.emplace_back(group.begin(), group.end());
    }
  }

  v1::StepBatch& Reset(int group = 0) {
    env_->Reset(group, spans_[group], &steps_[group]);
    done_.Await(group);
    return steps_[group];
  }

  // Every row takes `action`.
  v1::StepBatch& Step(int64_t action = 0, int group = 0) {
    Begin(action, group);
    done_.Await(group);
    return steps_[group];
  }

  void Begin(int64_t action, int group) {
    v1::ActionBatch& actions = actions_[group];
    actions.Clear();
    std::string* column = actions.add_action();
    for (int r = 0; r < rows_; ++r) {
      column->append(reinterpret_cast<const char*>(&action), sizeof(action));
    }
    env_->Step(group, actions, spans_[group], &steps_[group]);
  }

  template <typename T>
  T Observed(int leaf, int row, int group = 0) {
    const auto& memory = memory_[group][leaf];
    return ReadValue<T>(std::span(memory).subspan(row * memory.size() / rows_));
  }

  // Everything a learner would see of `group`.
  std::string Snapshot(int group) {
    std::string all = steps_[group].SerializeAsString();
    for (const auto& leaf : memory_[group]) {
      all.append(reinterpret_cast<const char*>(leaf.data()), leaf.size());
    }
    return all;
  }

  Completions& done() { return done_; }
  ThreadVectorEnv& env() { return *env_; }
  void Destroy() { env_.reset(); }

 private:
  const int rows_;
  Completions done_;
  std::vector<v1::StepBatch> steps_;
  std::map<int, v1::ActionBatch> actions_;
  std::vector<std::vector<std::vector<std::byte>>> memory_;
  std::vector<std::vector<std::span<std::byte>>> spans_;
  std::unique_ptr<ThreadVectorEnv> env_;
};

std::vector<float> Rewards(const v1::StepBatch& step) {
  std::vector<float> rewards(step.reward().size() / 4);
  std::memcpy(rewards.data(), step.reward().data(), step.reward().size());
  return rewards;
}

std::vector<int> Flags(const std::string& flags) {
  return std::vector<int>(flags.begin(), flags.end());
}

TEST(ThreadVectorEnvTest, RowsAreSeededByWorkerRowIncarnationAndEpisode) {
  Plan plan;
  plan.limit = 1;
  Rig rig(&plan, {.num_envs = 4,
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
  Rig rig(&plan, {.num_envs = 3, .num_groups = 1});
  rig.Reset();
  EXPECT_THAT(Rewards(rig.Step(4)), ElementsAre(4, 4, 4));
  EXPECT_EQ(rig.Observed<uint8_t>(1, 2), 1);
}

TEST(ThreadVectorEnvTest, StepLimitTruncatesAndResetsInTheSameStep) {
  Plan plan;
  plan.limit = 3;
  Rig rig(&plan, {.num_envs = 2, .num_groups = 1});
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
  Rig rig(&plan, {.stated = Limit(1)});
  EXPECT_EQ(rig.env().spec().max_episode_steps(), 1);
  rig.Reset();
  EXPECT_THAT(Flags(rig.Step().truncated()), ElementsAre(1));
}

TEST(ThreadVectorEnvTest, TerminationWinsOverTheStepLimit) {
  Plan plan;
  plan.limit = 1;
  plan.outcome[1] = {.terminated = true, .truncated = true};
  Rig rig(&plan, {});
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
  Rig rig(&plan, {});
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
    Rig rig(&plan, {.num_envs = 1, .seed = 3, .renew_failed = true});
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

TEST(ThreadVectorEnvTest, RewardThatIsNoNumberIsARowError) {
  Plan plan;
  plan.outcome[1] = {.reward = std::numeric_limits<float>::quiet_NaN()};
  Rig rig(&plan, {});
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
  Rig rig(&plan, {.renew_failed = true});
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
    Rig rig(&plan, {.renew_failed = renew});
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
  Rig rig(&plan, {});
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
  Rig rig(&plan, {.retry_wait = absl::Milliseconds(5)});
  rig.Reset();
  const absl::Time failed = absl::Now();
  const v1::StepBatch& step = rig.Step();
  const absl::Time deadline = failed + absl::Seconds(30);
  while (plan.resets < 2) {
    ASSERT_LT(absl::Now(), deadline);
    rig.Step();
    EXPECT_EQ(step.error_size(), 1);
  }
  EXPECT_GE(absl::Now() - failed, absl::Milliseconds(5));
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
    Rig rig(&plan, {.num_envs = 2, .retry_wait = wait, .renew_failed = true});
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
  Rig rig(&plan, {.retry_wait = absl::Hours(1)});
  rig.Reset();
  const std::string message = rig.Step().error(0).message();
  EXPECT_LE(message.size(), 512u);
  EXPECT_THAT(message, HasSubstr("row 0: xxx"));
  EXPECT_THAT(message, testing::EndsWith("bytes in all)"));

  plan.failure[1] = "\xff\x1b[31m\n" + std::string(500'000, 'x');
  plan.broken_resets = {2};
  Rig both(&plan, {});
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
  Rig rig(&plan, {});
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
  Rig rig(&plan, {.num_envs = 2});
  rig.Reset();
  EXPECT_EQ(rig.done().thread(), std::this_thread::get_id());
}

TEST(ThreadVectorEnvTest, ThreadsStepRowsOfAllGroupsAtOnce) {
  Plan plan;
  // Nobody gets through before all four are there.
  std::latch all(4);
  plan.on_step = [&] { all.arrive_and_wait(); };
  Rig rig(&plan, {.num_envs = 4, .num_groups = 2, .threads = 4});
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
  Rig rig(&plan, {.num_envs = 2, .threads = 2});
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

// What happens in a fake environment of three agents, by the number of its step.
struct TeamPlan {
  int64_t limit = 0;
  std::map<int, std::vector<Outcome>> outcome;  // else its action, if it acted
  std::map<int, std::vector<int>> active;       // 0: the reset
  std::map<int, std::vector<int>> acted;        // what it was told
  std::set<int> failure;
  int resets = 0;
};

// Each sees the seed, and ten times the step plus its slot.
class Team final : public MultiAgentEnvironment {
 public:
  explicit Team(TeamPlan* plan) : plan_(*plan) {
    spec_.set_env_id("Team");
    spec_.set_agents(3);
    v1::Leaf* leaf = spec_.add_observation();
    leaf->set_path("seed");
    leaf->set_dtype(v1::INT64);
    leaf = spec_.add_observation();
    leaf->set_path("step");
    leaf->set_dtype(v1::UINT8);
    leaf = spec_.add_action();
    leaf->set_dtype(v1::INT64);
    leaf->set_num_values(10);
    spec_.set_max_episode_steps(plan->limit);
  }

  const v1::EnvSpec& spec() const override { return spec_; }

  absl::Status ResetSlots(uint64_t seed, std::span<Slot> slots) override {
    ++plan_.resets;
    seed_ = seed;
    step_ = 0;
    Observe(slots);
    return absl::OkStatus();
  }

  absl::Status StepSlots(std::span<Slot> slots) override {
    ++step_;
    if (plan_.failure.contains(step_)) return absl::InternalError("failed");
    plan_.acted[step_].clear();
    for (size_t s = 0; s < slots.size(); ++s) {
      Slot& slot = slots[s];
      plan_.acted[step_].push_back(slot.acted ? 1 : 0);
      if (plan_.outcome.contains(step_)) {
        slot.outcome = plan_.outcome[step_][s];
      } else if (slot.acted) {
        slot.outcome.reward =
            static_cast<float>(ReadValue<int64_t>(slot.action[0]));
      }
    }
    Observe(slots);
    return absl::OkStatus();
  }

  bool SlotGameOver(size_t slot, v1::EpisodeEnd* end) override {
    (*end->mutable_metric())["slot"] = static_cast<double>(slot);
    return true;
  }

 private:
  void Observe(std::span<Slot> slots) const {
    for (size_t s = 0; s < slots.size(); ++s) {
      if (plan_.active.contains(step_)) {
        slots[s].active = plan_.active[step_][s] == 1;
      }
      WriteValue(slots[s].observation[0], 0, static_cast<int64_t>(seed_));
      WriteValue(slots[s].observation[1], 0,
                 static_cast<uint8_t>(10 * step_ + static_cast<int>(s)));
    }
  }

  TeamPlan& plan_;
  v1::EnvSpec spec_;
  uint64_t seed_ = 0;
  int step_ = 0;
};

Rig TeamRig(TeamPlan* plan, ThreadVectorEnv::Options options) {
  return Rig(options, [plan] { return std::make_unique<Team>(plan); });
}

// "ROW: return RETURN of LENGTH" and whether others play on.
std::vector<std::string> Ends(const v1::StepBatch& step) {
  std::vector<std::string> ends;
  for (const v1::EpisodeEnd& end : step.episode_end()) {
    ends.push_back(absl::StrCat(end.row(), ": return ", end.raw_return(),
                                " of ", end.length(),
                                end.others_play_on() ? ", others play on" : "",
                                ", slot ", end.metric().at("slot")));
  }
  return ends;
}

TEST(ThreadVectorEnvTest, SlotsOfOneEnvironmentAreItsRows) {
  TeamPlan plan;
  Rig rig = TeamRig(&plan, {.num_envs = 6, .num_groups = 1, .seed = 4});
  const v1::StepBatch& step = rig.Reset();
  EXPECT_EQ(plan.resets, 2);
  for (int row = 0; row < 6; ++row) {
    // The seed is that of its first row.
    EXPECT_EQ(rig.Observed<uint64_t>(0, row),
              EpisodeSeed(4, 0, row < 3 ? 0 : 3, 0, 0));
    EXPECT_EQ(rig.Observed<uint8_t>(1, row), row % 3);
  }
  rig.Step(7);
  EXPECT_THAT(Rewards(step), ElementsAre(7, 7, 7, 7, 7, 7));
  EXPECT_EQ(rig.Observed<uint8_t>(1, 5), 12);
  EXPECT_EQ(step.active(), "");  // all are
}

TEST(ThreadVectorEnvTest, RowsThatMakeNoEnvironmentsAreRefused) {
  Completions done;
  TeamPlan plan;
  EXPECT_THAT(ThreadVectorEnv::Make(
                  {.num_envs = 4, .num_groups = 1},
                  [&] { return std::make_unique<Team>(&plan); }, &done),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("\"Team\" has 3 agents: use 3 or 6")));
}

TEST(ThreadVectorEnvTest, TurnsAreSaidAndLengthsCountDecisions) {
  TeamPlan plan;
  plan.limit = 4;
  plan.active = {{0, {0, 1, 0}}, {1, {1, 0, 1}}, {2, {0, 0, 0}}};
  Rig rig = TeamRig(&plan, {.num_envs = 3});
  const v1::StepBatch& step = rig.Reset();
  EXPECT_THAT(Flags(step.active()), ElementsAre(0, 1, 0));
  rig.Step(5);
  EXPECT_THAT(plan.acted[1], ElementsAre(0, 1, 0));
  EXPECT_THAT(Rewards(step), ElementsAre(0, 5, 0));
  EXPECT_THAT(Flags(step.active()), ElementsAre(1, 0, 1));
  rig.Step(6);
  EXPECT_THAT(Flags(step.active()), ElementsAre(0, 0, 0));
  rig.Step(7);
  EXPECT_THAT(plan.acted[3], ElementsAre(0, 0, 0));
  EXPECT_EQ(step.active(), "");
  // The limit is of the environment's steps, and ends everybody's episode.
  rig.Step(8);
  EXPECT_THAT(Flags(step.truncated()), ElementsAre(1, 1, 1));
  EXPECT_THAT(Ends(step), ElementsAre("0: return 14 of 2, slot 0",
                                      "1: return 13 of 2, slot 1",
                                      "2: return 14 of 2, slot 2"));
  EXPECT_EQ(step.final_observation().leaf(1), "\x28\x29\x2a");
  EXPECT_THAT(Flags(step.active()), ElementsAre(0, 1, 0));  // the next one's
}

TEST(ThreadVectorEnvTest, SlotsEndAloneAndTheEnvironmentOnceAllHave) {
  TeamPlan plan;
  plan.limit = 3;
  plan.outcome[1] = {{.reward = 1}, {.reward = 2, .terminated = true}, {}};
  // What is said of a slot that has ended is not read.
  plan.outcome[2] = {
      {.terminated = true}, {.reward = 99, .terminated = true}, {}};
  Rig rig = TeamRig(&plan, {.num_envs = 3, .num_groups = 1, .seed = 5});
  const v1::StepBatch& step = rig.Reset();
  rig.Step(4);
  EXPECT_THAT(Flags(step.terminated()), ElementsAre(0, 1, 0));
  EXPECT_THAT(step.final_row(), ElementsAre(1));
  EXPECT_EQ(step.final_observation().leaf(1), "\x0b");
  EXPECT_THAT(Flags(step.active()), ElementsAre(1, 0, 1));
  EXPECT_EQ(rig.Observed<uint8_t>(1, 1), 0);
  EXPECT_THAT(Ends(step),
              ElementsAre("1: return 2 of 1, others play on, slot 1"));
  rig.Step(4);
  EXPECT_THAT(plan.acted[2], ElementsAre(1, 0, 1));
  EXPECT_THAT(Flags(step.terminated()), ElementsAre(1, 0, 0));
  EXPECT_THAT(Rewards(step), ElementsAre(0, 0, 0));
  EXPECT_THAT(step.final_row(), ElementsAre(0));
  EXPECT_THAT(Flags(step.active()), ElementsAre(0, 0, 1));
  EXPECT_THAT(Ends(step),
              ElementsAre("0: return 1 of 2, others play on, slot 0"));
  EXPECT_EQ(plan.resets, 1);
  rig.Step(4);
  EXPECT_THAT(Flags(step.truncated()), ElementsAre(0, 0, 1));
  EXPECT_THAT(step.final_row(), ElementsAre(2));
  EXPECT_THAT(Ends(step), ElementsAre("2: return 4 of 3, slot 2"));
  EXPECT_EQ(plan.resets, 2);
  EXPECT_EQ(step.active(), "");
  for (int row = 0; row < 3; ++row) {
    EXPECT_EQ(rig.Observed<uint8_t>(1, row), row);
    EXPECT_EQ(rig.Observed<uint64_t>(0, row), EpisodeSeed(5, 0, 0, 0, 1));
  }
}

TEST(ThreadVectorEnvTest, EnvironmentsFailWithAllTheirSlots) {
  TeamPlan plan;
  plan.outcome[1] = {{}, {.terminated = true}, {}};
  plan.failure = {2};
  Rig rig = TeamRig(&plan, {.num_envs = 3});
  const v1::StepBatch& step = rig.Reset();
  rig.Step(4);
  rig.Step(4);
  ASSERT_EQ(step.error_size(), 3);
  EXPECT_THAT(step.error(0).message(),
              HasSubstr("env \"Team\", row 0: failed"));
  for (int row = 0; row < 3; ++row) {
    EXPECT_EQ(step.error(row).row(), row);
    EXPECT_EQ(step.error(row).message().empty(), row > 0);
    EXPECT_EQ(rig.Observed<uint8_t>(1, row), row);  // begun anew
  }
  EXPECT_THAT(Rewards(step), ElementsAre(0, 0, 0));
  EXPECT_THAT(step.episode_end(), IsEmpty());
  EXPECT_EQ(step.active(), "");
  plan.failure.clear();
  plan.outcome.clear();
  rig.Step(4);
  EXPECT_THAT(plan.acted[1], ElementsAre(1, 1, 1));
  EXPECT_THAT(step.error(), IsEmpty());
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
