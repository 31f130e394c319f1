#include "learner/training/training_loop.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/checkpoint/checkpoint.h"
#include "learner/training/game_keeper.h"
#include "tests/learner/collective/ranks.h"
#include "tests/learner/training/fakes.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kWorld = 3;
constexpr int kUpdates = 5;
// What an update adds to the fake weight: rewards of 1, 2 and 3.
constexpr float kUpdate = kFakeSteps * (1 + 2 + 3);

v1::RunConfig Config(int updates = kUpdates) {
  v1::RunConfig config = FakeConfig();
  config.set_total_env_steps(updates * kWorld * kFakeSteps);
  return config;
}

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// How a rank's loop ended.
struct End {
  absl::StatusOr<RunOutcome> outcome = absl::UnknownError("never ran");
  Progress progress;
  float weight = 0;
};

// Ranks that train with fakes, each on a thread, in generations 1 and, once
// that is fenced, 2.
class TrainingLoopTest : public testing::Test {
 protected:
  using Prepare = std::function<void(int rank, FakeLearner*,
                                     FakeCoordinatorClient*, TrainingLoop*)>;

  std::vector<End> Train(const v1::RunConfig& config,
                         const Prepare& prepare = {}) {
    std::vector<End> ends(kWorld);
    RunRanks(kWorld, [&](const v1::Assignment& assignment,
                         FakeCoordinatorClient* coordinator) {
      v1::Assignment next = assignment;
      next.set_generation(2);
      next.set_source_rank(source_);
      coordinator->SetAssignments({assignment, next});
      FakeLearner learner(config);
      learner.parts.coordinator = coordinator;
      learner.parts.member_id = assignment.learner(assignment.rank()).id();
      TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                        [](const absl::Status&) {});
      End& end = ends[assignment.rank()];
      if (prepare) {
        prepare(assignment.rank(), &learner, coordinator, &loop);
      }
      end.outcome = loop.Run();
      end.progress = loop.progress();
      end.weight = learner.algorithm.weight();
    });
    return ends;
  }

  std::string folder() const { return folder_->path(); }

  std::string Summary() { return ReadAll(folder() + "/summary.json"); }

  std::vector<int> RecordedUpdates() {
    std::vector<int> updates;
    std::ifstream lines(folder() + "/metrics.jsonl");
    for (std::string line; std::getline(lines, line);) {
      const std::string key = "\"update\":";
      updates.push_back(std::stoi(line.substr(line.find(key) + key.size())));
    }
    return updates;
  }

  // For another run.
  void NewFolder() { folder_ = std::make_unique<TempDir>(); }

  std::unique_ptr<TempDir> folder_ = std::make_unique<TempDir>();
  int source_ = 0;  // of generation 2
};

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
        if (rank != 1) return;
        // Once, while the others are in the update's first collective.
        learner->rollouts.on_next = [&, learner, coordinator](int64_t update) {
          if (update == 2 && !std::exchange(lost, true)) {
            coordinator->ReportFailure(1, "injected").IgnoreError();
            learner->algorithm.fails_at = -1;
          }
        };
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

