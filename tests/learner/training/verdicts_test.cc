#include "learner/training/verdicts.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <set>
#include <stop_token>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/steady_now.h"
#include "tests/learner/training/training_loop_fixture.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void AwaitStop(std::stop_token stop) {
  std::mutex mu;
  std::condition_variable_any never;
  std::unique_lock lock(mu);
  never.wait(lock, stop, [] { return false; });
}

// Runs that an evaluation ends: of a policy whose weight is `bar`, reached at
// update `good`.
class VerdictsTest : public TrainingLoopTest {
 protected:
  static constexpr int kGood = 4, kDelay = 3;

  static v1::RunConfig StopConfig(bool at_once = false) {
    v1::RunConfig config = Config(1000);
    v1::EvaluationConfig* e = config.mutable_evaluation();
    e->set_every_updates(2);
    e->set_stop_return(kGood * kUpdate);
    e->set_deterministic_delay_updates(kDelay);
    e->set_stop_at_once(at_once);
    return config;
  }

  void ExpectSolvedAt(const std::vector<End>& ends, int64_t update) {
    for (const End& end : ends) {
      ASSERT_OK(end.outcome);
      EXPECT_EQ(*end.outcome, RunOutcome::kSolved);
      EXPECT_EQ(end.progress.update, update);
      EXPECT_EQ(end.weight, update * kUpdate);
    }
    EXPECT_THAT(Summary(), HasSubstr("\"status\": \"solved\""));
    EXPECT_THAT(Summary(), HasSubstr("\"eval_update\": 4"));
  }

  // What is played, in order.
  std::vector<uint64_t> rounds_;
  std::mutex mu_;

  auto Recording(absl::Duration takes) {
    return [this, takes](float weight, uint64_t round, std::stop_token)
               -> absl::StatusOr<std::vector<EvaluatedEpisode>> {
      absl::SleepFor(takes);
      std::lock_guard lock(mu_);
      rounds_.push_back(round);
      return std::vector<EvaluatedEpisode>{{.raw_return = weight, .length = 1}};
    };
  }
};

TEST_F(VerdictsTest, AVerdictActsAtItsUpdateHoweverLongItTakes) {
  v1::RunConfig config = StopConfig();
  config.mutable_distributed()->set_timeout_seconds(2);
  // Longer than a collective may take; and no time at all.
  for (const absl::Duration takes : {absl::Seconds(3), absl::ZeroDuration()}) {
    rounds_.clear();
    std::vector<int64_t> frozen_at;
    const auto ends = Train(config, [&](int rank, FakeLearner* learner,
                                        FakeCoordinatorClient*, TrainingLoop*) {
      learner->evaluate = Recording(takes);
      if (rank == 0) learner->algorithm.frozen_at = &frozen_at;
    });
    ExpectSolvedAt(ends, kGood + kDelay);
    // On their cadence, each of them, and none after the one that ends it.
    EXPECT_THAT(rounds_, ElementsAre(1, 2));
    // It explored as it did then, whatever was learned meanwhile.
    const int64_t steps = ends[0].progress.global_step / (kGood + kDelay);
    EXPECT_THAT(frozen_at, ElementsAre(2 * steps, 4 * steps));
    NewFolder();
  }
}

TEST_F(VerdictsTest, AllRanksSayThatTheyWaitAndForWhat) {
  std::vector<bool> waited(kWorld);
  std::vector<FakeCoordinatorClient*> clients(kWorld);
  std::atomic<bool> play = false;
  const auto ends = Train(StopConfig(), [&](int rank, FakeLearner* learner,
                                            FakeCoordinatorClient* coordinator,
                                            TrainingLoop*) {
    clients[rank] = coordinator;
    learner->evaluate = [&](float weight, uint64_t, std::stop_token) {
      // Until all ranks have said so.
      const absl::Time deadline = SteadyNow() + absl::Seconds(20);
      while (!play && SteadyNow() < deadline) {
        play = std::all_of(clients.begin(), clients.end(), [](auto* client) {
          return client != nullptr &&
                 client->last_report().phase() == v1::EVALUATING &&
                 client->last_report().waits_for() ==
                     "the evaluation of update 2";
        });
        absl::SleepFor(absl::Milliseconds(1));
      }
      return std::vector<EvaluatedEpisode>{{.raw_return = weight, .length = 1}};
    };
  });
  EXPECT_TRUE(play);
  ExpectSolvedAt(ends, kGood + kDelay);
}

