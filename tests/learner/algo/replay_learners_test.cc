// What holds of every algorithm that learns from a replay.

#include <cmath>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "learner/collective/solo_collective.h"
#include "learner/nn/convolution.h"
#include "learner/replay/replay_buffer.h"
#include "tests/learner/algo/replay_learner.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/bounded_spaces.h"

namespace flotilla {
namespace {

struct Case {
  std::string name;
  std::string config;  // 4 gradient steps an update, from the first on
  // Options each of which leads to other weights.
  std::string options_before;
  std::vector<std::string> options;
  Spaces spaces;
  std::string loss;   // the metric that is never 0
  std::string steps;  // where the state says how many there were
  // Metrics that are means over samples, of which each rank reports a part.
  std::vector<std::string> means;
  bool factored = false;  // a gradient that is not sent whole
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

void Merge(const std::string& text, v1::RunConfig* config) {
  v1::RunConfig other;
  CHECK(google::protobuf::TextFormat::ParseFromString(text, &other)) << text;
  config->MergeFrom(other);
}

class ReplayLearnersTest : public testing::TestWithParam<Case> {
 protected:
  static v1::RunConfig Config() {
    v1::RunConfig config = ReplayLearnerConfig();
    Merge(GetParam().config, &config);
    return config;
  }
  static std::unique_ptr<Algorithm> Make(const v1::RunConfig& config) {
    return MakeAlgorithm(config, GetParam().spaces, torch::kCPU).value();
  }
  static std::vector<Rollout> SomeRollouts(int n) {
    return Rollouts(GetParam().spaces, n);
  }

