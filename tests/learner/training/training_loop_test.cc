#include "learner/training/training_loop.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stop_token>
#include <utility>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/checkpoint/checkpoint.h"
#include "learner/training/game_keeper.h"
#include "services/base/steady_now.h"
#include "tests/learner/training/training_loop_fixture.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_disk.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST_F(TrainingLoopTest, AllRanksTrainToTheEndAndRank0WritesTheResult) {
  for (const End& end : Train(Config())) {
    ASSERT_THAT(end.outcome.status(), IsOk());
    EXPECT_EQ(*end.outcome, RunOutcome::kCompleted);
    EXPECT_EQ(end.progress.update, kUpdates);
    EXPECT_EQ(end.progress.global_step, kUpdates * kWorld * kFakeSteps);
    EXPECT_EQ(end.weight, kUpdates * kUpdate);
  }
  EXPECT_THAT(Summary(), HasSubstr("\"status\": \"completed\""));
  EXPECT_THAT(RecordedUpdates(), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_TRUE(std::filesystem::exists(folder() + "/checkpoints/latest"));
}

TEST_F(TrainingLoopTest, AfterALossAllGoBackAndRedoTheUpdate) {
  bool lost = false;
  const auto ends =
      Train(Config(), [&](int rank, FakeLearner* learner,
                          FakeCoordinatorClient* coordinator, TrainingLoop*) {
        if (rank == 1) LoseGenerationAt(2, learner, coordinator, &lost);
      });
  EXPECT_TRUE(lost);
  for (const End& end : ends) {
    ASSERT_THAT(end.outcome.status(), IsOk());
    EXPECT_EQ(end.progress.update, kUpdates);
    EXPECT_EQ(end.progress.global_step, kUpdates * kWorld * kFakeSteps);
    EXPECT_EQ(end.weight, kUpdates * kUpdate);
  }
  EXPECT_THAT(RecordedUpdates(), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(TrainingLoopTest, RestartsAreCountedOverResumesAndGenerations) {
  restarts_ = 1;
  bool lost = false;
  const auto ends = Train(
      Config(), [&](int rank, FakeLearner* learner,
                    FakeCoordinatorClient* coordinator, TrainingLoop* loop) {
        Progress progress;
        progress.learner_restarts = 3;
        progress.assigned_restarts = 2;  // by a coordinator that is no more
        loop->BeginAt(progress, /*has_state=*/true);
        if (rank == 1) LoseGenerationAt(2, learner, coordinator, &lost);
      });
  EXPECT_TRUE(lost);
  for (const End& end : ends) {
    ASSERT_THAT(end.outcome.status(), IsOk());
    EXPECT_EQ(end.progress.learner_restarts, 4);
    EXPECT_EQ(end.progress.assigned_restarts, 1);
  }
  EXPECT_THAT(Summary(), HasSubstr("\"learner\": 4"));
}

TEST_F(TrainingLoopTest, ARankWithoutStateTakesTheSources) {
  source_ = 2;
  const auto ends = Train(
      Config(), [&](int rank, FakeLearner* learner,
                    FakeCoordinatorClient* coordinator, TrainingLoop* loop) {
        coordinator->ReportFailure(1, "before").IgnoreError();
        if (rank != 2) return;
        Progress progress;
        progress.update = 3;
        progress.global_step = 3 * kWorld * kFakeSteps;
        progress.wall_seconds = 1000;
        torch::Tensor weight = learner->algorithm.Weights()[0].tensor;
        weight.fill_(3 * kUpdate);
        loop->BeginAt(progress, /*has_state=*/true);
      });
  for (const End& end : ends) {
    ASSERT_THAT(end.outcome.status(), IsOk());
    EXPECT_EQ(end.progress.update, kUpdates);
    EXPECT_EQ(end.weight, kUpdates * kUpdate);
    EXPECT_GT(end.progress.wall_seconds, 1000);  // time goes on with the state
  }
  EXPECT_THAT(RecordedUpdates(), ElementsAre(4, 5));
}

// Rank 1 has the source's weights, and nothing else of it, when it becomes the
// source itself.
TEST_F(TrainingLoopTest, WhatWasSharedByHalvesIsUndone) {
  source_ = 1;
  bool torn = false;
  const auto ends = Train(
      Config(), [&](int rank, FakeLearner* learner,
                    FakeCoordinatorClient* coordinator, TrainingLoop* loop) {
        if (rank == 0) {
          Progress progress;
          progress.update = 3;
          progress.global_step = 3 * kWorld * kFakeSteps;
          learner->algorithm.Weights()[0].tensor.fill_(3 * kUpdate);
          loop->BeginAt(progress, /*has_state=*/true);
        } else if (rank == 1) {
          learner->algorithm.on_state = [&torn, learner, coordinator] {
            if (learner->algorithm.weight() == 0 || std::exchange(torn, true)) {
              return;
            }
            coordinator->ReportFailure(1, "injected").IgnoreError();
          };
        }
      });
  EXPECT_TRUE(torn);
  for (const End& end : ends) {
    ASSERT_OK(end.outcome);
    EXPECT_EQ(end.progress.update, kUpdates);
    EXPECT_EQ(end.weight, kUpdates * kUpdate);
  }
}

TEST_F(TrainingLoopTest, RanksWhoseEnvironmentsDifferAreRefusedByName) {
  const std::vector<std::function<void(FakeLearner*)>> differences = {
      [](FakeLearner* learner) { learner->episodes = EpisodeWindow(100, 2); },
      [](FakeLearner* learner) { learner->parts.episode_metrics = {"wins"}; },
      [](FakeLearner* learner) { learner->parts.agents = 2; }};
  for (const auto& differ : differences) {
    std::vector<std::string> told(kWorld);
    RunRanks(kWorld, [&](const v1::Assignment& assignment,
                         FakeCoordinatorClient* coordinator) {
      coordinator->SetAssignment(assignment);
      FakeLearner learner(Config());
      learner.parts.coordinator = coordinator;
      learner.parts.episode_metrics = {"score"};
      learner.episodes = EpisodeWindow(100, 1);
      if (assignment.rank() == 1) differ(&learner);
      TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                        [](const absl::Status&) {});
      EXPECT_THAT(loop.Run(),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           AllOf(HasSubstr("rank 0 (learner/0/0 on host-a): "
                                           "rank 1 (learner/0/1 on host-a). "),
                                 HasSubstr("the same configuration"))));
      told[assignment.rank()] = coordinator->layout_digest();
    });
    // What a coordinator knows them apart by, before they meet.
    EXPECT_THAT(told[0], SizeIs(64));
    EXPECT_EQ(told[2], told[0]);
    EXPECT_NE(told[1], told[0]);
  }
}

