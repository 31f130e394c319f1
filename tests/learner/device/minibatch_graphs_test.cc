// Updates whose gradient steps are graphs end with the weights of those whose steps
// are asked for one by one, whatever happens in between.

#include "learner/algo/minibatch_graphs.h"

#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "learner/algo/algorithm.h"
#include "learner/collective/solo_collective.h"
#include "learner/device/transfer.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/learner/collective/group_of_one.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/graph.h"
#include "tests/rehearsal/strict.h"
#include "tests/testing/bounded_spaces.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

using rehearsal::Device;
using testing::HasSubstr;

constexpr int64_t kT = 8, kB = 4;

struct Case {
  std::string name;
  std::string config;
  Spaces spaces;
  // Of an update's gradient steps, those that are replayed once all are recorded;
  // and what each launches beside its graph: its indices, and Adam's rate where it
  // changes.
  int64_t replayed = 4;
  bool group = false;
  bool draws = false;  // from a replay
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

v1::RunConfig ConfigOf(const Case& c) {
  v1::RunConfig config;
  CHECK(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("total_updates: 20 env { num_envs: ", kB,
                   " } rollout { length: ", kT, " } ", c.config),
      &config));
  return config;
}

class Learner {
 public:
  Learner(const Case& c, bool graphs) : config_(ConfigOf(c)) {
    const std::optional<rehearsal::NoGraphs> none =
        graphs ? std::nullopt : std::make_optional<rehearsal::NoGraphs>();
    algorithm_ = MakeAlgorithm(config_, c.spaces, Device()).value();
    SetGroup(c.group);
  }

  // As of the next generation.
  void SetGroup(bool group) {
    if (group) {
      collective_ = std::make_unique<GroupOfOne>();
    } else {
      collective_ = std::make_unique<SoloCollective>();
    }
  }

  void Update(Rollout rollout) {
    const int64_t S = algorithm_->live_policy()->state_size();
    if (S > 0) rollout.initial_state = torch::full({kB, S}, 0.1);
    rehearsal::ResetCounts();
    const auto metrics =
        algorithm_->Update(rollout, {update_++, 0, collective_.get()});
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    metrics_.clear();
    for (const Metric& metric : *metrics) {
      if (metric.name != "sync/all_reduce_ms")
        metrics_[std::string(metric.name)] = metric.value;
    }
  }
  void Reconfigure() {
    config_.mutable_ppo()->set_entropy_cost(0.3);
    config_.mutable_impala()->set_entropy_cost(0.3);
    config_.mutable_optimizer()->set_max_grad_norm(0.1);
    ASSERT_TRUE(algorithm_->Reconfigure(config_).ok());
  }
  // And moments, targets and the rest of the state.
  std::map<std::string, torch::Tensor> Weights() {
    std::map<std::string, torch::Tensor> all;
    for (const auto& tensors : {algorithm_->Weights(), algorithm_->State()}) {
      for (const NamedTensor& t : tensors)
        all[t.name] = ToHost(t.tensor).clone();
    }
    return all;
  }
  const std::map<std::string, double>& metrics() const { return metrics_; }

 private:
  v1::RunConfig config_;
  std::unique_ptr<Algorithm> algorithm_;
  std::unique_ptr<Collective> collective_;
  std::map<std::string, double> metrics_;
  int64_t update_ = 0;
};

class MinibatchGraphsTest : public testing::TestWithParam<Case> {
 protected:
  MinibatchGraphsTest() { rehearsal::Register(); }

  // Both learn from the same.
  void Update(const Rollout& rollout) {
    one_by_one_.Update(rollout);
    EXPECT_EQ(Graphs(), 0);
    recorded_.Update(rollout);
    counts_ = rehearsal::ReadCounts();
    EXPECT_EQ(counts_.missing_events, 0);
  }
  static int64_t Graphs() { return rehearsal::LaunchesByOperator()["a graph"]; }
  void ExpectEqual(const std::string& when) {
    const auto want = one_by_one_.Weights();
    for (const auto& [name, weight] : recorded_.Weights()) {
      EXPECT_TRUE(torch::equal(weight, want.at(name))) << when << ": " << name;
    }
    EXPECT_EQ(recorded_.metrics(), one_by_one_.metrics()) << when;
  }
  static Rollout Next() {
    Rollout rollout = RandomRollout(GetParam().spaces, kT, kB);
    // Of those a replay would want the final observations.
    if (GetParam().draws) rollout.truncated.zero_();
    return rollout;
  }

  const rehearsal::Strict strict_;
  Learner one_by_one_{GetParam(), /*graphs=*/false};
  Learner recorded_{GetParam(), /*graphs=*/true};
  rehearsal::Counts counts_;
};

