#include "learner/training/iteration.h"

#include <google/protobuf/text_format.h>

#include <csignal>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/collective/faulty_collective.h"
#include "learner/collective/solo_collective.h"
#include "learner/training/run_state.h"
#include "services/base/steady_now.h"
#include "tests/learner/collective/ranks.h"
#include "tests/learner/training/fakes.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr int kWorld = 3;

// One rank in the middle of a generation.
struct Rank {
  Rank(const v1::Assignment& assignment, FakeCoordinatorClient* coordinator,
       v1::RunConfig config = FakeConfig())
      : learner(std::move(config)),
        failed_rows(learner.parts.config.env()),
        assignment(assignment) {
    learner.parts.coordinator = coordinator;
    learner.parts.failed_rows = &failed_rows;
    learner.rollouts.Begin(assignment.rank(), std::stop_token());
    auto made = MakeCollective(assignment, v1::DistributedConfig(), coordinator,
                               torch::kCPU);
    CHECK(made.ok()) << made.status();
    collective = *std::move(made);
    metrics.emplace(learner.parts.episode_metrics, learner.parts.episodes);
    phases.emplace(
        learner.parts.config, "learner/0/0", coordinator, [](v1::Heartbeat*) {},
        [](v1::Heartbeat*) {}, [](const absl::Status&) {});
    changes.emplace(learner.parts);
    verdicts.emplace(learner.parts);
    iteration.emplace(learner.parts, &clock, &*metrics, &*phases, &*changes,
                      &*verdicts, [] { return absl::OkStatus(); });
    clock.Set(0);
  }
  absl::StatusOr<Iteration::Result> Run(bool asks_to_save = false) {
    return iteration->Run(assignment, collective.get(), asks_to_save,
                          &progress);
  }

  FakeLearner learner;
  FailedRows failed_rows;
  v1::Assignment assignment;
  std::unique_ptr<Collective> collective;
  RunClock clock;
  std::optional<RunMetrics> metrics;
  std::optional<PhaseReporter> phases;
  std::optional<Changes> changes;
  std::optional<Verdicts> verdicts;
  std::optional<Iteration> iteration;
  Progress progress;
};

TEST(IterationTest, AnUpdateCommitsWhatAllRanksHaveDone) {
  RunRanks(kWorld, [](const v1::Assignment& assignment,
                      FakeCoordinatorClient* coordinator) {
    Rank rank(assignment, coordinator);
    rank.learner.rollouts.stats.episodes = {{0, 1, 1}, {1, 1, 1}};
    rank.learner.env_counts = {.restarts = 1,
                               .last_incarnation = 5 + assignment.rank()};
    const auto first = rank.Run();
    ASSERT_THAT(first.status(), IsOk());
    EXPECT_EQ(first->outcome, std::nullopt);
    EXPECT_EQ(rank.progress.update, 1);
    EXPECT_EQ(rank.progress.global_step, kWorld * kFakeSteps);
    EXPECT_EQ(rank.progress.episodes, 2 * kWorld);
    EXPECT_EQ(rank.progress.env_restarts, kWorld);
    EXPECT_EQ(rank.progress.env_incarnation, 7);  // whose it is
    EXPECT_GT(rank.progress.wall_seconds, 0);
    EXPECT_EQ(rank.learner.algorithm.weight(), kFakeSteps * (1 + 2 + 3));
    EXPECT_THAT(ByName(first->line), Contains(Pair("losses/fake", 16)));
    EXPECT_THAT(coordinator->phases(),
                ElementsAre(v1::STEPPING, v1::LEARNING, v1::COLLECTIVE));

    // Restarts are counted once.
    rank.learner.env_counts.restarts = assignment.rank() == 2 ? 3 : 1;
    ASSERT_THAT(rank.Run().status(), IsOk());
    EXPECT_EQ(rank.progress.update, 2);
    EXPECT_EQ(rank.progress.env_restarts, kWorld + 2);
  });
}