TEST_F(TrainingLoopTest, ARunThatIsToldToStopSavesWhereItIs) {
  const auto ends = Train(
      Config(1000), [&](int rank, FakeLearner* learner,
                        FakeCoordinatorClient* coordinator, TrainingLoop*) {
        if (rank != 2) return;
        learner->rollouts.on_next = [coordinator](int64_t update) {
          if (update == 3) coordinator->StopRun("enough", false).IgnoreError();
        };
      });
  for (const End& end : ends) {
    ASSERT_THAT(end.outcome.status(), IsOk());
    EXPECT_EQ(*end.outcome, RunOutcome::kStopped);
    EXPECT_EQ(end.progress.update, ends[0].progress.update);
  }
  EXPECT_GE(ends[0].progress.update, 4);
  EXPECT_THAT(Summary(), HasSubstr("\"status\": \"stopped\""));
}

TEST_F(TrainingLoopTest, ARunThatIsToldToStopDoesNotWaitForItsLastEvaluation) {
  RunRanks(1, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    coordinator->SetAssignment(assignment);
    v1::RunConfig config = FakeConfig();
    config.set_total_env_steps(kUpdates * kFakeSteps);
    config.mutable_evaluation()->set_every_updates(1000);
    FakeLearner learner(config);
    learner.parts.coordinator = coordinator;
    learner.evaluate = [&](float, uint64_t, std::stop_token stop)
        -> absl::StatusOr<std::vector<EvaluatedEpisode>> {
      coordinator->StopRun("enough", false).IgnoreError();
      absl::Notification told;
      const std::stop_callback tell(stop, [&] { told.Notify(); });
      told.WaitForNotification();
      return absl::CancelledError("told to stop");
    };
    TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                      [](const absl::Status&) {});
    const auto outcome = loop.Run();
    ASSERT_OK(outcome);
    EXPECT_EQ(*outcome, RunOutcome::kCompleted);
    EXPECT_EQ(loop.progress().update, kUpdates);
  });
  EXPECT_THAT(Summary(), HasSubstr("\"status\": \"completed\""));
}

