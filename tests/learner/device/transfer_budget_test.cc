// What an update and a decision ask of a device. Nothing of it is pageable, and the
// host waits for results alone.

#include <c10/core/impl/VirtualGuardImpl.h>

#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "learner/algo/algorithm.h"
#include "learner/collective/solo_collective.h"
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

using rehearsal::Counts;
using testing::HasSubstr;

constexpr int64_t kT = 8, kB = 4;

// Each all at once; `up` and `down` are pinned.
struct Budget {
  int64_t up = 0;     // copies to the device
  int64_t down = 0;   // copies to the host
  int64_t waits = 0;  // for such copies
};

struct Case {
  std::string name;
  std::string config;
  Spaces spaces;
  int steps;             // gradient steps of an update
  Budget step;           // of each
  Budget update = {};    // beside them
  Budget decision = {};  // of one step of the environments
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

Counts AtMost(const Budget& budget) {
  Counts most;
  most.launches = most.views = std::numeric_limits<int64_t>::max();
  most.within_device.copies = std::numeric_limits<int64_t>::max();
  most.pinned_to_device.copies = budget.up;
  most.device_to_pinned.copies = budget.down;
  most.event_waits = budget.waits;
  return most;
}

Budget OfUpdate(const Case& c) {
  return {c.update.up + c.steps * c.step.up,
          c.update.down + c.steps * c.step.down,
          c.update.waits + c.steps * c.step.waits};
}

class TransferBudgetTest : public testing::TestWithParam<Case> {
 protected:
  TransferBudgetTest() {
    rehearsal::Register();
    v1::RunConfig config;
    CHECK(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat("env { num_envs: ", kB, " } rollout { length: ", kT, " } ",
                     GetParam().config),
        &config));
    algorithm_ =
        MakeAlgorithm(config, GetParam().spaces, rehearsal::Device()).value();
    torch::manual_seed(1);
    rollout_ = RandomRollout(GetParam().spaces, kT, kB);
    const int64_t S = algorithm_->live_policy()->state_size();
    if (S > 0) rollout_.initial_state = torch::zeros({kB, S});
    Update();  // the first one makes what later ones find
  }

  // What an update asks beyond `most`.
  std::string Excess(const Counts& most) {
    rehearsal::ResetCounts();
    Update();
    return rehearsal::Excess(rehearsal::ReadCounts(), most);
  }

  void Update() {
    const auto updated =
        algorithm_->Update(rollout_, {update_++, 0, &collective_});
    ASSERT_TRUE(updated.ok()) << updated.status();
  }

  const rehearsal::Strict strict_;
  GroupOfOne collective_;
  std::unique_ptr<Algorithm> algorithm_;
  Rollout rollout_;
  int64_t update_ = 0;
};

TEST_P(TransferBudgetTest, AnUpdateKeepsToIt) {
  EXPECT_EQ(Excess(AtMost(OfUpdate(GetParam()))), "")
      << rehearsal::Describe(rehearsal::ReadCounts());
  EXPECT_EQ(rehearsal::ReadCounts().pageable_to_device.copies, 0);
  EXPECT_EQ(rehearsal::ReadCounts().device_to_pageable.copies, 0);
  EXPECT_EQ(rehearsal::ReadCounts().blocking_copies, 0);
}

TEST_P(TransferBudgetTest, ADecisionKeepsToIt) {
  Draws draws(1);
  rehearsal::ResetCounts();
  Decide(algorithm_->live_policy(), &draws, &rollout_);  // kT, and values once
  const Budget& one = GetParam().decision;
  EXPECT_EQ(rehearsal::Excess(rehearsal::ReadCounts(),
                              AtMost({(kT + 1) * one.up, (kT + 1) * one.down,
                                      (kT + 1) * one.waits})),
            "")
      << rehearsal::Describe(rehearsal::ReadCounts());
}

TEST_P(TransferBudgetTest, AFaultInItIsNamed) {
  const torch::Tensor planted = torch::ones({1}, rehearsal::Device());
  const c10::impl::VirtualGuardImpl guard(c10::kPrivateUse1);
  const Counts most = AtMost(OfUpdate(GetParam()));
  collective_.plant = [&] { planted.item<float>(); };
  EXPECT_THAT(Excess(most), HasSubstr("waits, host reads (item)"));
  collective_.plant = [&] { planted.cpu(); };
  EXPECT_THAT(Excess(most), HasSubstr("copies, device to pageable"));
  collective_.plant = [] {
    torch::ones({1}).to(rehearsal::Device(), /*non_blocking=*/true);
  };
  EXPECT_THAT(Excess(most), HasSubstr("copies, pageable to device"));
  collective_.plant = [&] {
    guard.getStream(rehearsal::Device()).synchronize();
  };
  EXPECT_THAT(Excess(most), HasSubstr("waits, streams"));
  collective_.plant = [&] { guard.synchronizeDevice(0); };
  EXPECT_THAT(Excess(most), HasSubstr("waits, whole device"));
}

constexpr char kModel[] = "model { hidden: [16] } ";
constexpr char kCnn[] = "model { hidden: [16] conv_channels: [4, 4, 4] } ";
constexpr char kLstm[] =
    "model { hidden: [16] recurrent: LSTM recurrent_size: 8 } ";
constexpr char kPpo[] = "ppo { epochs: 2 minibatches: 2 }";

