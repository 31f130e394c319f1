// A replay that holds observations on a device: it draws what one on the host
// draws, each observation has crossed once, and nothing waits.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "learner/device/transfer.h"
#include "learner/replay/replay_buffer.h"
#include "learner/rollout/rollout.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/no_host_wait.h"
#include "tests/rehearsal/strict.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

using rehearsal::Device;

constexpr int64_t kT = 7, kB = 3;

struct World {
  std::string name;
  Spaces spaces;
  int64_t capacity;  // transitions
  int n_step = 3;
};

// Frames of two stacks, numbers and a mask.
Spaces SeveralLeaves() {
  v1::EnvSpec spec;
  CHECK(google::protobuf::TextFormat::ParseFromString(
      "observation { path: 'near' dtype: UINT8 shape: [3, 5] frame_stack: 4 }"
      "observation { path: 'far' dtype: UINT8 shape: [4, 4] frame_stack: 2 }"
      "observation { path: 'x' dtype: FLOAT32 shape: 3 }"
      "observation { path: 'm' dtype: UINT8 shape: 5 }"
      "action { path: 'a' dtype: INT64 num_values: 5 mask_path: 'm' }"
      "action { path: 'b' dtype: FLOAT32 shape: 2 }",
      &spec));
  return DescribeSpaces(spec, v1::ModelConfig()).value();
}

class ResidentReplayTest : public testing::TestWithParam<World> {
 protected:
  ResidentReplayTest() : spaces_(GetParam().spaces) {
    rehearsal::Register();
    torch::manual_seed(3);
  }

  std::unique_ptr<ReplayBuffer> Replay(torch::Device device,
                                       torch::Device memory) const {
    return std::make_unique<ReplayBuffer>(
        spaces_, kB,
        ReplayBuffer::Options{.capacity = GetParam().capacity,
                              .n_step = GetParam().n_step,
                              .priority_alpha = 0.6,
                              .device = device,
                              .memory = memory});
  }

  // Begins where the last one ended but for one row, has the final observations of
  // its time limits, and some of its steps are lost.
  Rollout Next(int64_t length = kT) {
    Rollout r = RandomRollout(spaces_, length, kB);
    r.valid.copy_(torch::rand({length, kB}) > 0.1);
    r.valid[length - 1].fill_(1);
    r.observation.age()[0].fill_(spaces_.max_stack() - 1);
    if (rollouts_ > 0) {
      const torch::Tensor newest =
          r.observation.leaf(0)[spaces_.observation[0].stack - 1][0];
      const torch::Tensor other = newest.clone();
      r.observation.CopyStep(0, carried_, 0);
      if (rollouts_ % 3 == 0) newest.copy_(other);
    }
    ++rollouts_;
    std::vector<uint8_t> ended(kB);
    for (int64_t t = 0; t < length; ++t) {
      for (int64_t b = 0; b < kB; ++b) {
        const bool over = r.terminated[t][b].item<uint8_t>() != 0;
        const bool late = !over && r.truncated[t][b].item<uint8_t>() != 0;
        ended[b] = over || late;
        if (!late) continue;
        r.final_step.push_back(t * kB + b);
        AddFinal(&r);
      }
      r.observation.Continue(t + 1, 0, kB, ended.data());
    }
    carried_.CopyStep(0, r.observation, length);
    return r;
  }

  void AddFinal(Rollout* r) {
    const auto before = r->final_observation.size();
    const int64_t bytes = r->observation.row_bytes();
    // Any bytes but those of a NaN.
    const torch::Tensor row = torch::randint(0, 64, {bytes}, torch::kInt32);
    r->final_observation.resize(before + bytes);
    for (int64_t i = 0; i < bytes; ++i) {
      r->final_observation[before + i] =
          static_cast<uint8_t>(row[i].item<int32_t>());
    }
  }

  const Spaces spaces_;
  const rehearsal::Strict strict_;
  ObservationStore carried_{spaces_, /*steps=*/1, kB};
  int rollouts_ = 0;
};

// The first thing in which they differ; "" if none.
std::string Difference(const ReplayBatch& host, const ReplayBatch& there) {
  std::string found;
  const auto compare = [&](const std::string& what, const torch::Tensor& want,
                           const torch::Tensor& got) {
    if (!found.empty() || !want.defined()) return;
    if (got.is_cpu()) found = absl::StrCat(what, " is on the host");
    if (!torch::equal(ToHost(got), want)) found = what;
  };
  for (size_t i = 0; i < host.observation.leaf.size(); ++i) {
    compare(absl::StrCat("leaf ", i, " seen"), host.observation.leaf[i],
            there.observation.leaf[i]);
    compare(absl::StrCat("leaf ", i, " that followed"),
            host.next_observation.leaf[i], there.next_observation.leaf[i]);
  }
  compare("discrete actions", host.action.discrete, there.action.discrete);
  compare("continuous actions", host.action.continuous,
          there.action.continuous);
  compare("n-step returns", host.n_step_return, there.n_step_return);
  compare("discounts", host.discount, there.discount);
  compare("weights", host.weight, there.weight);
  compare("ids", host.id, there.id);
  return found;
}

