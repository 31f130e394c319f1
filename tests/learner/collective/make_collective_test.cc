#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "learner/collective/collective.h"
#include "learner/collective/faulty_collective.h"
#include "learner/collective/solo_collective.h"
#include "services/base/steady_now.h"
#include "tests/learner/collective/ranks.h"

namespace flotilla {
namespace {

// Which way the ranks met shows in the keys they left.
bool Used(CoordinatorClient* coordinator, const std::string& topic) {
  const auto used = coordinator->Check(1, {"collective/" + topic + "/0"});
  return used.ok() && *used;
}

TEST(MakeCollectiveTest, AWorldOfOneNeedsNobody) {
  const auto made =
      MakeCollective(MakeAssignment(0, 1), {}, nullptr, torch::kCPU);
  ASSERT_TRUE(made.ok()) << made.status();
  torch::Tensor tensor = torch::ones({3});
  EXPECT_TRUE((*made)->AllReduceSum(tensor).ok());
  EXPECT_TRUE((*made)->Broadcast(tensor, 0).ok());
  EXPECT_EQ(tensor.sum().item<float>(), 3);
  EXPECT_EQ((*made)->world_size(), 1);
  EXPECT_FALSE((*made)->has_group());
  EXPECT_EQ((*made)->GatherBytes("me", 0).value(),
            std::vector<std::string>{"me"});
  (*made)->Abort();
  EXPECT_TRUE(absl::IsAborted((*made)->AllReduceSum(tensor)));
}

TEST(MakeCollectiveTest, RanksOfOneHostShareMemory) {
  RunRanks(2, [](const v1::Assignment& assignment,
                 FakeCoordinatorClient* coordinator) {
    const auto made = MakeCollective(assignment, {}, coordinator, torch::kCPU);
    ASSERT_TRUE(made.ok()) << made.status();
    torch::Tensor tensor = torch::ones({3});
    EXPECT_TRUE((*made)->AllReduceSum(tensor).ok());
    EXPECT_EQ(tensor.sum().item<float>(), 6);
    EXPECT_TRUE(Used(coordinator, "shared-memory"));
    EXPECT_FALSE(Used(coordinator, "gloo"));
  });
}

TEST(MakeCollectiveTest, AGroupOfOneCanBeForced) {
  TempDir folder;
  FakeCoordinatorClient coordinator(folder.path());
  v1::DistributedConfig config;
  config.set_force_group(true);
  const auto made =
      MakeCollective(MakeAssignment(0, 1), config, &coordinator, torch::kCPU);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE((*made)->has_group());
  EXPECT_TRUE(Used(&coordinator, "shared-memory"));
  torch::Tensor tensor = torch::ones({3});
  EXPECT_TRUE((*made)->AllReduceSum(tensor).ok());
  EXPECT_EQ(tensor.sum().item<float>(), 3);
}

TEST(MakeCollectiveTest, RanksOfSeveralHostsUseGloo) {
  ::setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  RunRanks(2, [](v1::Assignment assignment,
                 FakeCoordinatorClient* coordinator) {
    assignment.mutable_learner(1)->set_host("host-b");
    const auto made = MakeCollective(assignment, {}, coordinator, torch::kCPU);
    ASSERT_TRUE(made.ok()) << made.status();
    torch::Tensor tensor = torch::ones({3});
    EXPECT_TRUE((*made)->AllReduceSum(tensor).ok());
    EXPECT_EQ(tensor.sum().item<float>(), 6);
    EXPECT_FALSE(Used(coordinator, "shared-memory"));
    EXPECT_TRUE(Used(coordinator, "gloo"));
  });
  ::unsetenv("GLOO_SOCKET_IFNAME");
}

TEST(MakeCollectiveTest, AnInterfaceThatDoesNotExistIsNamed) {
  ::setenv("GLOO_SOCKET_IFNAME", "nope0", 1);
  TempDir folder;
  FakeCoordinatorClient coordinator(folder.path());
  v1::Assignment assignment = MakeAssignment(0, 2);
  assignment.mutable_learner(1)->set_host("host-b");
  const auto made = MakeCollective(assignment, {}, &coordinator, torch::kCPU);
  EXPECT_TRUE(absl::IsFailedPrecondition(made.status())) << made.status();
  EXPECT_NE(made.status().message().find("nope0"), absl::string_view::npos)
      << made.status();
  ::unsetenv("GLOO_SOCKET_IFNAME");
}

// A rank on "the same host" that cannot be reached, as in another container.
TEST(MakeCollectiveTest, RanksThatCannotShareMemoryUseGloo) {
  RunRanks(2, [](const v1::Assignment& assignment,
                 FakeCoordinatorClient* coordinator) {
    v1::DistributedConfig config;
    if (assignment.rank() == 1) {
      // What MakeShmCollective would say in another PID namespace.
      ASSERT_TRUE(
          coordinator
              ->Set(1, "collective/shared-memory/1", "elsewhere:pid:[1]:0 1 -")
              .ok());
      ASSERT_TRUE(coordinator
                      ->Set(1, "collective/shared-memory-verdict/1",
                            "rank 0 is in another container")
                      .ok());
      ASSERT_TRUE(
          coordinator->Wait(1, {"collective/gloo/0"}, absl::Seconds(20)).ok());
      ASSERT_TRUE(coordinator->ReportFailure(1, "enough seen").ok());
      return;
    }
    const auto made =
        MakeCollective(assignment, config, coordinator, torch::kCPU);
    EXPECT_TRUE(absl::IsAborted(made.status())) << made.status();
  });
}

TEST(MakeCollectiveTest, NcclWithoutAGpuIsRefusedWithTheRemedy) {
  TempDir folder;
  FakeCoordinatorClient coordinator(folder.path());
  v1::DistributedConfig config;
  config.set_backend(v1::NCCL);
  const auto made =
      MakeCollective(MakeAssignment(0, 2), config, &coordinator, torch::kCPU);
  EXPECT_TRUE(absl::IsFailedPrecondition(made.status())) << made.status();
  EXPECT_NE(made.status().message().find("--backend gloo"),
            absl::string_view::npos)
      << made.status();
}

TEST(FaultyCollectiveTest, FailsTheCallItWasToldToAndAllAfter) {
  FaultyCollective faulty(std::make_unique<SoloCollective>(),
                          {.kind = Fault::kFail, .call = 2});
  EXPECT_TRUE(faulty.AllReduceSum(torch::ones({1})).ok());
  EXPECT_TRUE(absl::IsUnavailable(faulty.Broadcast(torch::ones({1}), 0)));
  EXPECT_TRUE(absl::IsUnavailable(faulty.AllReduceSum(torch::ones({1}))));
  EXPECT_EQ(faulty.calls(), 3);
}

TEST(FaultyCollectiveTest, DelaysOneCall) {
  FaultyCollective faulty(
      std::make_unique<SoloCollective>(),
      {.kind = Fault::kDelay, .call = 1, .delay = absl::Milliseconds(50)});
  const absl::Time start = SteadyNow();
  EXPECT_TRUE(faulty.AllReduceSum(torch::ones({1})).ok());
  EXPECT_GE(SteadyNow() - start, absl::Milliseconds(50));
  EXPECT_TRUE(faulty.AllReduceSum(torch::ones({1})).ok());
}

TEST(FaultyCollectiveTest, HangsUntilAborted) {
  FaultyCollective faulty(std::make_unique<SoloCollective>(),
                          {.kind = Fault::kHang, .call = 1});
  std::thread aborter([&] {
    absl::SleepFor(absl::Milliseconds(20));
    faulty.Abort();
  });
  EXPECT_TRUE(absl::IsAborted(faulty.AllReduceSum(torch::ones({1}))));
  aborter.join();
}

}  // namespace
}  // namespace flotilla
