#include "learner/training/run_state.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/collective/solo_collective.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/spaces.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

v1::RunConfig Config() {
  v1::RunConfig config;
  config.mutable_ppo();
  config.mutable_env()->set_num_envs(4);
  config.mutable_rollout()->set_length(8);
  config.mutable_model()->set_normalize_observations(true);
  config.mutable_model()->set_normalize_rewards(true);
  return config;
}

// A learner that has done something: weights, moments and sums are not zero.
struct Learner {
  explicit Learner(uint64_t seed) {
    v1::RunConfig config = Config();
    config.set_seed(seed);
    algorithm = MakeAlgorithm(config, VectorSpaces(4, 2), torch::kCPU).value();
    normalizer = Normalizer(config.model(), 0.99, 4, 4);
    torch::manual_seed(seed);
    torch::Tensor seen = torch::randn({4, 4});
    normalizer.Observe(seen.data_ptr<float>(), 4, seen.size(1));
    normalizer.Add(normalizer.Take());
    Step();
  }
  void Step() {
    SoloCollective alone;
    torch::manual_seed(99);
    ASSERT_TRUE(algorithm
                    ->Update(RandomRollout(VectorSpaces(4, 2), 8, 4),
                             {progress.update++, 0, &alone})
                    .ok());
  }
  LiveState live() {
    return LiveState(algorithm.get(), &normalizer, &episodes);
  }

  std::unique_ptr<Algorithm> algorithm;
  Normalizer normalizer;
  EpisodeWindow episodes{5, 0};
  Progress progress;
};

void ExpectSameBits(Learner* a, Learner* b) {
  for (bool weights : {true, false}) {
    const auto x = weights ? a->live().Weights() : a->live().State();
    const auto y = weights ? b->live().Weights() : b->live().State();
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(x[i].name, y[i].name);
      EXPECT_TRUE(torch::equal(x[i].tensor, y[i].tensor)) << x[i].name;
    }
  }
}

TEST(RunStateTest, ACheckpointRestoresEveryBitAndTrainingGoesOnAlike) {
  TempDir folder;
  Learner saved(1), resumed(2);
  saved.progress.global_step = 12345;
  saved.progress.wall_seconds = 0.1 + 0.2;
  Snapshot snapshot;
  TakeSnapshot(saved.live(), saved.progress, &snapshot);
  CheckpointStore store(folder.path(), 3);
  ASSERT_TRUE(store.Save(ToCheckpoint(snapshot, Config())).ok());
  const auto data = LoadCheckpoint(folder.path() + "/latest").value();
  ASSERT_TRUE(FromCheckpoint(data, resumed.live(), &resumed.progress).ok());
  ExpectSameBits(&saved, &resumed);
  EXPECT_EQ(resumed.progress.global_step, 12345);
  EXPECT_EQ(resumed.progress.wall_seconds, 0.1 + 0.2);
}

TEST(RunStateTest, ASnapshotUndoesAnUpdate) {
  Learner learner(1), twin(1);
  Snapshot snapshot;
  TakeSnapshot(learner.live(), learner.progress, &snapshot);
  learner.Step();
  RestoreSnapshot(snapshot, learner.live(), &learner.progress);
  ExpectSameBits(&learner, &twin);
  EXPECT_EQ(learner.progress.update, twin.progress.update);
}

TEST(RunStateTest, EveryoneTakesTheSourcesState) {
  Learner want(2);
  want.progress.update = 7;
  std::vector<std::unique_ptr<Learner>> learners;
  for (uint64_t seed : {1, 2, 3}) {
    learners.push_back(std::make_unique<Learner>(seed));
  }
  learners[1]->progress.update = 7;
  for (const int update : {5, 9}) {
    v1::Change* change = learners[1]->progress.changes.add_change();
    change->set_update(update);
    change->add_override("ppo.epochs=2");
  }
  learners[2]->progress.changes.add_change();  // of a future that was lost
  RunRanks(3, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    Learner* mine = learners[assignment.rank()].get();
    auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                     coordinator, torch::kCPU)
                          .value();
    EXPECT_TRUE(ShareState(collective.get(), /*source=*/1, mine->live(),
                           &mine->progress)
                    .ok());
  });
  for (const auto& learner : learners) {
    ExpectSameBits(learner.get(), &want);
    EXPECT_EQ(learner->progress.update, 7);
    ASSERT_EQ(learner->progress.changes.change_size(), 2);
    EXPECT_EQ(learner->progress.changes.change(1).update(), 9);
  }
}