// Of draws that are the same, some of them more than once.
void SetSomeErrors(const ReplayBatch& on_host, const ReplayBatch& on_device,
                   ReplayBuffer* host, ReplayBuffer* there) {
  const torch::Tensor errors = 3 * torch::randn({on_host.weight.numel()});
  host->SetErrors(on_host.id.cpu(), errors);
  there->SetErrors(on_device.id, ToDevice(errors, Device()));
}

// Rollouts whose observations an actor has left on the device, and others; more
// than the ring holds, some longer than what is left of it.
TEST_P(ResidentReplayTest, DrawsWhatTheHostDraws) {
  const auto host = Replay(torch::kCPU, torch::kCPU);
  const auto there = Replay(Device(), Device());
  Draws draws(5), twin(5);
  int64_t finals = 0;
  for (int i = 0; i < 12; ++i) {
    Rollout r = Next(/*length=*/i % 4 == 2 ? 2 : kT);
    finals += static_cast<int64_t>(r.final_step.size());
    host->Add(r);
    if (i % 2 == 1) {
      r.there = std::make_shared<Rollout>(
          MakeRolloutOn(Device(), spaces_, r.length, kB, /*state_size=*/0));
      Upload(r, r.there.get());
    }
    ReplayBatch got, want;
    {
      const rehearsal::NoHostWait nobody_waits;
      there->Add(r);
      // Whoever collects next writes over this.
      for (int leaf = 0; leaf < r.observation.num_leaves(); ++leaf) {
        if (i % 2 == 0) r.observation.leaf(leaf).fill_(1);
      }
      ASSERT_TRUE(there->Sample(32, 0.4, &twin, &got));
    }
    ASSERT_TRUE(host->Sample(32, 0.4, &draws, &want));
    ASSERT_EQ(Difference(want, got), "") << "after rollout " << i;
    SetSomeErrors(want, got, host.get(), there.get());
  }
  EXPECT_EQ(host->size(), there->size());
  EXPECT_GT(finals, 0);
}

// While a run goes on.
TEST_P(ResidentReplayTest, AnotherDiscountIsThatOfAllThatIsDrawn) {
  const auto host = Replay(torch::kCPU, torch::kCPU);
  const auto there = Replay(Device(), Device());
  Draws draws(5), twin(5);
  for (int i = 0; i < 4; ++i) {
    const Rollout r = Next();
    for (ReplayBuffer* replay : {host.get(), there.get()}) {
      replay->Add(r);
      if (i % 2 == 1) replay->set_discount(0.5);
    }
    ReplayBatch got, want;
    ASSERT_TRUE(there->Sample(64, 0.4, &twin, &got));
    ASSERT_TRUE(host->Sample(64, 0.4, &draws, &want));
    ASSERT_EQ(Difference(want, got), "") << "after rollout " << i;
    const double whole = std::pow(0.5, GetParam().n_step);
    EXPECT_EQ((want.discount == whole).any().item<bool>(), i > 0);
    SetSomeErrors(want, got, host.get(), there.get());
  }
}