// A rank that holds the state of update 3, in a generation that forms to stop, makes
// no other.
void RunToStop(const v1::Command& newest, const std::string& folder,
               RunOutcome expected) {
  RunRanks(1,
           [&](v1::Assignment assignment, FakeCoordinatorClient* coordinator) {
             assignment.set_stopping(true);
             coordinator->SetAssignment(assignment);
             coordinator->SetLatest(newest);
             FakeLearner learner(Config());
             learner.parts.coordinator = coordinator;
             TrainingLoop loop(learner.parts, learner.LeaderIn(folder),
                               [](const absl::Status&) {});
             Progress progress;
             progress.update = 3;
             loop.BeginAt(progress, /*has_state=*/true);
             const auto outcome = loop.Run();
             ASSERT_OK(outcome);
             EXPECT_EQ(*outcome, expected);
             EXPECT_EQ(loop.progress().update, 3);
           });
}

TEST_F(TrainingLoopTest, AGenerationThatFormsToStopMakesNoUpdate) {
  RunToStop(v1::Command(), folder(), RunOutcome::kStopped);
  EXPECT_THAT(Summary(), HasSubstr("\"status\": \"stopped\""));
}

TEST_F(TrainingLoopTest, ASignalBeforeTheLearnersHaveMetEndsItAtOnce) {
  RunRanks(1, [&](const v1::Assignment&, FakeCoordinatorClient* coordinator) {
    FakeLearner learner(Config());
    learner.parts.coordinator = coordinator;
    learner.signal = SIGINT;
    learner.signalled.request_stop();
    TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                      [](const absl::Status&) {});
    const auto outcome = loop.Run();
    ASSERT_THAT(outcome.status(), IsOk());
    EXPECT_EQ(*outcome, RunOutcome::kInterrupted);
  });
  EXPECT_FALSE(std::filesystem::exists(folder() + "/summary.json"));
}

TEST_F(TrainingLoopTest, AFailureThatIsNoLossEndsTheRank) {
  const auto ends = Train(Config(), [&](int, FakeLearner* learner,
                                        FakeCoordinatorClient*, TrainingLoop*) {
    learner->algorithm.fails_at = 1;
    learner->algorithm.failure = absl::InternalError("the loss is nan");
  });
  for (const End& end : ends) {
    EXPECT_EQ(end.outcome.status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(end.outcome.status().message()),
                HasSubstr("update 2, rank"));
  }
}

TEST_F(TrainingLoopTest, AFailedRunSaysSoInItsSummary) {
  Train(Config(),
        [&](int, FakeLearner* learner, FakeCoordinatorClient*, TrainingLoop*) {
          learner->algorithm.fails_at = 2;
          learner->algorithm.failure = absl::InternalError("the loss is nan");
        });
  EXPECT_THAT(Summary(), AllOf(HasSubstr("\"status\": \"failed\""),
                               HasSubstr("update 3, rank 0: the loss is nan"),
                               HasSubstr("\"updates\": 2")));
}