TEST_F(VerdictsTest, AnEvaluationThatFailsIsPlayedAgain) {
  std::atomic<int> calls = 0;
  const auto ends = Train(StopConfig(), [&](int, FakeLearner* learner,
                                            FakeCoordinatorClient*,
                                            TrainingLoop*) {
    learner->evaluate = [&, play = Recording(absl::ZeroDuration())](
                            float weight, uint64_t round, std::stop_token stop)
        -> absl::StatusOr<std::vector<EvaluatedEpisode>> {
      if (++calls == 1) return absl::UnavailableError("injected");
      if (calls == 3) throw std::runtime_error("as Torch does");
      return play(weight, round, stop);
    };
  });
  ExpectSolvedAt(ends, kGood + kDelay);
  EXPECT_THAT(rounds_, ElementsAre(1, 2));
  EXPECT_EQ(calls, 4);
}

TEST_F(VerdictsTest, AnEvaluationThatFailsEachTimeEndsTheRunByName) {
  RunRanks(1, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    coordinator->SetAssignment(assignment);
    FakeLearner learner(StopConfig());
    learner.parts.coordinator = coordinator;
    learner.evaluate =
        [](float, uint64_t,
           std::stop_token) -> absl::StatusOr<std::vector<EvaluatedEpisode>> {
      return absl::UnavailableError("no such game");
    };
    TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                      [](const absl::Status&) {});
    EXPECT_THAT(
        loop.Run(),
        StatusIs(absl::StatusCode::kResourceExhausted,
                 testing::AllOf(HasSubstr("evaluation of update 2"),
                                HasSubstr("failed 3 times"),
                                HasSubstr("no such game"),
                                HasSubstr("evaluation.stop_at_once=true"))));
  });
}

// Away whenever it is told of an evaluation for the first time.
class AwayCoordinatorClient : public FakeCoordinatorClient {
 public:
  using FakeCoordinatorClient::FakeCoordinatorClient;

  absl::Status ReportEvaluation(const v1::Evaluation& evaluation) override {
    if (told_of_.insert(evaluation.round()).second) {
      return absl::UnavailableError("injected: the coordinator is away");
    }
    return FakeCoordinatorClient::ReportEvaluation(evaluation);
  }

 private:
  std::set<int64_t> told_of_;
};

TEST_F(VerdictsTest, ACoordinatorThatWasAwayIsToldOfAVerdictAgain) {
  for (const bool at_once : {false, true}) {
    SCOPED_TRACE(at_once ? "at once" : "awaited");
    TempDir coordinators;
    AwayCoordinatorClient coordinator(coordinators.path());
    coordinator.SetAssignment(MakeAssignment(/*rank=*/0, /*world_size=*/1));
    const v1::RunConfig config = StopConfig(at_once);
    FakeLearner learner(config);
    learner.parts.coordinator = &coordinator;
    // The first ends the run; a later one would not.
    learner.evaluate = [bar = config.evaluation().stop_return()](
                           float, uint64_t round, std::stop_token) {
      return std::vector<EvaluatedEpisode>{
          {.raw_return = round == 1 ? bar : 0, .length = 1}};
    };
    TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                      [](const absl::Status&) {});
    const auto outcome = loop.Run();
    ASSERT_OK(outcome);
    EXPECT_THAT(Summary(), HasSubstr("\"status\": \"solved\""));
    if (!at_once) {
      EXPECT_EQ(*outcome, RunOutcome::kSolved);
      EXPECT_EQ(loop.progress().update, 2 + kDelay);
    }
    NewFolder();
  }
}