TEST_F(TrainingLoopTest, ARunThatIsToldToStopSavesWhereItIs) {
  const auto ends = Train(
      Config(1000), [&](int rank, FakeLearner* learner,
                        FakeCoordinatorClient* coordinator, TrainingLoop*) {
        if (rank != 2) return;
        learner->rollouts.on_next = [coordinator](int64_t update) {
          if (update == 3) coordinator->StopRun("enough").IgnoreError();
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

TEST_F(TrainingLoopTest, AGenerationThatFormsToStopMakesNoUpdate) {
  RunRanks(1,
           [&](v1::Assignment assignment, FakeCoordinatorClient* coordinator) {
             assignment.set_stopping(true);
             coordinator->SetAssignment(assignment);
             FakeLearner learner(Config());
             learner.parts.coordinator = coordinator;
             TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                               [](const absl::Status&) {});
             Progress progress;
             progress.update = 3;
             loop.BeginAt(progress, /*has_state=*/true);
             const auto outcome = loop.Run();
             ASSERT_THAT(outcome.status(), IsOk());
             EXPECT_EQ(*outcome, RunOutcome::kStopped);
             EXPECT_EQ(loop.progress().update, 3);
           });
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

TEST_F(TrainingLoopTest, CollectingIsSteppingOrInferenceByTurns) {
  v1::RunConfig config = Config();
  config.mutable_distributed()->set_heartbeat_seconds(0.002);
  std::atomic<int> seen = 0;
  Train(config, [&](int rank, FakeLearner* learner,
                    FakeCoordinatorClient* coordinator, TrainingLoop*) {
    if (rank != 1) return;
    learner->rollouts.on_next = [&seen, learner, coordinator](int64_t) {
      const auto await = [&](v1::Phase phase, const std::string& waits_for) {
        const absl::Time deadline = absl::Now() + absl::Seconds(20);
        while (absl::Now() < deadline) {
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
      if (seen || update > 200000) coordinator->StopRun("seen").IgnoreError();
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
  RunRanks(kWorld, [&](const v1::Assignment& assignment,
                       FakeCoordinatorClient* coordinator) {
    v1::Assignment next = assignment;
    next.set_generation(2);
    next.set_source_rank(1);
    coordinator->SetAssignments({assignment, next});
    const bool dies = assignment.rank() == 0;
    for (int incarnation = 0; incarnation < (dies ? 2 : 1); ++incarnation) {
      FakeLearner learner(Config());
      learner.parts.coordinator = coordinator;
      if (dies && incarnation == 0) {
        learner.rollouts.on_next = [&](int64_t update) {
          if (update < 3) return;
          learner.algorithm.failure = absl::InternalError("dies");
          learner.algorithm.fails_at = update;
        };
      }
      TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                        [](const absl::Status&) {});
      const auto outcome = loop.Run();
      if (dies && incarnation == 0) {
        EXPECT_FALSE(outcome.ok());
        LoseLastLine(folder() + "/metrics.jsonl");
        coordinator->ReportFailure(1, "rank 0 died").IgnoreError();
        continue;
      }
      ASSERT_OK(outcome);
      EXPECT_EQ(loop.progress().update, kUpdates);
    }
  });
  EXPECT_THAT(RecordedUpdates(), ElementsAre(1, 2, 3, 4, 5));
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
      const absl::Time deadline = absl::Now() + absl::Seconds(20);
      while (coordinator->last_report().phase() != v1::EVALUATING &&
             absl::Now() < deadline) {
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

// Runs that an evaluation ends: of a policy whose weight is `bar`, reached at
// update `good`.
class VerdictsTest : public TrainingLoopTest {
 protected:
  static constexpr int kGood = 4, kDelay = 3;

  static v1::RunConfig StopConfig(bool at_once = false) {
    v1::RunConfig config = Config(1000);
    config.mutable_distributed()->set_timeout_seconds(2);
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
  // Longer than a collective may take; and no time at all.
  for (const absl::Duration takes : {absl::Seconds(3), absl::ZeroDuration()}) {
    rounds_.clear();
    const auto ends =
        Train(StopConfig(),
              [&](int, FakeLearner* learner, FakeCoordinatorClient*,
                  TrainingLoop*) { learner->evaluate = Recording(takes); });
    ExpectSolvedAt(ends, kGood + kDelay);
    // On their cadence, each of them, and none after the one that ends it.
    EXPECT_THAT(rounds_, ElementsAre(1, 2));
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
      const absl::Time deadline = absl::Now() + absl::Seconds(20);
      while (!play && absl::Now() < deadline) {
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
      if (++calls % 2 == 1) return absl::UnavailableError("injected");
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

TEST_F(VerdictsTest, WhatRank0WasEvaluatingWhenItDiedIsEvaluatedAgain) {
  RunRanks(kWorld, [&](const v1::Assignment& assignment,
                       FakeCoordinatorClient* coordinator) {
    v1::Assignment next = assignment;
    next.set_generation(2);
    next.set_source_rank(1);
    coordinator->SetAssignments({assignment, next});
    const bool dies = assignment.rank() == 0;
    for (int incarnation = 0; incarnation < (dies ? 2 : 1); ++incarnation) {
      FakeLearner learner(StopConfig());
      learner.parts.coordinator = coordinator;
      if (dies && incarnation == 0) {
        // The first evaluation never ends; everybody waits for it at update 5.
        learner.evaluate = [&](float, uint64_t, std::stop_token stop)
            -> absl::StatusOr<std::vector<EvaluatedEpisode>> {
          while (!stop.stop_requested()) absl::SleepFor(absl::Milliseconds(1));
          return absl::CancelledError("dies");
        };
        learner.rollouts.on_next = [&](int64_t update) {
          if (update < 4) return;
          learner.algorithm.failure = absl::InternalError("dies");
          learner.algorithm.fails_at = update;
        };
      } else {
        learner.evaluate = Recording(absl::ZeroDuration());
      }
      TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                        [](const absl::Status&) {});
      const auto outcome = loop.Run();
      if (dies && incarnation == 0) {
        EXPECT_FALSE(outcome.ok());
        coordinator->ReportFailure(1, "rank 0 died").IgnoreError();
        continue;
      }
      ASSERT_OK(outcome);
      EXPECT_EQ(*outcome, RunOutcome::kSolved);
      EXPECT_EQ(loop.progress().update, kGood + kDelay);
      EXPECT_EQ(learner.algorithm.weight(), (kGood + kDelay) * kUpdate);
    }
  });
  EXPECT_THAT(rounds_, ElementsAre(1, 2));
}

// Rank 0 cannot write what the run came to, and dies of it.
TEST_F(VerdictsTest, ASolvedRunStaysSolvedForWhoTakesThePlaceOfRank0) {
  RunRanks(kWorld, [&](const v1::Assignment& assignment,
                       FakeCoordinatorClient* coordinator) {
    v1::Assignment next = assignment;
    next.set_generation(2);
    next.set_source_rank(1);
    coordinator->SetAssignments({assignment, next});
    const bool dies = assignment.rank() == 0;
    const std::string summary = folder() + "/summary.json";
    for (int incarnation = 0; incarnation < (dies ? 2 : 1); ++incarnation) {
      FakeLearner learner(StopConfig());
      learner.parts.coordinator = coordinator;
      learner.evaluate = Recording(absl::ZeroDuration());
      if (dies) std::filesystem::remove_all(summary);
      if (dies && incarnation == 0) {
        std::filesystem::create_directory(summary);
      }
      TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                        [](const absl::Status&) {});
      const auto outcome = loop.Run();
      if (dies && incarnation == 0) {
        EXPECT_FALSE(outcome.ok());
        coordinator->ReportFailure(1, "rank 0 died").IgnoreError();
        continue;
      }
      ASSERT_OK(outcome);
      EXPECT_EQ(*outcome, RunOutcome::kSolved);
      EXPECT_EQ(loop.progress().update, kGood + kDelay);
      EXPECT_EQ(learner.algorithm.weight(), (kGood + kDelay) * kUpdate);
    }
  });
  EXPECT_THAT(rounds_, ElementsAre(1, 2));
  EXPECT_THAT(Summary(), AllOf(HasSubstr("\"status\": \"solved\""),
                               HasSubstr("\"eval_update\": 4")));
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
      const absl::Time deadline = absl::Now() + absl::Seconds(20);
      while (times < 2 && absl::Now() < deadline) {
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
          while (!stop.stop_requested()) absl::SleepFor(absl::Milliseconds(1));
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
          while (!free) absl::SleepFor(absl::Milliseconds(1));
          return std::vector<EvaluatedEpisode>{
              {.raw_return = weight, .length = 1}};
        };
        if (rank != 0) return;
        learner->rollouts.on_next = [&](int64_t update) {
          if (update == 20) free = true;
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
