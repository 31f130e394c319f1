#include "learner/algo/ppo.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "learner/collective/solo_collective.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

constexpr int64_t kT = 16, kB = 8;

v1::RunConfig Config() {
  v1::RunConfig config;
  config.mutable_ppo();
  config.mutable_env()->set_num_envs(kB);
  config.mutable_rollout()->set_length(kT);
  return config;
}

std::unique_ptr<Algorithm> Make(const v1::RunConfig& config,
                                const Spaces& spaces) {
  return MakeAlgorithm(config, spaces, torch::kCPU).value();
}

torch::Tensor Weights(Algorithm* algorithm) {
  std::vector<torch::Tensor> flat;
  for (const NamedTensor& t : algorithm->Weights()) {
    flat.push_back(t.tensor.flatten());
  }
  return torch::cat(flat).clone();
}

torch::Tensor Train(const v1::RunConfig& config, const Spaces& spaces,
                    const std::vector<Rollout>& rollouts) {
  auto algorithm = Make(config, spaces);
  SoloCollective alone;
  for (size_t i = 0; i < rollouts.size(); ++i) {
    const auto updated =
        algorithm->Update(rollouts[i], {static_cast<int64_t>(i), 0, &alone});
    EXPECT_TRUE(updated.ok()) << updated.status();
  }
  return Weights(algorithm.get());
}

TEST(PpoTest, TheSameSeedTwiceGivesTheSameBits) {
  const Spaces spaces = VectorSpaces(4, 2);
  torch::manual_seed(1);
  const std::vector<Rollout> rollouts = {RandomRollout(spaces, kT, kB),
                                         RandomRollout(spaces, kT, kB)};
  const torch::Tensor a = Train(Config(), spaces, rollouts);
  const torch::Tensor b = Train(Config(), spaces, rollouts);
  EXPECT_TRUE(torch::equal(a, b));
  v1::RunConfig other = Config();
  other.set_seed(2);
  EXPECT_FALSE(torch::equal(a, Train(other, spaces, rollouts)));
}

// CleanRL's parallel equivalence: without advantage normalisation and with one
// minibatch, who holds which rows does not matter.
TEST(PpoTest, TwoRanksWithHalfTheRowsEqualOneRank) {
  for (const Spaces& spaces : {VectorSpaces(4, 2), AtariSpaces(4)}) {
    v1::RunConfig config = Config();
    config.mutable_ppo()->set_normalize_advantages(false);
    config.mutable_ppo()->set_minibatches(1);
    config.mutable_ppo()->set_epochs(HasFrames(spaces) ? 1 : 3);
    torch::manual_seed(1);
    const Rollout whole = RandomRollout(spaces, kT, kB);
    const torch::Tensor want = Train(config, spaces, {whole});

    std::vector<torch::Tensor> got(2);
    RunRanks(2, [&](const v1::Assignment& assignment,
                    FakeCoordinatorClient* coordinator) {
      const int rank = assignment.rank();
      auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                       coordinator, torch::kCPU)
                            .value();
      v1::RunConfig half = config;
      half.mutable_env()->set_num_envs(kB / 2);
      auto algorithm = Make(half, spaces);
      const auto updated =
          algorithm->Update(Columns(whole, spaces, rank * kB / 2, kB / 2),
                            {0, 0, collective.get()});
      ASSERT_TRUE(updated.ok()) << updated.status();
      got[rank] = Weights(algorithm.get());
    });
    EXPECT_TRUE(torch::equal(got[0], got[1]));
    EXPECT_LT((got[0] - want).abs().max().item<double>(), 1e-6);
  }
}

// Rows that were lost must not be learned from, and everything else must be, in
// the same number of gradient steps.
TEST(PpoTest, LostStepsChangeNothing) {
  const Spaces spaces = VectorSpaces(4, 2);
  torch::manual_seed(3);
  Rollout a = RandomRollout(spaces, kT, kB);
  a.valid[5][2] = 0;
  a.valid.narrow(0, 10, kT - 10).narrow(1, 4, 1).fill_(0);
  Rollout b = a;
  b.reward = a.reward.clone();
  b.action = a.action.Map([](const torch::Tensor& t) { return t.clone(); });
  b.reward[5][2] = 1e6;
  b.action.discrete[12][4] = 1 - a.action.discrete[12][4];
  EXPECT_TRUE(
      torch::equal(Train(Config(), spaces, {a}), Train(Config(), spaces, {b})));
}

TEST(PpoTest, ATimeLimitBootstrapsUnlessToldNotTo) {
  const Spaces spaces = VectorSpaces(4, 2);
  torch::manual_seed(3);
  Rollout a = RandomRollout(spaces, kT, kB);
  a.truncated[3][1] = 1;
  a.terminated[3][1] = 0;
  Rollout b = a;
  b.bootstrap_value = a.bootstrap_value.clone();
  b.bootstrap_value[3][1] += 10;
  v1::RunConfig config = Config();
  EXPECT_FALSE(
      torch::equal(Train(config, spaces, {a}), Train(config, spaces, {b})));
  config.mutable_ppo()->set_bootstrap_truncation(false);  // CleanRL's "done"
  EXPECT_TRUE(
      torch::equal(Train(config, spaces, {a}), Train(config, spaces, {b})));
}