TEST_F(VerdictsTest, WhatRank0WasEvaluatingWhenItDiedIsEvaluatedAgain) {
  const auto ends = TrainThroughTheLossOfRank0(
      StopConfig(), [&](bool dies, FakeLearner* learner) {
        learner->evaluate = Recording(absl::ZeroDuration());
        if (!dies) return;
        // The first evaluation never ends; everybody waits for it at update 5.
        learner->evaluate = [](float, uint64_t, std::stop_token stop)
            -> absl::StatusOr<std::vector<EvaluatedEpisode>> {
          AwaitStop(stop);
          return absl::CancelledError("dies");
        };
        DieAt(4, learner);
      });
  ExpectSolvedAt(ends, kGood + kDelay);
  EXPECT_THAT(rounds_, ElementsAre(1, 2));
}

// Of update 4, whose weights are NaN, there is no checkpoint, however good it was.
TEST_F(VerdictsTest, WhatCannotBeSavedIsNotTheBest) {
  constexpr double kReturns[] = {10, 100, 90, 80};
  RunRanks(1, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    coordinator->SetAssignment(assignment);
    v1::RunConfig config = StopConfig();
    config.mutable_evaluation()->set_stop_return(1000);
    config.set_total_env_steps(8 * kFakeSteps);
    FakeLearner learner(config);
    learner.parts.coordinator = coordinator;
    learner.rollouts.on_next = [&](int64_t update) {
      torch::Tensor weight = learner.algorithm.Weights()[0].tensor;
      if (update == 3) weight.fill_(std::nan(""));
      if (update == 4) weight.fill_(0);
    };
    learner.evaluate = [&](float, uint64_t round, std::stop_token) {
      return std::vector<EvaluatedEpisode>{
          {.raw_return = kReturns[(round - 1) % 4], .length = 1}};
    };
    TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                      [](const absl::Status&) {});
    ASSERT_OK(loop.Run());
    EXPECT_EQ(loop.progress().best_return, 100);
  });
  EXPECT_EQ(std::filesystem::read_symlink(folder() + "/checkpoints/best"),
            absl::StrCat("step_", absl::Dec(6 * kFakeSteps, absl::kZeroPad12)));
}

// Rank 0 cannot write what the run came to, and dies of it.
TEST_F(VerdictsTest, ASolvedRunStaysSolvedForWhoTakesThePlaceOfRank0) {
  const std::string summary = folder() + "/summary.json";
  std::filesystem::create_directory(summary);
  const auto ends = TrainThroughTheLossOfRank0(
      StopConfig(),
      [&](bool, FakeLearner* learner) {
        learner->evaluate = Recording(absl::ZeroDuration());
      },
      [&] { std::filesystem::remove(summary); });
  ExpectSolvedAt(ends, kGood + kDelay);
  EXPECT_THAT(rounds_, ElementsAre(1, 2));
}

// It has learnt, and waits for a verdict to commit that, when the generation
// ends.
TEST_F(VerdictsTest, ARankAloneMakesNoUpdateTwiceWhenSomebodyJoins) {
  RunRanks(1, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    v1::Assignment next = assignment;
    next.set_generation(2);
    coordinator->SetAssignments({assignment, next});
    v1::RunConfig config = StopConfig();
    config.mutable_evaluation()->set_stop_return(kGood * kFakeSteps);
    FakeLearner learner(config);
    learner.parts.coordinator = coordinator;
    std::atomic<int> times = 0;  // that it has come to what waits
    learner.rollouts.on_next = [&](int64_t update) {
      if (update + 1 == 2 + kDelay) ++times;
    };
    learner.evaluate = [&](float weight, uint64_t, std::stop_token) {
      const absl::Time deadline = SteadyNow() + absl::Seconds(20);
      while (times < 2 && SteadyNow() < deadline) {
        if (coordinator->last_report().phase() == v1::EVALUATING) {
          coordinator->ReportFailure(1, "somebody joins").IgnoreError();
        }
        absl::SleepFor(absl::Milliseconds(1));
      }
      return std::vector<EvaluatedEpisode>{{.raw_return = weight, .length = 1}};
    };
    TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                      [](const absl::Status&) {});
    const auto outcome = loop.Run();
    ASSERT_OK(outcome);
    EXPECT_EQ(*outcome, RunOutcome::kSolved);
    EXPECT_EQ(times, 2);
    EXPECT_EQ(loop.progress().update, kGood + kDelay);
    EXPECT_EQ(learner.algorithm.weight(), (kGood + kDelay) * kFakeSteps);
  });
}