TEST(IterationTest, WhatOnlyOthersSawCommitIsCountedOnce) {
  RunRanks(kWorld, [](const v1::Assignment& assignment,
                      FakeCoordinatorClient* coordinator) {
    Rank rank(assignment, coordinator);
    rank.learner.env_counts = {.restarts = 1, .last_incarnation = 1};
    const auto fail = [&] {
      rank.failed_rows.NoteFailure("it broke", "", SteadyNow());
    };
    fail();
    constexpr int kAgreement = 2;  // the call after the update's own
    const bool misses = assignment.rank() == 1;
    if (misses) {
      rank.collective = std::make_unique<FaultyCollective>(
          std::move(rank.collective),
          Fault{.kind = Fault::kLate, .call = kAgreement});
    }
    EXPECT_EQ(rank.Run().ok(), !misses);
    EXPECT_EQ(rank.progress.update, misses ? 0 : 1);

    rank.assignment = MakeAssignment(assignment.rank(), kWorld, 2);
    rank.collective = *MakeCollective(rank.assignment, v1::DistributedConfig(),
                                      coordinator, torch::kCPU);
    ASSERT_THAT(ShareState(rank.collective.get(), /*source=*/0,
                           rank.learner.parts.Live(), &rank.progress),
                IsOk());
    EXPECT_EQ(rank.progress.env_restarts, kWorld);
    EXPECT_EQ(rank.progress.failed_rows, kWorld);
    ++rank.learner.env_counts.restarts;
    fail();
    ASSERT_THAT(rank.Run().status(), IsOk());
    EXPECT_EQ(rank.progress.update, 2);
    EXPECT_EQ(rank.progress.env_restarts, 2 * kWorld);
    EXPECT_EQ(rank.progress.failed_rows, 2 * kWorld);
  });
}

TEST(IterationTest, NothingOfAnUpdateThatFailsIsCommitted) {
  RunRanks(kWorld, [](const v1::Assignment& assignment,
                      FakeCoordinatorClient* coordinator) {
    Rank rank(assignment, coordinator);
    if (assignment.rank() == 1) rank.learner.algorithm.fails_at = 0;
    const auto result = rank.Run();
    if (assignment.rank() == 1) rank.collective->Abort();
    EXPECT_FALSE(result.ok());
    EXPECT_EQ(rank.progress.update, 0);
    EXPECT_EQ(rank.progress.global_step, 0);
    EXPECT_EQ(rank.progress.wall_seconds, 0);
  });
}

TEST(IterationTest, ALossThatIsNotFiniteNamesUpdateAndRank) {
  RunRanks(1, [](const v1::Assignment& assignment,
                 FakeCoordinatorClient* coordinator) {
    Rank rank(assignment, coordinator);
    rank.progress.update = 7;
    rank.learner.algorithm.fails_at = 7;
    rank.learner.algorithm.failure = absl::InternalError("the loss is nan");
    const absl::Status status = rank.Run().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.ToString(),
                testing::HasSubstr("update 8, rank 0: the loss is nan; "));
  });
}

// What stops all ranks after an update in which `sign` was seen by rank 1.
std::optional<RunOutcome> OutcomeAfter(
    const std::function<void(Rank*, FakeCoordinatorClient*)>& sign) {
  std::vector<std::optional<RunOutcome>> outcomes(kWorld);
  RunRanks(kWorld, [&](const v1::Assignment& assignment,
                       FakeCoordinatorClient* coordinator) {
    Rank rank(assignment, coordinator);
    if (assignment.rank() == 1) sign(&rank, coordinator);
    const auto result = rank.Run();
    ASSERT_THAT(result.status(), IsOk());
    outcomes[assignment.rank()] = result->outcome;
    EXPECT_EQ(rank.progress.update, 1);
  });
  EXPECT_THAT(outcomes, testing::Each(outcomes[0]));
  return outcomes[0];
}