  // What has learned from all of these, alone.
  static std::unique_ptr<Algorithm> Learned(
      const v1::RunConfig& config, const std::vector<Rollout>& rollouts) {
    auto algorithm = Make(config);
    SoloCollective alone;
    for (size_t i = 0; i < rollouts.size(); ++i) {
      const auto update = static_cast<int64_t>(i);
      Update(algorithm.get(), rollouts[i], {update, update * kT * kB, &alone});
    }
    return algorithm;
  }
  static torch::Tensor WeightsLearned(const v1::RunConfig& config) {
    return Flat(Learned(config, SomeRollouts(5))->Weights());
  }
  static torch::Tensor EverythingLearned(const v1::RunConfig& config,
                                         const std::vector<Rollout>& rollouts) {
    return Everything(Learned(config, rollouts).get());
  }
};

TEST_P(ReplayLearnersTest, TheSameSeedTwiceGivesTheSameBits) {
  v1::RunConfig config = Config();
  const torch::Tensor a = EverythingLearned(config, SomeRollouts(5));
  EXPECT_TRUE(torch::equal(a, EverythingLearned(config, SomeRollouts(5))));
  config.set_seed(2);
  EXPECT_FALSE(torch::equal(a, EverythingLearned(config, SomeRollouts(5))));
}

TEST_P(ReplayLearnersTest, EveryOptionMatters) {
  v1::RunConfig base = Config();
  Merge(GetParam().options_before, &base);
  const torch::Tensor plain = WeightsLearned(base);
  for (const std::string& option : GetParam().options) {
    v1::RunConfig config = base;
    Merge(absl::StrCat(GetParam().name, " { ", option, " }"), &config);
    EXPECT_FALSE(torch::equal(plain, WeightsLearned(config))) << option;
  }
}

TEST_P(ReplayLearnersTest, LostStepsAreNotLearnedFrom) {
  auto a = SomeRollouts(3), b = SomeRollouts(3);
  for (auto* rollouts : {&a, &b}) {
    for (Rollout& r : *rollouts) r.valid.narrow(1, 2, 1).fill_(0);
  }
  for (Rollout& r : b) {
    r.reward.narrow(1, 2, 1).fill_(1e6);
    if (r.action.discrete.defined()) {
      r.action.discrete.narrow(1, 2, 1).bitwise_xor_(1);
    } else {
      r.action.continuous.narrow(1, 2, 1).fill_(0.5);
    }
  }
  EXPECT_TRUE(torch::equal(EverythingLearned(Config(), a),
                           EverythingLearned(Config(), b)));
}

// One rank has lost everything it saw: both still take the same steps, and
// neither the other's gradient nor what it reports is halved.
TEST_P(ReplayLearnersTest, RanksTakeTheSameStepsWhateverTheirReplayHolds) {
  const auto rollouts = SomeRollouts(3);
  std::vector<torch::Tensor> everything(2);
  std::vector<std::map<std::string, double>> reported(2);
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const int rank = assignment.rank();
    const auto collective = Connect(assignment, coordinator);
    const auto algorithm = Make(Config());
    for (int i = 0; i < 3; ++i) {
      Rollout r = rollouts[i];
      if (rank == 1) r.valid = torch::zeros_like(r.valid);
      const auto metrics =
          Update(algorithm.get(), r, {i, kT * kB * i, collective.get()});
      EXPECT_GT(metrics.at(GetParam().loss), 0);
      reported[rank] = metrics;
    }
    everything[rank] = Everything(algorithm.get());
    EXPECT_EQ(Part(algorithm.get(), GetParam().steps).item<double>(), 12);
    const double whole = 4 * sizeof(float) * Flat(algorithm->Weights()).numel();
    EXPECT_EQ(reported[rank].at("sync/bytes") < whole, GetParam().factored);
  });
  EXPECT_TRUE(torch::equal(everything[0], everything[1]));
  // Rank 0 draws the same alone: its seed is the same.
  const auto alone = Make(Config());
  SoloCollective solo;
  std::map<std::string, double> metrics;
  for (int i = 0; i < 3; ++i) {
    metrics = Update(alone.get(), rollouts[i], {i, kT * kB * i, &solo});
  }
  EXPECT_LT(
      (Everything(alone.get()) - everything[0]).abs().max().item<double>(),
      1e-5);
  for (const std::string& mean : GetParam().means) {
    EXPECT_NE(metrics.at(mean), 0) << mean;
    EXPECT_NEAR((reported[0].at(mean) + reported[1].at(mean)) / 2,
                metrics.at(mean), 1e-3 * std::abs(metrics.at(mean)))
        << mean;
  }
}

// Weights, State and the replay are all there is: another one that has them goes
// on with the same bits.
TEST_P(ReplayLearnersTest, WeightsStateAndReplayRestoreExactly) {
  const auto rollouts = SomeRollouts(8);
  const auto first = Make(Config());
  const auto second = Make(Config());
  SoloCollective alone;
  for (int i = 0; i < 4; ++i) {
    Update(first.get(), rollouts[i], {i, 2000, &alone});
  }
  const absl::Status restored =
      second->replay()->Restore(first->replay()->Copy());
  ASSERT_TRUE(restored.ok()) << restored;
  const auto copy = [](const std::vector<NamedTensor>& from,
                       const std::vector<NamedTensor>& to) {
    torch::NoGradGuard no_grad;
    ASSERT_EQ(from.size(), to.size());
    for (size_t i = 0; i < from.size(); ++i) {
      ASSERT_EQ(from[i].name, to[i].name);
      to[i].tensor.copy_(from[i].tensor);
    }
  };
  EXPECT_FALSE(torch::equal(Everything(first.get()), Everything(second.get())));
  copy(first->Weights(), second->Weights());
  copy(first->State(), second->State());
  second->StateWasReplaced();
  for (int i = 4; i < 8; ++i) {
    Update(first.get(), rollouts[i], {i, 2000, &alone});
    Update(second.get(), rollouts[i], {i, 2000, &alone});
    EXPECT_TRUE(torch::equal(Everything(first.get()), Everything(second.get())))
        << i;
  }
}

TEST_P(ReplayLearnersTest, ALossThatIsNotFiniteStopsAndKeepsTheWeights) {
  const auto algorithm = Make(Config());
  auto rollouts = SomeRollouts(1);
  rollouts[0].reward.fill_(NAN);
  const torch::Tensor before = Everything(algorithm.get());
  SoloCollective alone;
  const auto updated = algorithm->Update(rollouts[0], {0, 0, &alone});
  EXPECT_EQ(updated.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(updated.status().message().find(GetParam().loss + " is nan"),
            std::string::npos)
      << updated.status();
  EXPECT_TRUE(torch::equal(Everything(algorithm.get()), before));
}

Case Dqn(const std::string& more) {
  return {
      .name = "dqn",
      .config = absl::StrCat("dqn { batch_size: 16 updates_per_rollout: 4 "
                             "target_update_every: 6 learning_starts: 0 ",
                             more, "}"),
      // So that the network and its target come to prefer different actions.
      .options_before =
          "optimizer { learning_rate: 3e-2 } dqn { target_update_every: 1000 }",
      .options = {"discount: 0.5", "n_step: 1", "double_q: false",
                  "batch_size: 8", "updates_per_rollout: 3",
                  "target_update_every: 2", "learning_starts: 64",
                  "huber: true", "replay_capacity: 32"},
      .spaces = VectorSpaces(4, 2),
      .loss = "losses/td_loss",
      .steps = "adam.step",
      .means = {"losses/q_values"}};
}

Case UniformDqn() {
  Case c = Dqn("");
  c.options.push_back("priority_alpha: 0.6");
  return c;
}

// On a CPU kernels learn those with ReLU.
Case ReluDqn() {
  Case c = UniformDqn();
  c.config += " model { activation: RELU }";
  c.options_before =
      "optimizer { learning_rate: 1e-1 } dqn { target_update_every: 1000 }";
  return c;
}

// Of a weight that is large enough its gradient is left as what it is a product of
// (gradient_factors.h).
Case FramesDqn(const std::string& precision) {
  Case c = UniformDqn();
  absl::StrAppend(&c.config, " runtime { precision: ", precision,
                  " } model { encoder: NATURE_CNN activation: RELU "
                  "conv_channels: [16, 16, 32] hidden: 176 }");
  c.options = {"batch_size: 8", "huber: true", "double_q: false"};
  c.spaces = AtariSpaces(3);
  c.factored = precision != "BF16" || KernelsMultiplyBfloat16();
  return c;
}

Case PrioritisedDqn() {
  Case c = Dqn("priority_alpha: 0.6 ");
  c.options.push_back("priority_beta: 1");
  return c;
}

Case Sac() {
  return {
      .name = "sac",
      .config =
          "model { activation: RELU } "
          "sac { batch_size: 16 updates_per_rollout: 4 "
          "replay_capacity: 1000 learning_starts: 0 }",
      .options_before = "",
      .options = {"discount: 0.5", "batch_size: 8", "updates_per_rollout: 3",
                  "updates_per_rollout: 0", "learning_starts: 64", "tau: 0.1",
                  "initial_temperature: 0.5", "learn_temperature: false",
                  "target_entropy: 1", "critic_learning_rate: 1e-3",
                  "replay_capacity: 32"},
      .spaces = BoundedSpaces(4, {-2, 0}, {2, 1}),
      .loss = "losses/critic_loss",
      .steps = "critics.adam.step",
      .means = {"losses/q_values", "losses/entropy"}};
}

// Torch's operations learn it on a CPU, where kernels learn the other.
Case StackedSac() {
  Case c = Sac();
  c.spaces = BoundedSpaces(4, {-2, 0}, {2, 1}, /*stack=*/2);
  return c;
}

INSTANTIATE_TEST_SUITE_P(Uniform, ReplayLearnersTest,
                         testing::Values(UniformDqn(), Sac()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(ByKernels, ReplayLearnersTest,
                         testing::Values(ReluDqn()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Frames, ReplayLearnersTest,
                         testing::Values(FramesDqn("FP32")),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(FramesByBfloat16, ReplayLearnersTest,
                         testing::Values(FramesDqn("BF16")),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Stacked, ReplayLearnersTest,
                         testing::Values(StackedSac()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Prioritised, ReplayLearnersTest,
                         testing::Values(PrioritisedDqn()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace flotilla