// What a rollout is made of goes up once an update: observations and their ages,
// actions, log-probabilities, values, those of final observations, rewards, both
// kinds of end and what is valid; and once an epoch, of which there are two, its
// permutation. What is reported comes back once. A gradient step asks for nothing.
constexpr Budget kPpoUpdate = {.up = 10 + 2, .down = 1, .waits = 1};
constexpr Budget kNothing = {};
// Observations; logits and values.
constexpr Budget kDecision = {.up = 1, .down = 2, .waits = 1};
// What a rollout has seen goes up once, and so do the transitions that it completes;
// what is reported comes back. Of what is drawn nothing moves.
constexpr Budget kReplayUpdate = {.up = 2, .down = 1, .waits = 1};
constexpr char kDqn[] =
    "dqn { batch_size: 8 updates_per_rollout: 3 learning_starts: 0 "
    "replay_capacity: 200 ";

INSTANTIATE_TEST_SUITE_P(
    Algorithms, TransferBudgetTest,
    testing::Values(
        Case{"Ppo", absl::StrCat(kModel, kPpo), VectorSpaces(4, 2), 4, kNothing,
             kPpoUpdate, kDecision},
        Case{"PpoOfFrames", absl::StrCat(kCnn, kPpo), FrameSpaces(36, 36, 3), 4,
             kNothing, kPpoUpdate, kDecision},
        // Log-deviations come back too.
        Case{"PpoOfNumbers",
             absl::StrCat(kModel, kPpo),
             ContinuousSpaces(3, 2),
             4,
             kNothing,
             kPpoUpdate,
             {.up = 1, .down = 3, .waits = 1}},
        // States go up too; deciding, they come back.
        Case{"LstmPpo",
             absl::StrCat(kLstm, kPpo),
             VectorSpaces(4, 2),
             4,
             kNothing,
             {.up = 11 + 2, .down = 1, .waits = 1},
             {.up = 2, .down = 3, .waits = 1}},
        // The numbers by which its segments are drawn go up at once.
        Case{
            "SegmentPpo",
            absl::StrCat(
                kModel, "ppo { epochs: 2 minibatches: 2 minibatch: SEGMENTS }"),
            VectorSpaces(4, 2),
            4,
            kNothing,
            {.up = 10 + 1, .down = 1, .waits = 1},
            kDecision},
        Case{"Impala",
             absl::StrCat(kModel, "impala { minibatches: 2 }"),
             VectorSpaces(4, 2),
             2,
             kNothing,
             {.up = 10 + 1, .down = 1, .waits = 1},
             kDecision},
        Case{"Dqn",
             absl::StrCat(kModel, kDqn, "}"),
             VectorSpaces(4, 2),
             3,
             kNothing,
             kReplayUpdate,
             {.up = 1, .down = 1, .waits = 1}},
        // Ages go up too.
        Case{"DqnOfFrames",
             absl::StrCat(kCnn, kDqn, "}"),
             FrameSpaces(36, 36, 3),
             3,
             kNothing,
             {.up = 3, .down = 1, .waits = 1},
             {.up = 1, .down = 1, .waits = 1}},
        Case{"PrioritizedDqn",
             absl::StrCat(kModel, kDqn, "priority_alpha: 0.6 }"),
             VectorSpaces(4, 2),
             3,
             kNothing,
             kReplayUpdate,
             {.up = 1, .down = 1, .waits = 1}},
        Case{"Sac",
             absl::StrCat(kModel,
                          "sac { batch_size: 8 updates_per_rollout: 3 "
                          "learning_starts: 0 replay_capacity: 200 }"),
             BoundedSpaces(4, {-2, 0}, {2, 1}),
             3,
             kNothing,
             kReplayUpdate,
             {.up = 1, .down = 1, .waits = 1}}),
    [](const auto& info) { return info.param.name; });

// Operators of one gradient step without a graph: what a second epoch adds to an
// update, but for its permutation.
struct Operators {
  std::string name;
  std::string config;
  Spaces spaces;
  int64_t most;
};

class OperatorBudgetTest : public testing::TestWithParam<Operators> {
 protected:
  std::map<std::string, int64_t> LaunchesOf(int epochs) {
    const rehearsal::NoGraphs none;
    v1::RunConfig config;
    CHECK(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat("env { num_envs: ", kB, " } rollout { length: ", kT, " } ",
                     GetParam().config,
                     " ppo { minibatches: 2 epochs: ", epochs, " }"),
        &config));
    const auto algorithm =
        MakeAlgorithm(config, GetParam().spaces, rehearsal::Device()).value();
    torch::manual_seed(1);
    Rollout rollout = RandomRollout(GetParam().spaces, kT, kB);
    const int64_t S = algorithm->live_policy()->state_size();
    if (S > 0) rollout.initial_state = torch::zeros({kB, S});
    SoloCollective alone;
    for (int64_t update = 0; update < 2; ++update) {
      rehearsal::ResetCounts();
      CHECK(algorithm->Update(rollout, {update, 0, &alone}).ok());
    }
    return rehearsal::LaunchesByOperator();
  }
};

TEST_P(OperatorBudgetTest, AGradientStepKeepsToIt) {
  rehearsal::Register();
  std::map<std::string, int64_t> more = LaunchesOf(2);
  for (const auto& [op, launches] : LaunchesOf(1)) more[op] -= launches;
  int64_t both = 0;  // of the epoch's two steps
  std::string each;
  for (const auto& [op, launches] : more) {
    both += launches;
    if (launches > 0)
      absl::StrAppend(&each, "  ", launches / 2.0, " ", op, "\n");
  }
  std::cout << GetParam().name << ": " << both / 2
            << " operators a gradient step\n";
  EXPECT_LE(both / 2, GetParam().most) << each;
}

INSTANTIATE_TEST_SUITE_P(
    Networks, OperatorBudgetTest,
    testing::Values(Operators{"Mlp", kModel, VectorSpaces(4, 2), 8},
                    Operators{"NatureCnn", kCnn, FrameSpaces(36, 36, 3), 46},
                    Operators{"Lstm", kLstm, VectorSpaces(4, 2), 212}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace flotilla