TEST(IterationTest, OneRanksSignStopsAllAtTheSameUpdate) {
  const auto signal = [](int number) {
    return [number](Rank* rank, FakeCoordinatorClient*) {
      rank->learner.signal = number;
    };
  };
  EXPECT_EQ(OutcomeAfter([](Rank*, FakeCoordinatorClient*) {}), std::nullopt);
  EXPECT_EQ(OutcomeAfter(signal(SIGINT)), RunOutcome::kInterrupted);
  EXPECT_EQ(OutcomeAfter(signal(SIGTERM)), RunOutcome::kPreempted);
  EXPECT_EQ(OutcomeAfter(signal(SIGUSR1)), RunOutcome::kPreempted);
  EXPECT_EQ(OutcomeAfter([](Rank*, FakeCoordinatorClient* coordinator) {
              v1::Command command;
              command.set_stop(true);
              coordinator->SetLatest(command);
            }),
            RunOutcome::kStopped);
  // By a rank that got a signal and may be gone.
  EXPECT_EQ(OutcomeAfter([](Rank*, FakeCoordinatorClient* coordinator) {
              v1::Command command;
              command.set_stop(true);
              command.set_preempted(true);
              coordinator->SetLatest(command);
            }),
            RunOutcome::kPreempted);
  EXPECT_EQ(OutcomeAfter([](Rank*, FakeCoordinatorClient* coordinator) {
              v1::Command command;
              command.mutable_evaluation()->set_round(1);
              command.mutable_evaluation()->set_stop(true);
              coordinator->SetLatest(command);
            }),
            RunOutcome::kSolved);
  EXPECT_EQ(OutcomeAfter([](Rank* rank, FakeCoordinatorClient*) {
              rank->assignment.set_stopping(true);
            }),
            RunOutcome::kStopped);
}

TEST(IterationTest, RanksWhoseParametersDivergeAreNamed) {
  v1::RunConfig config = FakeConfig();
  config.mutable_distributed()->set_digest_every_updates(3);
  RunRanks(kWorld, [&](const v1::Assignment& assignment,
                       FakeCoordinatorClient* coordinator) {
    Rank rank(assignment, coordinator, config);
    ASSERT_OK(rank.Run());
    // One bit of one number, on one rank.
    if (assignment.rank() == 1) {
      torch::Tensor weight = rank.learner.algorithm.Weights()[0].tensor;
      int32_t* bits = reinterpret_cast<int32_t*>(weight.data_ptr<float>());
      *bits ^= 1 << 12;
    }
    ASSERT_OK(rank.Run());  // not looked at yet
    const absl::Status status = rank.Run().status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                                 testing::AllOf(HasSubstr("after update 3"),
                                                HasSubstr("rank 1"),
                                                HasSubstr("ranks 0, 2"))));
    EXPECT_EQ(rank.progress.update, 2);
  });
}

TEST(IterationTest, ParametersThatAreTheSameAreNotRefused) {
  v1::RunConfig config = FakeConfig();
  config.mutable_distributed()->set_digest_every_updates(1);
  RunRanks(kWorld, [&](const v1::Assignment& assignment,
                       FakeCoordinatorClient* coordinator) {
    Rank rank(assignment, coordinator, config);
    for (int i = 0; i < 5; ++i) ASSERT_OK(rank.Run());
  });
}

TEST(IterationTest, TheRunIsCompleteWhenItsStepsAreTaken) {
  RunRanks(kWorld, [](const v1::Assignment& assignment,
                      FakeCoordinatorClient* coordinator) {
    v1::RunConfig config = FakeConfig();
    config.set_total_env_steps(2 * kWorld * kFakeSteps);
    Rank rank(assignment, coordinator, config);
    EXPECT_EQ(rank.Run()->outcome, std::nullopt);
    EXPECT_EQ(rank.Run()->outcome, RunOutcome::kCompleted);
  });
}

TEST(IterationTest, UpdatesEndTheRunWhereTheyAreCounted) {
  RunRanks(1, [](const v1::Assignment& assignment,
                 FakeCoordinatorClient* coordinator) {
    v1::RunConfig config = FakeConfig();
    config.set_total_env_steps(1);  // has no say
    config.set_total_updates(2);
    Rank rank(assignment, coordinator, config);
    EXPECT_EQ(rank.Run()->outcome, std::nullopt);
    EXPECT_EQ(rank.Run()->outcome, RunOutcome::kCompleted);
  });
}