// What a coordinator says once the launcher of node 1 has given up.
v1::Command Failed() {
  v1::Command command;
  command.set_closed(true);
  command.set_failure("the run failed: the launcher of learner/1/0 gave up");
  return command;
}

TEST_F(TrainingLoopTest,
       ARunThatFailedElsewhereIsNotCompletedByWhoHasFinished) {
  const auto ends =
      Train(Config(), [](int rank, FakeLearner* learner,
                         FakeCoordinatorClient* coordinator, TrainingLoop*) {
        if (rank != 1) return;
        learner->rollouts.on_next = [coordinator](int64_t update) {
          if (update == kUpdates - 1) coordinator->SetLatest(Failed());
        };
      });
  EXPECT_THAT(ends[1].outcome, StatusIs(absl::StatusCode::kResourceExhausted,
                                        HasSubstr("learner/1/0")));
  EXPECT_EQ(ends[1].progress.update, kUpdates);
}

TEST_F(TrainingLoopTest, ARunThatIsOverIsNotJoinedThoughTheCoordinatorIsGone) {
  RunRanks(1, [&](const v1::Assignment&, FakeCoordinatorClient* coordinator) {
    v1::RunConfig config = Config();
    config.mutable_distributed()->set_join_timeout_seconds(20);
    FakeLearner learner(config);
    learner.parts.coordinator = coordinator;  // no generation ever forms
    coordinator->SetLatest(Failed());
    TrainingLoop failed(learner.parts, learner.LeaderIn(folder()),
                        [](const absl::Status&) {});
    EXPECT_THAT(failed.Run(), StatusIs(absl::StatusCode::kResourceExhausted,
                                       HasSubstr("learner/1/0")));
    v1::Command ended;
    ended.set_closed(true);
    coordinator->SetLatest(ended);
    TrainingLoop late(learner.parts, learner.LeaderIn(folder()),
                      [](const absl::Status&) {});
    const auto outcome = late.Run();
    ASSERT_THAT(outcome.status(), IsOk());
    EXPECT_EQ(*outcome, RunOutcome::kCompleted);
  });
}

// How a rank ends that has trained nothing and whose join is refused.
RunOutcome OutcomeOfALatecomer(const v1::Command& newest,
                               const absl::StatusOr<v1::Status>& status) {
  RunOutcome ended = RunOutcome::kSolved;
  TempDir folder;
  RunRanks(1, [&](const v1::Assignment&, FakeCoordinatorClient* coordinator) {
    coordinator->RefuseJoins(absl::AbortedError("the run is over"));
    coordinator->SetLatest(newest);
    coordinator->SetStatus(status);
    FakeLearner learner(Config());
    learner.parts.coordinator = coordinator;
    TrainingLoop loop(learner.parts, learner.LeaderIn(folder.path()),
                      [](const absl::Status&) {});
    const auto outcome = loop.Run();
    ASSERT_OK(outcome);
    ended = *outcome;
  });
  return ended;
}

TEST_F(TrainingLoopTest, WhoComesTooLateToAPreemptedRunIsPreemptedToo) {
  const auto told = [](bool stop, bool closed, bool preempted) {
    v1::Command command;
    command.set_stop(stop);
    command.set_closed(closed);
    command.set_preempted(preempted);
    return command;
  };
  const absl::Status gone = absl::UnavailableError("no coordinator answers");
  v1::Status preempted;
  preempted.set_preempted(true);
  // The refusal may come before the newest command does.
  EXPECT_EQ(OutcomeOfALatecomer(v1::Command(), preempted),
            RunOutcome::kPreempted);
  EXPECT_EQ(OutcomeOfALatecomer(v1::Command(), v1::Status()),
            RunOutcome::kCompleted);
  EXPECT_EQ(OutcomeOfALatecomer(v1::Command(), gone), RunOutcome::kCompleted);
  // The coordinator may have gone after it.
  EXPECT_EQ(OutcomeOfALatecomer(told(true, false, true), gone),
            RunOutcome::kPreempted);
  EXPECT_EQ(OutcomeOfALatecomer(told(false, true, true), gone),
            RunOutcome::kPreempted);
  // Another may be there, of the run that follows.
  EXPECT_EQ(OutcomeOfALatecomer(told(true, true, false), preempted),
            RunOutcome::kCompleted);
}