TEST(RunStateTest, ALayoutIsOfShapesAndNotOfNumbers) {
  Learner one(1), other(2);
  EXPECT_EQ(LayoutOf(one.live()), LayoutOf(other.live()));
  other.episodes = EpisodeWindow(5, 1);
  EXPECT_NE(LayoutOf(one.live()), LayoutOf(other.live()));
}

TEST(RunStateTest, ACheckpointOfAnotherNetworkIsRefusedByTensor) {
  Learner saved(1);
  Snapshot snapshot;
  TakeSnapshot(saved.live(), saved.progress, &snapshot);
  CheckpointData data = ToCheckpoint(snapshot, Config());
  data.weights["actor.2.weight"] = torch::zeros({3, 3});
  Learner other(2);
  const absl::Status status =
      FromCheckpoint(data, other.live(), &other.progress);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("actor.2.weight"),
                             testing::HasSubstr("[64, 64]"),
                             testing::HasSubstr("[3, 3]")));
}

TEST(RunStateTest, APolicyNeedsNothingThatTrainingAloneGoesOnFrom) {
  Learner saved(1), player(2);
  saved.progress.global_step = 12345;
  Snapshot snapshot;
  TakeSnapshot(saved.live(), saved.progress, &snapshot);
  CheckpointData data = ToCheckpoint(snapshot, Config());
  data.state = {{kObservationSums, data.state.at(kObservationSums)}};
  EXPECT_THAT(FromCheckpoint(data, player.live(), &player.progress),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       testing::HasSubstr("adam.exp_avg")));
  ASSERT_OK(PolicyFromCheckpoint(data, player.live(), &player.progress));
  EXPECT_EQ(WeightsDigest(player.live()), WeightsDigest(saved.live()));
  EXPECT_TRUE(torch::equal(player.normalizer.observation_sums(),
                           saved.normalizer.observation_sums()));
  EXPECT_EQ(player.progress.global_step, 12345);
  // By what observations are scaled is needed.
  data.state.clear();
  EXPECT_THAT(PolicyFromCheckpoint(data, player.live(), &player.progress),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       testing::HasSubstr(kObservationSums)));
}

TEST(RunStateTest, EarlierSelvesThatAreMissingAreCalledThat) {
  Learner saved(1);
  v1::SelfPlayConfig config;
  config.set_pool_size(2);
  SelfPlay pool(config, saved.algorithm.get());
  pool.Committed(0);
  const LiveState live(saved.algorithm.get(), &saved.normalizer, nullptr,
                       &pool);
  Snapshot snapshot;
  TakeSnapshot(live, saved.progress, &snapshot);
  CheckpointData data = ToCheckpoint(snapshot, Config());
  EXPECT_OK(PolicyFromCheckpoint(data, live, &saved.progress));
  data.state = {{kObservationSums, data.state.at(kObservationSums)}};
  EXPECT_THAT(PolicyFromCheckpoint(data, live, &saved.progress),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       testing::AllOf(testing::HasSubstr("earlier selves"),
                                      testing::HasSubstr("flotilla push"))));
}

TEST(RunStateTest, ProgressWithoutANumberIsDataLoss) {
  auto text = ToText(Progress());
  text.erase("global_step");
  EXPECT_EQ(ProgressFromText(text).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(RunStateTest, ProgressOfBeforeSomeThingsWereCountedStillLoads) {
  for (const char* name :
       {"failed_rows", "learner_restarts", "assigned_restarts"}) {
    Progress before;
    before.update = 7;
    auto text = ToText(before);
    ASSERT_EQ(text.erase(name), 1) << name;
    const auto progress = ProgressFromText(text);
    ASSERT_THAT(progress.status(), IsOk());
    EXPECT_EQ(progress->update, 7);
    EXPECT_EQ(ToText(*progress), ToText(before));
  }
}

}  // namespace
}  // namespace flotilla