TEST(IterationTest, AllRanksKnowOfASaveThatOneClockAskedFor) {
  RunRanks(kWorld, [](const v1::Assignment& assignment,
                      FakeCoordinatorClient* coordinator) {
    Rank rank(assignment, coordinator);
    EXPECT_FALSE(rank.Run()->save);
    EXPECT_TRUE(rank.Run(/*asks_to_save=*/assignment.rank() == 0)->save);
    EXPECT_FALSE(rank.Run()->save);
  });
}

TEST(IterationTest, SavesAreDueByUpdatesOrSpreadOverTheRun) {
  const auto due = [](const std::string& checkpoint) {
    std::vector<int64_t> updates;
    RunRanks(1, [&](const v1::Assignment& assignment,
                    FakeCoordinatorClient* coordinator) {
      v1::RunConfig config = FakeConfig();
      config.set_total_env_steps(9 * kFakeSteps);
      config.clear_checkpoint();
      EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
          checkpoint, config.mutable_checkpoint()));
      Rank rank(assignment, coordinator, config);
      for (int update = 1; update <= 9; ++update) {
        if (rank.Run()->save) updates.push_back(update);
      }
    });
    return updates;
  };
  EXPECT_THAT(due("every_updates: 4"), ElementsAre(4, 8));
  EXPECT_THAT(due("count: 3"), ElementsAre(3, 6));
  EXPECT_THAT(due(""), ElementsAre());
}

TEST(IterationTest, MetricsAreDueEverySoManyUpdates) {
  RunRanks(1, [](const v1::Assignment& assignment,
                 FakeCoordinatorClient* coordinator) {
    v1::RunConfig config = FakeConfig();
    config.mutable_metrics()->set_every_updates(3);
    Rank rank(assignment, coordinator, config);
    for (int update = 1; update <= 6; ++update) {
      EXPECT_EQ(rank.Run()->line.empty(), update % 3 != 0) << update;
    }
  });
}

// A coordinator's word, as it stands before the ranks have agreed.
v1::Command Asked(const std::vector<std::string>& overrides) {
  v1::Command command;
  for (const std::string& text : overrides) {
    v1::Change* change = command.add_change();
    change->set_number(command.change_size());
    change->add_override(text);
  }
  return command;
}

TEST(IterationTest, AChangeHoldsFromTheUpdateThatNoRankHasBegun) {
  RunRanks(kWorld, [](const v1::Assignment& assignment,
                      FakeCoordinatorClient* coordinator) {
    Rank rank(assignment, coordinator);
    // Rank 1 hears of it one update later than the others.
    const v1::Command asked = Asked({"ppo.epochs=2"});
    if (assignment.rank() != 1) coordinator->SetLatest(asked);
    ASSERT_THAT(rank.Run().status(), IsOk());
    EXPECT_EQ(rank.progress.changes.change_size(), 0);
    coordinator->SetLatest(asked);
    ASSERT_THAT(rank.Run().status(), IsOk());
    ASSERT_EQ(rank.progress.changes.change_size(), 1);
    EXPECT_EQ(rank.progress.changes.change(0).update(), 3);
    EXPECT_EQ(rank.learner.algorithm.epochs, std::vector<int>({4, 4}));
    const auto third = rank.Run();
    ASSERT_THAT(third.status(), IsOk());
    EXPECT_EQ(rank.learner.algorithm.epochs, std::vector<int>({4, 4, 2}));
    EXPECT_THAT(ByName(third->line), Contains(Pair("changes/ppo.epochs", 2)));
  });
}

TEST(IterationTest, RanksThatHearOfDifferentChangesAgreeOnNone) {
  RunRanks(kWorld, [](const v1::Assignment& assignment,
                      FakeCoordinatorClient* coordinator) {
    Rank rank(assignment, coordinator);
    coordinator->SetLatest(
        Asked({assignment.rank() == 1 ? "ppo.epochs=2" : "ppo.epochs=3"}));
    ASSERT_THAT(rank.Run().status(), IsOk());
    EXPECT_EQ(rank.progress.changes.change_size(), 0);
  });
}

