// DQN and SAC on a device with a peer: what ranks believe of one another's samples,
// without asking, keeps their weights and targets alike.

#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "learner/algo/algorithm.h"
#include "learner/collective/nccl_collective.h"
#include "learner/device/transfer.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/learner/collective/fake_nccl.h"
#include "tests/learner/collective/ranks.h"
#include "tests/learner/collective/rehearsal_nccl.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/strict.h"
#include "tests/testing/bounded_spaces.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

constexpr int64_t kB = 2;

// Weights, targets, moments and step count, by name, on the host.
std::map<std::string, torch::Tensor> Everything(Algorithm* algorithm) {
  std::map<std::string, torch::Tensor> all;
  for (const auto& tensors : {algorithm->Weights(), algorithm->State()}) {
    for (const NamedTensor& t : tensors) all[t.name] = ToHost(t.tensor).clone();
  }
  return all;
}

struct Learner {
  std::string name;
  Spaces spaces;
  std::string config;
  std::string step_count;  // of State
};

void PrintTo(const Learner& learner, std::ostream* out) {
  *out << learner.name;
}

class ReplayRanksTest : public testing::TestWithParam<Learner> {};

TEST_P(ReplayRanksTest, OneThatHasNothingToGiveStaysInStep) {
  rehearsal::Register();
  const rehearsal::Strict strict;
  rehearsal::ResetCounts();
  const RehearsalNccl device;
  FakeNccl nccl(&device);
  nccl.calls_wait = true;
  std::map<std::string, torch::Tensor> of_rank[2];
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const c10::impl::VirtualGuardImpl guard(c10::kPrivateUse1);
    const c10::StreamGuard own(guard.getNewStream(rehearsal::Device()));
    const auto collective =
        MakeNcclCollective(nccl.api(), assignment, coordinator,
                           absl::Seconds(20), rehearsal::Device());
    ASSERT_TRUE(collective.ok()) << collective.status();
    v1::RunConfig config;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat("env { num_envs: ", kB, " } model { hidden: [16] } ",
                     GetParam().config),
        &config));
    const Spaces& spaces = GetParam().spaces;
    const auto algorithm =
        MakeAlgorithm(config, spaces, rehearsal::Device()).value();
    // Rank 0 has its 12 of 24 steps after two rollouts, rank 1 after three: first
    // neither has samples, then one does, then both.
    const int64_t length = assignment.rank() == 0 ? 4 : 2;
    torch::manual_seed(1);
    for (int64_t update = 0; update < 5; ++update) {
      Rollout rollout = RandomRollout(spaces, length, kB);
      rollout.truncated.zero_();
      const auto updated =
          algorithm->Update(rollout, {update, 100, collective->get()});
      ASSERT_TRUE(updated.ok()) << updated.status();
    }
    of_rank[assignment.rank()] = Everything(algorithm.get());
  });
  EXPECT_EQ(of_rank[0].at(GetParam().step_count).item<int64_t>(), 4 * 3);
  ASSERT_EQ(of_rank[0].size(), of_rank[1].size());
  for (const auto& [name, tensor] : of_rank[0]) {
    EXPECT_TRUE(torch::equal(tensor, of_rank[1].at(name))) << name;
  }
  EXPECT_EQ(rehearsal::ReadCounts().missing_events, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, ReplayRanksTest,
    testing::Values(Learner{"Dqn", VectorSpaces(4, 2),
                            "dqn { batch_size: 8 updates_per_rollout: 3 "
                            "learning_starts: 24 target_update_every: 2 "
                            "priority_alpha: 0.6 replay_capacity: 200 }",
                            "adam.step"},
                    Learner{"Sac", BoundedSpaces(4, {-2, 0}, {2, 1}),
                            "sac { batch_size: 8 updates_per_rollout: 3 "
                            "learning_starts: 24 replay_capacity: 200 }",
                            "critics.adam.step"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace flotilla