TEST_P(MinibatchGraphsTest, EndWithTheSameWeights) {
  torch::manual_seed(1);
  for (int i = 0; i < 3; ++i) {
    Update(Next());
    ExpectEqual(absl::StrCat("update ", i));
  }
  EXPECT_EQ(Graphs(), GetParam().replayed);
}

// What a graph was told by numbers of the host is forgotten with them.
TEST_P(MinibatchGraphsTest, AChangeInFlightTakesHold) {
  torch::manual_seed(2);
  for (int i = 0; i < 2; ++i) Update(Next());
  one_by_one_.Reconfigure();
  recorded_.Reconfigure();
  for (int i = 0; i < 2; ++i) {
    Update(Next());
    ExpectEqual(absl::StrCat("update ", i, " with another configuration"));
  }
}

// Fewer steps, now and then, as of a rank that was preempted: another size.
TEST_P(MinibatchGraphsTest, AShorterRolloutIsLearnedFrom) {
  torch::manual_seed(3);
  for (int i = 0; i < 6; ++i) {
    Rollout rollout = Next();
    if (i % 2 == 1) {
      rollout.valid.narrow(0, kT - 3, 3).zero_();
      rollout.valid_steps = (kT - 3) * kB;
    }
    Update(rollout);
    ExpectEqual(absl::StrCat("update ", i));
  }
  EXPECT_EQ(Graphs(), GetParam().replayed);
}

// What a graph of one who is alone does is not all that is done with peers.
TEST_P(MinibatchGraphsTest, PeersComeAndGo) {
  torch::manual_seed(5);
  for (int i = 0; i < 8; ++i) {
    const bool group = i / 2 % 2 == 1;
    one_by_one_.SetGroup(group);
    recorded_.SetGroup(group);
    Update(Next());
    ExpectEqual(absl::StrCat("update ", i, group ? " with peers" : " alone"));
  }
}

constexpr char kModel[] = "model { hidden: [16] } ";
constexpr char kPpo[] = "ppo { epochs: 2 minibatches: 2 } ";
constexpr char kDqn[] =
    "dqn { batch_size: 8 updates_per_rollout: 3 learning_starts: 0 "
    "replay_capacity: 200 target_update_every: 2 ";
constexpr char kSac[] =
    "sac { batch_size: 8 updates_per_rollout: 3 learning_starts: 0 "
    "replay_capacity: 200 ";