TEST(IterationTest, ChangesThatDoNotFitAreRefusedAndCounted) {
  RunRanks(2, [](const v1::Assignment& assignment,
                 FakeCoordinatorClient* coordinator) {
    Rank rank(assignment, coordinator);
    coordinator->SetLatest(
        Asked({"dqn.huber=true", "ppo.epochs=3", "ppo.epochs=9"}));
    rank.learner.algorithm.most_epochs = 8;
    for (int i = 0; i < 3; ++i) ASSERT_THAT(rank.Run().status(), IsOk());
    ASSERT_EQ(rank.progress.changes.change_size(), 3);
    EXPECT_THAT(rank.progress.changes.change(0).refused(),
                testing::HasSubstr("dqn"));
    EXPECT_EQ(rank.progress.changes.change(1).refused(), "");
    EXPECT_EQ(rank.progress.changes.change(2).refused(), "too many epochs");
    ASSERT_THAT(rank.Run().status(), IsOk());
    EXPECT_EQ(rank.learner.algorithm.epochs, std::vector<int>({4, 4, 3, 3}));
  });
}

// Every heartbeat of every rank says it.
TEST(IterationTest, WhyAChangeIsRefusedIsShort) {
  RunRanks(2, [](const v1::Assignment& assignment,
                 FakeCoordinatorClient* coordinator) {
    Rank rank(assignment, coordinator);
    coordinator->SetLatest(
        Asked({"optimizer.learning_rate=" + std::string(990, 'y')}));
    ASSERT_THAT(rank.Run().status(), IsOk());
    ASSERT_EQ(rank.progress.changes.change_size(), 1);
    const std::string& refused = rank.progress.changes.change(0).refused();
    EXPECT_THAT(refused, HasSubstr("expected a number"));
    EXPECT_LT(refused.size(), 600u);
  });
}

// As a resumed run has them, and one that goes back to its last committed update.
TEST(IterationTest, ChangesThatAreKnownBeforehandAreMadeAtTheirUpdates) {
  RunRanks(1, [](const v1::Assignment& assignment,
                 FakeCoordinatorClient* coordinator) {
    Rank rank(assignment, coordinator);
    v1::Change* change = rank.progress.changes.add_change();
    change->set_number(1);
    change->add_override("ppo.epochs=2");
    change->set_update(3);
    Progress committed;
    for (int i = 0; i < 3; ++i) {
      committed = rank.progress;
      ASSERT_THAT(rank.Run().status(), IsOk());
    }
    EXPECT_EQ(rank.learner.algorithm.epochs, std::vector<int>({4, 4, 2}));
    rank.progress = committed;
    rank.progress.update = 1;
    ASSERT_THAT(rank.Run().status(), IsOk());
    EXPECT_EQ(rank.learner.algorithm.epochs.back(), 4);
  });
}

TEST(IterationTest, TheRunIsAsLongAsItWasChangedToBe) {
  RunRanks(1, [](const v1::Assignment& assignment,
                 FakeCoordinatorClient* coordinator) {
    v1::RunConfig config = FakeConfig();
    config.set_total_env_steps(2 * kFakeSteps);
    Rank rank(assignment, coordinator, config);
    ASSERT_THAT(rank.Run().status(), IsOk());
    coordinator->SetLatest(
        Asked({absl::StrCat("total_env_steps=", 3 * kFakeSteps)}));
    const auto last_but_one = rank.Run();
    ASSERT_THAT(last_but_one.status(), IsOk());
    EXPECT_EQ(last_but_one->outcome, std::nullopt);
    const auto last = rank.Run();
    ASSERT_THAT(last.status(), IsOk());
    EXPECT_EQ(last->outcome, RunOutcome::kCompleted);
  });
}

}  // namespace
}  // namespace flotilla