// Of which it has heard by a coordinator that was there before this one.
TEST_F(TrainingLoopTest, ARankThatHasHeardTheEndWhileItStartedJoinsNothing) {
  for (const bool closed : {false, true}) {
    SCOPED_TRACE(closed);
    RunRanks(1, [&](const v1::Assignment& assignment,
                    FakeCoordinatorClient* coordinator) {
      coordinator->SetAssignment(assignment);
      v1::Command newest;
      newest.set_stop(!closed);
      newest.set_closed(closed);
      newest.set_preempted(true);
      coordinator->SetLatest(newest);
      FakeLearner learner(Config());
      learner.parts.coordinator = coordinator;
      TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                        [](const absl::Status&) {});
      if (!closed) loop.BeginAt(Progress(), /*has_state=*/true);  // resumed
      const auto outcome = loop.Run();
      ASSERT_OK(outcome);
      EXPECT_EQ(*outcome, RunOutcome::kPreempted);
      EXPECT_EQ(loop.progress().update, 0);
    });
  }
  EXPECT_FALSE(std::filesystem::exists(folder() + "/summary.json"));
}

// It was started again, from a checkpoint, when the run was told to stop.
TEST_F(TrainingLoopTest, ARankThatHoldsTheRunsStateJoinsToSaveIt) {
  v1::Command newest;
  newest.set_generation(1);
  newest.set_stop(true);
  newest.set_preempted(true);
  RunToStop(newest, folder(), RunOutcome::kPreempted);
  EXPECT_THAT(Summary(), HasSubstr("\"status\": \"preempted\""));
}

TEST_F(TrainingLoopTest, CollectingIsSteppingOrInferenceByTurns) {
  v1::RunConfig config = Config();
  config.mutable_distributed()->set_heartbeat_seconds(0.002);
  std::atomic<int> seen = 0;
  Train(config, [&](int rank, FakeLearner* learner,
                    FakeCoordinatorClient* coordinator, TrainingLoop*) {
    if (rank != 1) return;
    learner->rollouts.on_next = [&seen, learner, coordinator](int64_t) {
      const auto await = [&](v1::Phase phase, const std::string& waits_for) {
        const absl::Time deadline = SteadyNow() + absl::Seconds(20);
        while (SteadyNow() < deadline) {
          const v1::Heartbeat beat = coordinator->last_report();
          if (beat.phase() == phase && beat.waits_for() == waits_for) {
            ++seen;
            return;
          }
          absl::SleepFor(absl::Milliseconds(1));
        }
      };
      learner->rollouts.decides = true;
      await(v1::INFERENCE, "");
      learner->rollouts.decides = false;
      await(v1::STEPPING, "environments");
    };
  });
  EXPECT_EQ(seen, 2 * kUpdates);
}

TEST_F(TrainingLoopTest, ACheckpointIsSavedWhenTheClockSaysSo) {
  v1::RunConfig config = Config(1000000);
  config.mutable_checkpoint()->set_every_seconds(0.01);
  const std::string latest = folder_->path() + "/checkpoints/latest";
  std::atomic<bool> seen = false;
  Train(config, [&](int rank, FakeLearner* learner,
                    FakeCoordinatorClient* coordinator, TrainingLoop*) {
    if (rank != 0) return;
    learner->rollouts.on_next = [&, coordinator](int64_t update) {
      std::error_code absent;
      seen = seen || std::filesystem::exists(latest, absent);
      if (seen || update > 200000) {
        coordinator->StopRun("seen", false).IgnoreError();
      }
    };
  });
  EXPECT_TRUE(seen);
}