INSTANTIATE_TEST_SUITE_P(
    Algorithms, MinibatchGraphsTest,
    testing::Values(
        Case{"Ppo", absl::StrCat(kModel, kPpo), VectorSpaces(4, 2)},
        Case{"OfFrames",
             absl::StrCat("model { hidden: [16] conv_channels: [4, 4, 4] } ",
                          kPpo),
             FrameSpaces(36, 36, 3)},
        Case{"Lstm",
             absl::StrCat("model { hidden: [16] recurrent: LSTM "
                          "recurrent_size: 8 } ",
                          kPpo),
             VectorSpaces(4, 2)},
        Case{"OfNumbers", absl::StrCat(kModel, kPpo), ContinuousSpaces(3, 2)},
        Case{"Annealed",
             absl::StrCat(kModel, kPpo, "optimizer { schedule: LINEAR } "),
             VectorSpaces(4, 2)},
        // Another clip each update, which is the graph's.
        Case{"AnnealedClip",
             absl::StrCat(kModel,
                          "ppo { epochs: 2 minibatches: 2 anneal_clip: true } "
                          "optimizer { schedule: LINEAR } "),
             VectorSpaces(4, 2), 2},
        Case{"TargetKl",
             absl::StrCat(kModel,
                          "ppo { epochs: 2 minibatches: 2 target_kl: 1000 } "),
             VectorSpaces(4, 2)},
        Case{"Muon", absl::StrCat(kModel, kPpo, "optimizer { type: MUON } "),
             VectorSpaces(4, 2)},
        Case{"Impala", absl::StrCat(kModel, "impala { minibatches: 2 } "),
             VectorSpaces(4, 2), 2},
        Case{"WithPeers", absl::StrCat(kModel, kPpo), VectorSpaces(4, 2), 4,
             true},
        // No graphs: parts of buckets leave within the backward pass.
        Case{"Buckets",
             absl::StrCat(kModel, kPpo, "distributed { gradients: BUCKETS } "),
             VectorSpaces(4, 2), 0, true},
        Case{"Segments",
             absl::StrCat(
                 kModel,
                 "ppo { epochs: 2 minibatches: 2 minibatch: SEGMENTS } "),
             VectorSpaces(4, 2)},
        Case{"SegmentsOfLstm",
             absl::StrCat(
                 "model { hidden: [16] recurrent: LSTM recurrent_size: 8 } ",
                 "ppo { epochs: 2 minibatches: 2 minibatch: SEGMENTS } "),
             VectorSpaces(4, 2)},
        Case{"Dqn", absl::StrCat(kModel, kDqn, "}"), VectorSpaces(4, 2), 3,
             false, true},
        Case{"PrioritizedDqn",
             absl::StrCat(kModel, kDqn,
                          "priority_alpha: 0.6 n_step: 3 } "
                          "optimizer { schedule: LINEAR }"),
             VectorSpaces(4, 2), 3, false, true},
        Case{"DqnOfFrames",
             absl::StrCat("model { hidden: [16] conv_channels: [4, 4, 4] } ",
                          kDqn, "} runtime { precision: BF16 }"),
             FrameSpaces(36, 36, 3), 3, false, true},
        Case{"DqnByMuon",
             absl::StrCat(kModel, kDqn, "} optimizer { type: MUON }"),
             VectorSpaces(4, 2), 3, false, true},
        Case{"DqnWithPeers", absl::StrCat(kModel, kDqn, "}"),
             VectorSpaces(4, 2), 3, true, true},
        Case{"DqnInBuckets",
             absl::StrCat(kModel, kDqn, "} distributed { gradients: BUCKETS }"),
             VectorSpaces(4, 2), 0, true, true},
        Case{"Sac", absl::StrCat(kModel, kSac, "}"),
             BoundedSpaces(4, {-2, 0}, {2, 1}), 3, false, true},
        Case{"SacOfOneTemperature",
             absl::StrCat(kModel, kSac,
                          "learn_temperature: false } "
                          "optimizer { schedule: LINEAR }"),
             BoundedSpaces(4, {-2, 0}, {2, 1}), 3, false, true},
        Case{"SacInBuckets",
             absl::StrCat(kModel, kSac, "} distributed { gradients: BUCKETS }"),
             BoundedSpaces(4, {-2, 0}, {2, 1}), 0, true, true},
        // The critics' gradient is one, and the policy's.
        Case{"SacWithPeers", absl::StrCat(kModel, kSac, "}"),
             BoundedSpaces(4, {-2, 0}, {2, 1}), 6, true, true}),
    [](const auto& info) { return info.param.name; });

// A gradient step's launches: its indices and the graph.
TEST(MinibatchGraphsLaunchTest, AStepIsOneReplay) {
  rehearsal::Register();
  const auto launches = [](int epochs) {
    const Case c = {
        "", absl::StrCat(kModel, "ppo { minibatches: 2 epochs: ", epochs, " }"),
        VectorSpaces(4, 2)};
    Learner learner(c, /*graphs=*/true);
    torch::manual_seed(4);
    for (int i = 0; i < 3; ++i) learner.Update(RandomRollout(c.spaces, kT, kB));
    return rehearsal::LaunchesByOperator();
  };
  std::map<std::string, int64_t> more = launches(3);
  for (const auto& [op, count] : launches(2)) more[op] -= count;
  std::erase_if(more, [](const auto& one) { return one.second == 0; });
  // Of two steps; and nothing else.
  EXPECT_EQ(more, (std::map<std::string, int64_t>{{"a graph", 2},
                                                  {"aten::copy_", 2}}));
}

// What is drawn is copied into the graph's batch, after it was gathered.
TEST(MinibatchGraphsLaunchTest, AStepOnADrawIsOneReplay) {
  rehearsal::Register();
  for (const bool sac : {false, true}) {
    const auto launches = [&](int steps) {
      const Spaces spaces =
          sac ? BoundedSpaces(4, {-2, 0}, {2, 1}) : VectorSpaces(4, 2);
      Case with = {"", absl::StrCat(kModel, sac ? kSac : kDqn, "}"), spaces};
      absl::StrReplaceAll({{"rollout: 3", absl::StrCat("rollout: ", steps)}},
                          &with.config);
      Learner learner(with, /*graphs=*/true);
      torch::manual_seed(4);
      for (int i = 0; i < 3; ++i) {
        Rollout rollout = RandomRollout(spaces, kT, kB);
        rollout.truncated.zero_();
        learner.Update(rollout);
      }
      return rehearsal::LaunchesByOperator();
    };
    // Of two steps, so that targets are copied once.
    std::map<std::string, int64_t> more = launches(6);
    for (const auto& [op, count] : launches(4)) more[op] -= count;
    // The draw itself: its leaves, what the transitions there are, where they begin
    // and end, and what was seen there.
    int64_t all = 0, draw = 0;
    for (const auto& [op, count] : more) {
      const bool drawing = op == "flotilla::find_leaves" ||
                           op == "aten::index_select" || op == "aten::cat" ||
                           op == "flotilla::gather_ring" ||
                           op == "flotilla::normal_draws";
      (drawing ? draw : all) += count;
    }
    EXPECT_EQ(more["a graph"], 2) << sac;
    EXPECT_LE(draw, 2 * (sac ? 6 : 4)) << testing::PrintToString(more);
    EXPECT_LE(all, 2 * 9) << testing::PrintToString(more);
  }
}

