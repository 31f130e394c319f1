#include "learner/training/training_loop.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/learner/collective/ranks.h"
#include "tests/learner/training/fakes.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

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
      TrainingLoop loop(learner.parts, {.run_folder = folder_.path()},
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

  std::string Summary() { return ReadAll(folder_.path() + "/summary.json"); }

  std::vector<int> RecordedUpdates() {
    std::vector<int> updates;
    std::ifstream lines(folder_.path() + "/metrics.jsonl");
    for (std::string line; std::getline(lines, line);) {
      const std::string key = "\"update\":";
      updates.push_back(std::stoi(line.substr(line.find(key) + key.size())));
    }
    return updates;
  }

  TempDir folder_;
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
  EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/checkpoints/latest"));
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
        loop->ResumeAt(progress);
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
             TrainingLoop loop(learner.parts, {.run_folder = folder_.path()},
                               [](const absl::Status&) {});
             Progress progress;
             progress.update = 3;
             loop.ResumeAt(progress);
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
    TrainingLoop loop(learner.parts, {.run_folder = folder_.path()},
                      [](const absl::Status&) {});
    const auto outcome = loop.Run();
    ASSERT_THAT(outcome.status(), IsOk());
    EXPECT_EQ(*outcome, RunOutcome::kInterrupted);
  });
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/summary.json"));
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
                HasSubstr("update 1, rank"));
  }
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
             TrainingLoop loop(learner.parts, {.run_folder = folder_.path()},
                               [](const absl::Status&) {});
             ASSERT_THAT(loop.Run().status(), IsOk());
             EXPECT_EQ(learner.algorithm.weight(), kUpdates * kFakeSteps);
           });
  EXPECT_THAT(RecordedUpdates(), ElementsAre(1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace flotilla