TEST_F(VerdictsTest, ASignalEndsTheWaitForAllRanks) {
  const auto ends =
      Train(StopConfig(), [&](int rank, FakeLearner* learner,
                              FakeCoordinatorClient*, TrainingLoop*) {
        learner->evaluate = [](float, uint64_t, std::stop_token stop)
            -> absl::StatusOr<std::vector<EvaluatedEpisode>> {
          AwaitStop(stop);
          return absl::CancelledError("told to stop");
        };
        if (rank != 1) return;
        learner->rollouts.on_next = [learner](int64_t update) {
          if (update != 4) return;  // everybody waits in it
          learner->signal = SIGTERM;
          learner->signalled.request_stop();
        };
      });
  for (const End& end : ends) {
    ASSERT_OK(end.outcome);
    EXPECT_EQ(*end.outcome, RunOutcome::kPreempted);
    EXPECT_EQ(end.progress.update, 5);
  }
}

TEST_F(VerdictsTest, AtOnceNobodyWaits) {
  std::atomic<bool> free = false;
  const auto ends = Train(
      StopConfig(/*at_once=*/true), [&](int rank, FakeLearner* learner,
                                        FakeCoordinatorClient*, TrainingLoop*) {
        learner->evaluate = [&](float weight, uint64_t, std::stop_token) {
          free.wait(false);
          return std::vector<EvaluatedEpisode>{
              {.raw_return = weight, .length = 1}};
        };
        if (rank != 0) return;
        learner->rollouts.on_next = [&](int64_t update) {
          if (update != 20) return;
          free = true;
          free.notify_all();
        };
      });
  for (const End& end : ends) {
    ASSERT_OK(end.outcome);
    EXPECT_EQ(*end.outcome, RunOutcome::kSolved);
    EXPECT_GT(end.progress.update, 20);
  }
}

TEST(EvaluationIsDueTest, AMeanIsOverTwentyEpisodesOrTheWholeWindow) {
  v1::RunConfig config;
  config.mutable_evaluation()->set_every_updates(2);
  config.mutable_evaluation()->set_min_training_return(100);
  Progress progress;
  progress.update = 4;
  RunMetrics::Window window;
  window.mean_return = 100;
  for (const auto& [episode_window, enough] :
       {std::pair(100, 20), {20, 20}, {19, 19}, {10, 10}, {1, 1}}) {
    config.mutable_metrics()->set_episode_window(episode_window);
    window.episodes = enough - 1;
    EXPECT_FALSE(EvaluationIsDue(config, progress, window)) << episode_window;
    window.episodes = enough;
    EXPECT_TRUE(EvaluationIsDue(config, progress, window)) << episode_window;
  }
  window.mean_return = 99;
  EXPECT_FALSE(EvaluationIsDue(config, progress, window));
  config.mutable_evaluation()->clear_min_training_return();
  EXPECT_TRUE(EvaluationIsDue(config, progress, window));
  progress.update = 5;
  EXPECT_FALSE(EvaluationIsDue(config, progress, window));
}

}  // namespace
}  // namespace flotilla