// A batch for graphs alone, whose rollout is the test's.
class PlantedTest : public testing::Test {
 protected:
  PlantedTest() {
    rehearsal::Register();
    rollout_ = MakeRolloutOn(Device(), VectorSpaces(4, 2), kT, kB, 0);
    batch_.rollout = &rollout_;
    batch_.advantage = torch::ones({kT, kB}, Device());
    batch_.returns = torch::ones({kT, kB}, Device());
    batch_.index =
        torch::zeros({4}, torch::dtype(torch::kInt32).device(Device()));
    batch_.stays = true;
  }

  const rehearsal::Strict strict_;
  const std::unique_ptr<MinibatchGraphs> graphs_ =
      (rehearsal::Register(), MinibatchGraphs::On(Device()));
  Rollout rollout_;
  PpoBatch batch_;
};

TEST_F(PlantedTest, ABufferThatMovedIsNamed) {
  torch::Tensor scratch = torch::ones({4}, Device());
  const auto step = [&](const PpoBatch& of) { return scratch + of.index; };
  graphs_->Run(batch_, {}, step);
  graphs_->Run(batch_, {}, step);
  EXPECT_EQ(ToHost(graphs_->Run(batch_, {}, step))[0].item<float>(), 1);
  scratch = torch::ones({4}, Device());
  try {
    graphs_->Run(batch_, {}, step);
    FAIL() << "nobody saw it";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                HasSubstr("moved memory in a graph: aten::add"));
  }
}

// What cannot be recorded is done all the same, and no more is tried.
TEST_F(PlantedTest, AWaitWithinAStepIsRefused) {
  int asked = 0;
  const auto step = [&](const PpoBatch& of) {
    ++asked;
    if (asked < 3) of.advantage.sum().item<float>();
    return of.advantage + 1;
  };
  graphs_->Run(batch_, {}, step);
  EXPECT_EQ(ToHost(graphs_->Run(batch_, {}, step))[0][0].item<float>(), 2);
  EXPECT_EQ(asked, 3);  // recorded in vain, and done
  for (int i = 0; i < 3; ++i) graphs_->Run(batch_, {}, step);
  EXPECT_EQ(asked, 6);
}

// A user's module throws what it likes.
TEST_F(PlantedTest, AnyExceptionWithinARecordingIsRefused) {
  int asked = 0;
  const auto step = [&](const PpoBatch& of) {
    if (++asked == 2) throw std::runtime_error("not while recorded");
    return of.advantage + 1;
  };
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(ToHost(graphs_->Run(batch_, {}, step))[0][0].item<float>(), 2);
  }
  EXPECT_EQ(asked, 5);
}

TEST_F(PlantedTest, OtherNumbersOrMemoryAreOtherGraphs) {
  int asked = 0;
  const auto step = [&](const PpoBatch& of) {
    ++asked;
    return of.advantage + of.clip_ratio;
  };
  for (int i = 0; i < 4; ++i) graphs_->Run(batch_, {}, step);
  EXPECT_EQ(asked, 2);
  batch_.clip_ratio = 0.5;
  for (int i = 0; i < 4; ++i) graphs_->Run(batch_, {}, step);
  EXPECT_EQ(asked, 4);
  batch_.advantage = torch::full({kT, kB}, 3, Device());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(ToHost(graphs_->Run(batch_, {}, step))[0][0].item<float>(), 3.5);
  }
  EXPECT_EQ(asked, 6);
  graphs_->Run(batch_, {1}, step);
  EXPECT_EQ(asked, 7);
  graphs_->Clear();
  graphs_->Run(batch_, {}, step);
  EXPECT_EQ(asked, 8);
}

TEST(MinibatchGraphsOnACpuTest, ThereAreNone) {
  EXPECT_EQ(MinibatchGraphs::On(torch::kCPU), nullptr);
}

}  // namespace
}  // namespace flotilla