TEST(PpoTest, TargetKlStopsAllRanksAtOneEpoch) {
  const Spaces spaces = VectorSpaces(4, 2);
  v1::RunConfig config = Config();
  config.mutable_env()->set_num_envs(kB / 2);
  config.mutable_ppo()->set_target_kl(1e-9);
  config.mutable_ppo()->set_epochs(50);
  torch::manual_seed(1);
  const Rollout whole = RandomRollout(spaces, kT, kB);
  std::vector<torch::Tensor> got(2);
  std::vector<int64_t> steps(2);
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const int rank = assignment.rank();
    auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                     coordinator, torch::kCPU)
                          .value();
    auto algorithm = Make(config, spaces);
    ASSERT_TRUE(algorithm
                    ->Update(Columns(whole, spaces, rank * kB / 2, kB / 2),
                             {0, 0, collective.get()})
                    .ok());
    got[rank] = Weights(algorithm.get());
    steps[rank] = algorithm->State()[2].tensor.item<int64_t>();
  });
  EXPECT_TRUE(torch::equal(got[0], got[1]));
  EXPECT_EQ(steps[0], steps[1]);
  EXPECT_LT(steps[0], 50 * config.ppo().minibatches());
}

// Two ranks, one of which sees little and so finds its policy changed little: what
// they did, and the mean KL that each would have gone by alone.
struct Straddling {
  int64_t steps[2] = {};
  double kl[2] = {};  // of this rank's samples, in the second of two epochs
};

Straddling TrainStraddling(double target_kl, int epochs) {
  const Spaces spaces = VectorSpaces(4, 2);
  v1::RunConfig config = Config();
  config.mutable_env()->set_num_envs(kB / 2);
  config.mutable_ppo()->set_target_kl(target_kl);
  config.mutable_ppo()->set_minibatches(1);
  config.mutable_ppo()->set_epochs(epochs);
  config.mutable_optimizer()->set_learning_rate(0.01);
  torch::manual_seed(1);
  const Rollout whole = RandomRollout(spaces, kT, kB);
  whole.log_prob.fill_(std::log(0.5));  // a new policy's, of two actions
  whole.observation.leaf(0).narrow(1, kB / 2, kB / 2).mul_(0.01);  // rank 1's
  Straddling result;
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const int rank = assignment.rank();
    auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                     coordinator, torch::kCPU)
                          .value();
    auto algorithm = Make(config, spaces);
    const Rollout mine = Columns(whole, spaces, rank * kB / 2, kB / 2);
    const auto metrics = algorithm->Update(mine, {0, 0, collective.get()});
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    result.steps[rank] = algorithm->State()[2].tensor.item<int64_t>();
    for (const Metric& metric : *metrics) {
      if (metric.name == "losses/approx_kl") result.kl[rank] = metric.value;
    }
  });
  return result;
}

// Ranks' own KLs lie on both sides of target_kl. A rank that went by its own
// would stop where the other goes on, and wait for it for ever.
TEST(PpoTest, RanksWhoseKlsStraddleTheTargetStopTogether) {
  // A mean over epochs 1 to n of each rank's KL: the last one's is a difference.
  const Straddling one = TrainStraddling(0, 1), two = TrainStraddling(0, 2);
  double kl[2];
  for (int rank : {0, 1}) kl[rank] = 2 * two.kl[rank] - one.kl[rank];
  const double low = std::min(kl[0], kl[1]), high = std::max(kl[0], kl[1]);
  const double mean = (kl[0] + kl[1]) / 2;
  const double first = (one.kl[0] + one.kl[1]) / 2;
  ASSERT_LT(std::max(0.0, low) + 1e-6, mean);
  ASSERT_LT(first, (low + mean) / 2);  // nobody stops before

  // Above one rank's, below the mean: both stop after the second epoch.
  const Straddling stopped = TrainStraddling((low + mean) / 2, 4);
  EXPECT_EQ(stopped.steps[0], 2);
  EXPECT_EQ(stopped.steps[1], 2);
  // Below one rank's, above the mean: both go on.
  const Straddling went_on = TrainStraddling((mean + high) / 2, 3);
  EXPECT_EQ(went_on.steps[0], 3);
  EXPECT_EQ(went_on.steps[1], 3);
}

TEST(PpoTest, ALossThatIsNotFiniteStopsAndKeepsTheWeights) {
  const Spaces spaces = VectorSpaces(4, 2);
  torch::manual_seed(1);
  Rollout rollout = RandomRollout(spaces, kT, kB);
  rollout.reward[0][0] = NAN;
  v1::RunConfig config = Config();
  config.mutable_ppo()->set_minibatches(1);  // all steps in the first
  auto algorithm = Make(config, spaces);
  const torch::Tensor before = Weights(algorithm.get());
  SoloCollective alone;
  const auto updated = algorithm->Update(rollout, {0, 0, &alone});
  EXPECT_EQ(updated.status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(torch::equal(Weights(algorithm.get()), before));
}

TEST(PpoTest, TheLearningRateFollowsGlobalSteps) {
  const Spaces spaces = VectorSpaces(4, 2);
  v1::RunConfig config = Config();
  config.set_total_env_steps(1000);
  torch::manual_seed(1);
  const Rollout rollout = RandomRollout(spaces, kT, kB);
  auto algorithm = Make(config, spaces);
  SoloCollective alone;
  const auto metrics = algorithm->Update(rollout, {3, 250, &alone}).value();
  EXPECT_EQ(metrics[0].name, "charts/learning_rate");
  EXPECT_DOUBLE_EQ(metrics[0].value, 2.5e-4 * 0.75);
}

}  // namespace
}  // namespace flotilla