TEST_F(TrainingLoopTest, ARunThatBeginsAnewSetsAsideWhatItHadRecorded) {
  std::ofstream(folder_->path() + "/metrics.jsonl")
      << "{\"global_step\":1,\"update\":428,\"wall_seconds\":0}\n";
  std::string told;
  Train(Config(), [&](int rank, FakeLearner* learner,
                      FakeCoordinatorClient* coordinator, TrainingLoop*) {
    if (rank != 0) return;
    learner->rollouts.on_next = [&, coordinator](int64_t) {
      told = coordinator->last_report().started_over();
    };
  });
  EXPECT_THAT(told, HasSubstr("started over at step 0: it was lost at update "
                              "428"));
  EXPECT_THAT(Summary(), HasSubstr(told));
  EXPECT_THAT(RecordedUpdates(), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(ReadAll(folder_->path() + "/metrics.jsonl.before_starting_over"),
              HasSubstr("\"update\":428"));
}

TEST_F(TrainingLoopTest, WhereNobodyKnowsAnythingTheSourceGoesBack) {
  std::atomic<int> asked = 0;
  const auto ends = Train(Config(), [&](int rank, FakeLearner* learner,
                                        FakeCoordinatorClient*, TrainingLoop*) {
    learner->go_back = [&, rank, learner](Progress* progress) -> absl::Status {
      ++asked;
      EXPECT_EQ(rank, 0);
      progress->update = 2;
      progress->global_step = 2 * kWorld * kFakeSteps;
      learner->algorithm.Weights()[0].tensor.fill_(2 * kUpdate);
      return absl::OkStatus();
    };
  });
  EXPECT_EQ(asked, 1);
  for (const End& end : ends) {
    ASSERT_THAT(end.outcome.status(), IsOk());
    EXPECT_EQ(end.progress.global_step, kUpdates * kWorld * kFakeSteps);
    EXPECT_EQ(end.weight, kUpdates * kUpdate);
  }
  EXPECT_THAT(RecordedUpdates(), ElementsAre(3, 4, 5));
}

TEST_F(TrainingLoopTest, TheNewestEpisodesOutliveALossAndCountOnce) {
  const auto ends = Train(Config(), [&](int rank, FakeLearner* learner,
                                        FakeCoordinatorClient* coordinator,
                                        TrainingLoop*) {
    learner->rollouts.stats.episodes = {{0, 10.0 + rank, 1}};
    learner->rollouts.on_next = [=](int64_t update) {
      learner->rollouts.stats.episodes[0].raw_return = 100.0 * update + rank;
      if (rank == 1 && update == 2) {
        coordinator->ReportFailure(1, "injected").IgnoreError();
      }
    };
  });
  // Returns 100 u + rank, each once.
  EXPECT_THAT(Summary(), HasSubstr("\"mean_return\": 201"));
  EXPECT_THAT(Summary(), HasSubstr("\"episodes\": 15"));
}

// A generation of one keeps no snapshot: what it learns must not be undone by
// one of a generation before.
TEST_F(TrainingLoopTest, WhatWasLearntAloneIsNotLostWhenSomebodyJoins) {
  RunRanks(1,
           [&](v1::Assignment assignment, FakeCoordinatorClient* coordinator) {
             v1::Assignment next = assignment;
             next.set_generation(2);
             coordinator->SetAssignments({assignment, next});
             v1::RunConfig config = FakeConfig();
             config.set_total_env_steps(kUpdates * kFakeSteps);
             FakeLearner learner(config);
             learner.parts.coordinator = coordinator;
             learner.rollouts.on_next = [&](int64_t update) {
               if (update == 3)
                 coordinator->ReportFailure(1, "joins").IgnoreError();
             };
             TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                               [](const absl::Status&) {});
             ASSERT_THAT(loop.Run().status(), IsOk());
             EXPECT_EQ(learner.algorithm.weight(), kUpdates * kFakeSteps);
           });
  EXPECT_THAT(RecordedUpdates(), ElementsAre(1, 2, 3, 4, 5));
}

