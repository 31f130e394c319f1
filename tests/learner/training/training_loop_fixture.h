#ifndef FLOTILLA_TESTS_LEARNER_TRAINING_TRAINING_LOOP_FIXTURE_H_
#define FLOTILLA_TESTS_LEARNER_TRAINING_TRAINING_LOOP_FIXTURE_H_

#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "learner/training/training_loop.h"
#include "tests/learner/collective/ranks.h"
#include "tests/learner/training/fakes.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {

inline constexpr int kWorld = 3;
inline constexpr int kUpdates = 5;
// What an update adds to the fake weight: rewards of 1, 2 and 3.
inline constexpr float kUpdate = kFakeSteps * (1 + 2 + 3);

inline v1::RunConfig Config(int updates = kUpdates) {
  v1::RunConfig config = FakeConfig();
  config.set_total_env_steps(updates * kWorld * kFakeSteps);
  return config;
}

inline std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Has a rank die of its update `update`.
inline void DieAt(int64_t update, FakeLearner* learner) {
  learner->rollouts.on_next = [update, learner](int64_t now) {
    if (now < update) return;
    learner->algorithm.failure = absl::InternalError("dies");
    learner->algorithm.fails_at = now;
  };
}

// Has generation 1 be lost, once, while the others are in the first collective of
// update `update`; then it `was_lost`.
inline void LoseGenerationAt(int64_t update, FakeLearner* learner,
                             FakeCoordinatorClient* coordinator,
                             bool* was_lost) {
  learner->rollouts.on_next = [=](int64_t now) {
    if (now != update || std::exchange(*was_lost, true)) return;
    coordinator->ReportFailure(1, "injected").IgnoreError();
    learner->algorithm.fails_at = -1;
  };
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
      next.set_learner_restarts(restarts_);
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

  // As Train, but the first rank 0 ends with an error, after which `died` is
  // called, and another takes its place in generation 2, with what rank 1 knows.
  // `prepare` is called for all of these learners; `dies`: for the first rank 0.
  std::vector<End> TrainThroughTheLossOfRank0(
      const v1::RunConfig& config,
      const std::function<void(bool dies, FakeLearner*)>& prepare,
      const std::function<void()>& died = {}) {
    std::vector<End> ends(kWorld);
    RunRanks(kWorld, [&](const v1::Assignment& assignment,
                         FakeCoordinatorClient* coordinator) {
      v1::Assignment next = assignment;
      next.set_generation(2);
      next.set_source_rank(1);
      coordinator->SetAssignments({assignment, next});
      const auto run = [&](bool dies) {
        FakeLearner learner(config);
        learner.parts.coordinator = coordinator;
        prepare(dies, &learner);
        TrainingLoop loop(learner.parts, learner.LeaderIn(folder()),
                          [](const absl::Status&) {});
        End end;
        end.outcome = loop.Run();
        end.progress = loop.progress();
        end.weight = learner.algorithm.weight();
        return end;
      };
      if (assignment.rank() == 0) {
        EXPECT_FALSE(run(/*dies=*/true).outcome.ok());
        if (died) died();
        coordinator->ReportFailure(1, "rank 0 died").IgnoreError();
      }
      ends[assignment.rank()] = run(/*dies=*/false);
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
  // Of generation 2.
  int source_ = 0;
  int restarts_ = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_TRAINING_TRAINING_LOOP_FIXTURE_H_