// What an actor left on the device does not cross again, what is known of transitions
// does when it is known, and of what is drawn nothing.
TEST_P(ResidentReplayTest, WhatIsKnownCrossesOnce) {
  const auto there = Replay(Device(), Device());
  const int64_t capacity = (GetParam().capacity + kB - 1) / kB;
  const int64_t k = spaces_.max_stack();
  for (const bool left : {false, true}) {
    Rollout r = Next();
    if (left) {
      r.there = std::make_shared<Rollout>(
          MakeRolloutOn(Device(), spaces_, kT, kB, /*state_size=*/0));
      Upload(r, r.there.get());
    }
    int64_t bytes = 0, copies = 1;
    for (int i = 0; i < r.observation.num_leaves() && !left; ++i) {
      const torch::Tensor leaf = r.observation.leaf(i);
      bytes += static_cast<int64_t>(leaf.nbytes()) / leaf.size(0) * (kT + 1);
      ++copies;
    }
    if (k > 1) {
      bytes += std::min(kT + 1, capacity + k) * kB;  // ages
      ++copies;
    }
    const int64_t finals =
        std::count_if(r.final_step.begin(), r.final_step.end(),
                      [&](int64_t step) { return step / kB >= kT - capacity; });
    bytes += finals * (8 + r.observation.row_bytes());
    copies += finals > 0;
    rehearsal::ResetCounts();
    there->Add(r);
    const rehearsal::Counts added = rehearsal::ReadCounts();
    EXPECT_EQ(added.pinned_to_device.copies, copies);
    EXPECT_EQ(added.pageable_to_device.copies, 0);
    const int64_t message = added.pinned_to_device.bytes - bytes;
    const int64_t transition =
        4 * (6 + spaces_.action.choices() + spaces_.action.continuous);
    EXPECT_GT(message, 0);
    EXPECT_EQ(message % transition, 0);
    // Those that became ready, those that expired, and those that were cut.
    EXPECT_LE(message, transition * (2 * kT + 2) * kB);
  }
  rehearsal::ResetCounts();
  Draws draws(1);
  ReplayBatch batch;
  ASSERT_TRUE(there->Sample(16, 0.4, &draws, &batch));
  there->SetErrors(batch.id, torch::ones({16}, Device()));
  const rehearsal::Counts drawn = rehearsal::ReadCounts();
  EXPECT_EQ(drawn.pageable_to_device.copies, 0);
  EXPECT_EQ(drawn.pinned_to_device.copies, 0);
  EXPECT_EQ(drawn.HostWaits(), 0);
}

// A checkpoint of one is one of the other.
TEST_P(ResidentReplayTest, IsRestoredOnEitherSide) {
  const auto host = Replay(Device(), torch::kCPU);
  const auto there = Replay(Device(), Device());
  Draws before(7), same(7);
  for (int i = 0; i < 5; ++i) {
    const Rollout r = Next();
    host->Add(r);
    there->Add(r);
    ReplayBatch here, drawn;
    ASSERT_TRUE(host->Sample(32, 0.4, &before, &here));
    ASSERT_TRUE(there->Sample(32, 0.4, &same, &drawn));
    SetSomeErrors(here, drawn, host.get(), there.get());
  }
  const ReplayBuffer::Contents contents = there->Copy();
  ASSERT_EQ(contents.size(), host->Copy().size());
  for (const auto& [name, tensor] : host->Copy()) {
    EXPECT_TRUE(torch::equal(contents.at(name), tensor)) << name;
  }
  const auto again = Replay(Device(), Device());
  const auto on_host = Replay(torch::kCPU, torch::kCPU);
  ASSERT_TRUE(again->Restore(host->Copy()).ok());
  ASSERT_TRUE(on_host->Restore(contents).ok());
  Draws draws(2), twin(2);
  for (int i = 0; i < 4; ++i) {
    ReplayBatch got, want;
    ASSERT_TRUE(again->Sample(32, 0.4, &draws, &got));
    ASSERT_TRUE(on_host->Sample(32, 0.4, &twin, &want));
    EXPECT_EQ(Difference(want, got), "") << "after rollout " << i;
    SetSomeErrors(want, got, on_host.get(), again.get());
    const Rollout r = Next();
    again->Add(r);
    on_host->Add(r);
  }
}

// One frame on the device that is not what was seen is found.
TEST_P(ResidentReplayTest, AStaleFrameIsFound) {
  const auto host = Replay(torch::kCPU, torch::kCPU);
  const auto there = Replay(Device(), Device());
  Rollout r = Next();
  host->Add(r);
  r.there = std::make_shared<Rollout>(
      MakeRolloutOn(Device(), spaces_, kT, kB, /*state_size=*/0));
  Upload(r, r.there.get());
  // Step 3's array is still step 2's.
  const int64_t ahead = spaces_.observation[0].stack - 1;
  const torch::Tensor leaf = r.there->observation.leaf(0);
  leaf[3 + ahead].copy_(leaf[2 + ahead]);
  there->Add(r);
  Draws draws(5), twin(5);
  ReplayBatch got, want;
  ASSERT_TRUE(host->Sample(64, 0.4, &draws, &want));
  ASSERT_TRUE(there->Sample(64, 0.4, &twin, &got));
  EXPECT_EQ(Difference(want, got), "leaf 0 seen");
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, ResidentReplayTest,
    testing::Values(World{"Vectors", VectorSpaces(4, 2), 30},
                    World{"OneStep", VectorSpaces(4, 2), 30, 1},
                    World{"Frames", FrameSpaces(6, 4, 3), 24},
                    World{"FramesOfOneStep", FrameSpaces(6, 4, 3), 24, 1},
                    World{"LongerThanTheRing", FrameSpaces(6, 4, 3), 9},
                    World{"SeveralLeaves", SeveralLeaves(), 40}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace flotilla