// Takes the last line away, as if its writer had died before it.
void LoseLastLine(const std::string& path) {
  std::string text = ReadAll(path);
  text.erase(text.rfind('\n', text.size() - 2) + 1);
  std::ofstream(path) << text;
}

TEST_F(TrainingLoopTest, ASurvivorsMetricsTakeThePlaceOfThoseThatRank0Lost) {
  const auto ends = TrainThroughTheLossOfRank0(
      Config(),
      [](bool dies, FakeLearner* learner) {
        if (dies) DieAt(3, learner);
      },
      [&] { LoseLastLine(folder() + "/metrics.jsonl"); });
  for (const End& end : ends) {
    ASSERT_OK(end.outcome);
    EXPECT_EQ(end.progress.update, kUpdates);
  }
  EXPECT_THAT(RecordedUpdates(), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(TrainingLoopTest, AFullDiskDoesNotEndTheRunWhenRank0IsLost) {
  TinyDisk disk(folder());
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  const auto ends = TrainThroughTheLossOfRank0(
      Config(),
      [&](bool dies, FakeLearner* learner) {
        if (dies) return DieAt(3, learner);
        learner->rollouts.on_next = [&](int64_t update) {
          if (update == 4) disk.Free();
        };
      },
      [&] {
        // In the middle of its last line, which cannot be set aside.
        const std::string metrics = folder() + "/metrics.jsonl";
        std::filesystem::resize_file(metrics,
                                     std::filesystem::file_size(metrics) - 9);
        disk.Fill();
      });
  for (const End& end : ends) {
    ASSERT_OK(end.outcome);
    EXPECT_EQ(end.weight, kUpdates * kUpdate);
  }
  EXPECT_THAT(RecordedUpdates(), ElementsAre(1, 2, 3, 3, 4, 5));
  EXPECT_THAT(Summary(), HasSubstr("\"status\": \"completed\""));
}

TEST_F(TrainingLoopTest, LearnersThatMeetInVainGiveUp) {
  std::atomic<int> begun = 0;
  RunRanks(kWorld, [&](const v1::Assignment& assignment,
                       FakeCoordinatorClient* coordinator) {
    std::vector<v1::Assignment> generations(100, assignment);
    for (size_t i = 0; i < generations.size(); ++i) {
      generations[i].set_generation(i + 1);
    }
    coordinator->SetAssignments(generations);
    v1::RunConfig config = Config();
    config.mutable_distributed()->set_join_timeout_seconds(0.5);
    // Each goes by its own clock: one may come once more, and meets nobody.
    config.mutable_distributed()->set_timeout_seconds(20);
    FakeLearner learner(config);
    learner.parts.coordinator = coordinator;
    if (assignment.rank() == 1) {
      // Three times in vain, then an update, and never again.
      learner.rollouts.on_next = [&](int64_t update) {
        const bool passes = ++begun == 4;
        learner.algorithm.fails_at = passes ? -1 : update;
      };
    }
    TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                      [](const absl::Status&) {});
    EXPECT_THAT(loop.Run(),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         AllOf(HasSubstr("learner/0/2 on host-a met "),
                               HasSubstr("GLOO_SOCKET_IFNAME"))));
    EXPECT_EQ(loop.progress().update, 1);
  });
  EXPECT_GE(begun, 3 + 1 + 5);
  EXPECT_THAT(Summary(), HasSubstr("\"status\": \"failed\""));
}

TEST_F(TrainingLoopTest, WhoLeadsNoMoreWritesNoMore) {
  TempDir games;
  std::atomic<bool> kept = false;
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const bool leads = assignment.rank() == 0;
    v1::Assignment next = assignment;
    next.set_generation(2);
    next.set_rank(1 - assignment.rank());
    coordinator->SetAssignments({assignment, next});
    FakeLearner learner(Config());
    learner.parts.coordinator = coordinator;
    LeaderOptions options = learner.LeaderIn(folder());
    if (leads) {
      options.keep_games = [&] {
        kept = true;
        return std::shared_ptr<GameKeeper>(
            new GameKeeper(games / "training.games", {}, 1),
            [&](GameKeeper* keeper) {
              delete keeper;
              kept = false;
            });
      };
      learner.rollouts.on_next = [&, coordinator](int64_t update) {
        if (update == 2 && kept) {
          coordinator->ReportFailure(1, "injected").IgnoreError();
        } else {
          EXPECT_EQ(kept, update < 2) << update;
        }
      };
    }
    TrainingLoop loop(learner.parts, options, [](const absl::Status&) {});
    ASSERT_OK(loop.Run());
  });
  EXPECT_THAT(RecordedUpdates(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

// A checkpoint of update 2 is the best, and one of update 3, from before that
// evaluation had ended, the latest.
TEST_F(TrainingLoopTest, TheBestStaysTheBestThoughTheRunGoesOnFromBeforeIt) {
  Progress best;
  best.update = 2;
  best.global_step = 2 * kFakeSteps;
  best.best_return = 1e6;
  CheckpointData data;
  data.weights["weight"] = torch::full({1}, 2.0f * kFakeSteps);
  data.progress = ToText(best);
  data.config = Config();
  std::filesystem::create_directory(folder() + "/checkpoints");
  CheckpointStore store(folder() + "/checkpoints", 3);
  ASSERT_OK(store.Save(data));
  ASSERT_OK(store.MarkBest(best.global_step));
  RunRanks(1, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    coordinator->SetAssignment(assignment);
    v1::RunConfig config = Config();
    config.mutable_evaluation()->set_every_updates(1);
    FakeLearner learner(config);
    learner.parts.coordinator = coordinator;
    TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                      [](const absl::Status&) {});
    Progress progress;
    progress.update = 3;
    progress.global_step = 3 * kFakeSteps;
    progress.best_return = 5;
    loop.BeginAt(progress, /*has_state=*/true);
    ASSERT_OK(loop.Run());
    EXPECT_EQ(loop.progress().best_return, 1e6);
  });
  EXPECT_EQ(std::filesystem::read_symlink(folder() + "/checkpoints/best"),
            "step_000000000016");
}

// The last weights are NaN, and are not saved; the evaluation that ends later
// saves what it was of.
TEST_F(TrainingLoopTest, AFinalCheckpointThatFailsIsNotMadeUpForByTheBest) {
  RunRanks(1, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    coordinator->SetAssignment(assignment);
    v1::RunConfig config = FakeConfig();
    config.set_total_env_steps(kUpdates * kFakeSteps);
    config.mutable_evaluation()->set_every_updates(3);
    FakeLearner learner(config);
    learner.parts.coordinator = coordinator;
    learner.rollouts.on_next = [&](int64_t update) {
      if (update != kUpdates - 1) return;
      torch::Tensor weight = learner.algorithm.Weights()[0].tensor;
      weight.fill_(std::nan(""));
    };
    learner.evaluate = [&](float, uint64_t, std::stop_token) {
      const absl::Time deadline = SteadyNow() + absl::Seconds(20);
      while (coordinator->last_report().phase() != v1::EVALUATING &&
             SteadyNow() < deadline) {
        absl::SleepFor(absl::Milliseconds(1));
      }
      return std::vector<EvaluatedEpisode>{{.raw_return = 1, .length = 1}};
    };
    TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                      [](const absl::Status&) {});
    EXPECT_THAT(loop.Run(), StatusIs(absl::StatusCode::kResourceExhausted,
                                     HasSubstr("not finite")));
  });
  EXPECT_THAT(Summary(), HasSubstr("not finite"));
  EXPECT_EQ(std::filesystem::read_symlink(folder() + "/checkpoints/best"),
            "step_000000000024");
}

}  // namespace
}  // namespace flotilla
