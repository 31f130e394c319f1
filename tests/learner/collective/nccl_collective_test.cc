// NcclCollective over an NCCL of our own making, whose GPU is this host.

#include "learner/collective/nccl_collective.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/base/steady_now.h"
#include "tests/learner/collective/fake_nccl.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {

namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
// Until a deadline that is awaited: ranks have to meet in it too.
constexpr absl::Duration kCallPatience = absl::Seconds(2);
// A device that host tensors are not on, so that they take the detour.
const torch::Device kElsewhere(torch::kCPU, 0);

class NcclCollectiveTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Collective>> Make(
      const v1::Assignment& assignment, CoordinatorClient* coordinator,
      absl::Duration timeout = kPatience, torch::Device device = torch::kCPU) {
    return MakeNcclCollective(fake_.api(), assignment, coordinator, timeout,
                              device);
  }

  // A call that is queued and lost: its rank 1 never makes it.
  void QueueInVain(Collective* collective) {
    static torch::Tensor tensor = torch::ones({4});
    const absl::Status status = collective->AllReduceSum(tensor);
    ASSERT_TRUE(status.ok()) << status;  // queued, and that was all
  }

  absl::Status FirstErrorOf(Collective* collective) {
    absl::Status status;
    const absl::Time until = SteadyNow() + kPatience;
    while (status.ok() && SteadyNow() < until) {
      absl::SleepFor(absl::Milliseconds(5));
      status = collective->AllReduceSum(torch::ones({1}));
    }
    return status;
  }

  // Two ranks; rank 1 comes to the rendezvous and does nothing more.
  void RunRankZero(
      const std::function<void(Collective*, FakeCoordinatorClient*)>& body,
      absl::Duration timeout = kPatience) {
    std::atomic<bool> over = false;
    std::atomic<int> there = 0;
    RunRanks(2, [&](const v1::Assignment& assignment,
                    FakeCoordinatorClient* coordinator) {
      auto made = Make(assignment, coordinator, timeout);
      ++there;
      if (!made.ok()) over = true;
      ASSERT_TRUE(made.ok()) << made.status();
      // What the body makes the fake do must not meet a rank on its way in.
      while (there < 2 && !over) absl::SleepFor(absl::Milliseconds(1));
      if (assignment.rank() == 0) {
        body(made->get(), coordinator);
        (*made)->Abort();  // or what is queued in vain is waited for
        over = true;
      }
      while (!over) absl::SleepFor(absl::Milliseconds(1));
    });
  }

  FakeNccl fake_;
};

TEST_F(NcclCollectiveTest, HostTensorsComeBackSummed) {
  fake_.call_busy = 3;
  RunRanks(3, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    auto made = Make(assignment, coordinator, kPatience, kElsewhere);
    ASSERT_TRUE(made.ok()) << made.status();
    for (int call = 0; call < 20; ++call) {
      torch::Tensor tensor =
          torch::full({5}, static_cast<float>(assignment.rank() + call));
      const absl::Status status = (*made)->AllReduceSum(tensor);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(tensor[4].item<float>(), 3 * call + 3);
      tensor.fill_(assignment.rank());
      ASSERT_TRUE((*made)->Broadcast(tensor, call % 3).ok());
      ASSERT_EQ(tensor[0].item<float>(), call % 3);
    }
  });
  EXPECT_EQ(fake_.destroys, 3);
  EXPECT_EQ(fake_.aborts, 0);
}

TEST_F(NcclCollectiveTest, GathersBytesOfAnyLengthAtARank) {
  RunRanks(3, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    auto made = Make(assignment, coordinator, kPatience, kElsewhere);
    ASSERT_TRUE(made.ok()) << made.status();
    const auto gathered =
        (*made)->GatherBytes(std::string(assignment.rank(), 'x'), 2);
    ASSERT_TRUE(gathered.ok()) << gathered.status();
    EXPECT_EQ(*gathered, assignment.rank() == 2
                             ? (std::vector<std::string>{"", "x", "xx"})
                             : std::vector<std::string>{});
  });
}

// See CollectiveTest: NCCL's own sum would round at every hop.
TEST_F(NcclCollectiveTest, Bfloat16IsSummedInFloat32AndRoundedOnce) {
  for (const bool elsewhere : {false, true}) {
    for (const int64_t count : {1, 3, 100}) {
      RunRanks(3, [&](const v1::Assignment& assignment,
                      FakeCoordinatorClient* coordinator) {
        const auto made = Make(assignment, coordinator, kPatience,
                               elsewhere ? kElsewhere : torch::kCPU);
        ASSERT_TRUE(made.ok()) << made.status();
        const float mine = assignment.rank() == 0 ? 1 : 1.0f / 256;
        torch::Tensor tensor = torch::full({count}, mine, torch::kBFloat16);
        const absl::Status status = (*made)->AllReduceSum(tensor);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_TRUE(torch::equal(
            tensor, torch::full({count}, 1 + 1.0f / 128, torch::kBFloat16)));
      });
    }
  }
}

TEST_F(NcclCollectiveTest, DeviceTensorsAreOnlyQueued) {
  RunRankZero([&](Collective* collective, FakeCoordinatorClient*) {
    const absl::Time start = SteadyNow();
    QueueInVain(collective);
    QueueInVain(collective);
    EXPECT_LT(SteadyNow() - start, kPatience / 2);
  });
}

TEST_F(NcclCollectiveTest, PastTheDeadlineTheCommunicatorIsAborted) {
  RunRankZero(
      [&](Collective* collective, FakeCoordinatorClient*) {
        QueueInVain(collective);
        const absl::Status status = FirstErrorOf(collective);
        EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
        EXPECT_NE(status.message().find("call 1"), absl::string_view::npos)
            << status;
        while (fake_.aborts == 0) absl::SleepFor(absl::Milliseconds(1));
        EXPECT_EQ(collective->Broadcast(torch::ones({1}), 0), status);
      },
      kCallPatience);
}

TEST_F(NcclCollectiveTest, AFenceAbortsTheCommunicator) {
  RunRankZero([&](Collective* collective, FakeCoordinatorClient* coordinator) {
    QueueInVain(collective);
    ASSERT_TRUE(coordinator->ReportFailure(1, "test").ok());
    const absl::Time start = SteadyNow();
    while (fake_.aborts == 0) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_LT(SteadyNow() - start, absl::Seconds(2));
    EXPECT_TRUE(absl::IsAborted(collective->AllReduceSum(torch::ones({1}))));
  });
}

TEST_F(NcclCollectiveTest, AbortEndsACallThatWaits) {
  std::atomic<bool> over = false;
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    auto made = Make(assignment, coordinator, kPatience, kElsewhere);
    ASSERT_TRUE(made.ok()) << made.status();
    if (assignment.rank() == 1) {
      while (!over) absl::SleepFor(absl::Milliseconds(1));
      return;
    }
    std::thread aborter([&] {
      absl::SleepFor(absl::Milliseconds(30));
      (*made)->Abort();
    });
    const absl::Time start = SteadyNow();
    const absl::Status status = (*made)->AllReduceSum(torch::ones({4}));
    EXPECT_LT(SteadyNow() - start, absl::Seconds(2));
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    aborter.join();
    over = true;
  });
  EXPECT_GE(fake_.aborts, 1);
}

TEST_F(NcclCollectiveTest, WhatNcclReportsIsUnavailable) {
  RunRankZero([&](Collective* collective, FakeCoordinatorClient*) {
    QueueInVain(collective);
    fake_.async_error = FakeNccl::kError;
    const absl::Status status = FirstErrorOf(collective);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_NE(status.message().find("the fake says so"),
              absl::string_view::npos)
        << status;
  });
}

TEST_F(NcclCollectiveTest, ACallThatIsNeverQueuedHasADeadline) {
  RunRankZero(
      [&](Collective* collective, FakeCoordinatorClient*) {
        fake_.call_busy = 1 << 30;
        const absl::Status status = collective->AllReduceSum(torch::ones({4}));
        EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
      },
      kCallPatience);
}

TEST_F(NcclCollectiveTest, RefusesOtherDtypesAndLayoutsAndStaysUsable) {
  RunRankZero([&](Collective* collective, FakeCoordinatorClient*) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        collective->AllReduceSum(torch::ones({2}, torch::kFloat16))));
    EXPECT_TRUE(absl::IsInvalidArgument(
        collective->AllReduceSum(torch::ones({2, 3}).t())));
    EXPECT_TRUE(
        absl::IsInvalidArgument(collective->Broadcast(torch::ones({1}), 2)));
    EXPECT_TRUE(collective->AllReduceSum(torch::ones({0})).ok());
  });
}

TEST_F(NcclCollectiveTest, ThoseThatDoNotComeAreNamed) {
  TempDir folder;
  FakeCoordinatorClient coordinator(folder.path());
  const auto made =
      Make(MakeAssignment(0, 2), &coordinator, absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(made.status())) << made.status();
  EXPECT_NE(made.status().message().find("learner/0/1"),
            absl::string_view::npos);
}

TEST_F(NcclCollectiveTest, AConnectionThatHangsHasADeadlineAndIsAborted) {
  fake_.init_busy = 1 << 30;
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const auto made = Make(assignment, coordinator, kCallPatience);
    EXPECT_TRUE(absl::IsDeadlineExceeded(made.status())) << made.status();
  });
  EXPECT_EQ(fake_.aborts, 2);
}

TEST_F(NcclCollectiveTest, AFenceEndsAConnectionThatHangs) {
  fake_.init_busy = 1 << 30;
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    std::thread fencer([&] {
      absl::SleepFor(absl::Milliseconds(100));
      ASSERT_TRUE(coordinator->ReportFailure(1, "test").ok());
    });
    const absl::Time start = SteadyNow();
    const auto made = Make(assignment, coordinator);
    EXPECT_LT(SteadyNow() - start, absl::Seconds(5));
    EXPECT_TRUE(absl::IsAborted(made.status())) << made.status();
    fencer.join();
  });
}

// Tells when its rank has heard everyone and begins to connect.
class ConnectingCoordinator : public FakeCoordinatorClient {
 public:
  using FakeCoordinatorClient::FakeCoordinatorClient;

  std::stop_token Fence(uint64_t generation) override {
    connecting.count_down();
    return FakeCoordinatorClient::Fence(generation);
  }

  std::latch connecting{1};
};

TEST_F(NcclCollectiveTest, WhoConnectsTellsTheIdAgain) {
  fake_.init_busy = 1 << 30;
  TempDir folder;
  FakeCoordinatorClient peer(folder.path());
  ASSERT_TRUE(peer.Set(1, "collective/nccl/1", "here").ok());
  ConnectingCoordinator coordinator(folder.path());
  std::thread rank([&] {
    const auto made = Make(MakeAssignment(0, 2), &coordinator);
    EXPECT_TRUE(absl::IsAborted(made.status())) << made.status();
  });
  coordinator.connecting.wait();
  // As a coordinator that is started again, before rank 1 has heard it.
  const auto forgotten = peer.Delete(1, "collective/nccl/0");
  EXPECT_TRUE(forgotten.ok() && *forgotten);
  EXPECT_TRUE(peer.Wait(1, {"collective/nccl/0"}, kPatience).ok());
  EXPECT_TRUE(peer.ReportFailure(1, "test").ok());
  rank.join();
}

TEST_F(NcclCollectiveTest, NcclTimeoutReplacesTheConfiguredOne) {
  ::setenv("NCCL_TIMEOUT", "0.05", 1);
  TempDir folder;
  FakeCoordinatorClient coordinator(folder.path());
  const absl::Time start = SteadyNow();
  const auto made = Make(MakeAssignment(0, 2), &coordinator);
  ::unsetenv("NCCL_TIMEOUT");
  EXPECT_LT(SteadyNow() - start, kPatience / 2);
  EXPECT_TRUE(absl::IsDeadlineExceeded(made.status())) << made.status();
}

TEST_F(NcclCollectiveTest, NcclTimeoutMayBeForEver) {
  for (const char* forever : {"1e10", "inf"}) {
    ::setenv("NCCL_TIMEOUT", forever, 1);
    RunRankZero([&](Collective* collective, FakeCoordinatorClient*) {
      QueueInVain(collective);
      EXPECT_TRUE(collective->AllReduceSum(torch::empty({0})).ok());
    });
  }
  ::unsetenv("NCCL_TIMEOUT");
}

TEST_F(NcclCollectiveTest, NcclTimeoutBoundsCallsToo) {
  ::setenv("NCCL_TIMEOUT", "2", 1);
  RunRankZero([&](Collective* collective, FakeCoordinatorClient*) {
    QueueInVain(collective);
    const absl::Status status = FirstErrorOf(collective);
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_NE(status.message().find("after 2s"), absl::string_view::npos)
        << status;
  });
  ::unsetenv("NCCL_TIMEOUT");
}

TEST_F(NcclCollectiveTest, AnNcclTimeoutThatIsNoneIsIgnored) {
  for (const char* nonsense : {"", "soon", "0", "-1", "nan"}) {
    ::setenv("NCCL_TIMEOUT", nonsense, 1);
    TempDir folder;
    FakeCoordinatorClient coordinator(folder.path());
    const absl::Time start = SteadyNow();
    const auto made =
        Make(MakeAssignment(0, 2), &coordinator, absl::Milliseconds(50));
    EXPECT_GE(SteadyNow() - start, absl::Milliseconds(50)) << nonsense;
    EXPECT_TRUE(absl::IsDeadlineExceeded(made.status())) << made.status();
  }
  ::unsetenv("NCCL_TIMEOUT");
}

TEST_F(NcclCollectiveTest, AConnectionThatFailsSaysWhy) {
  fake_.init_error = FakeNccl::kError;
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const auto made = Make(assignment, coordinator);
    EXPECT_TRUE(absl::IsUnavailable(made.status())) << made.status();
    EXPECT_NE(made.status().message().find("the fake says so"),
              absl::string_view::npos)
        << made.status();
  });
  EXPECT_EQ(fake_.aborts, 0);  // there is no communicator
}

TEST_F(NcclCollectiveTest, SurvivorsMeetAgainInTheNextGeneration) {
  std::atomic<int> there = 0;
  RunRanks(3, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    auto made = Make(assignment, coordinator, kPatience, kElsewhere);
    ++there;
    ASSERT_TRUE(made.ok()) << made.status();
    while (there < 3) absl::SleepFor(absl::Milliseconds(1));
    const int rank = assignment.rank();
    if (rank == 2) {  // is lost, and somebody has noticed
      ASSERT_TRUE(coordinator->ReportFailure(1, "test").ok());
      return;
    }
    const absl::Status lost = (*made)->AllReduceSum(torch::ones({4}));
    EXPECT_TRUE(absl::IsAborted(lost)) << lost;
    made->reset();
    made = Make(MakeAssignment(rank, 2, 2), coordinator, kPatience, kElsewhere);
    ASSERT_TRUE(made.ok()) << made.status();
    torch::Tensor tensor = torch::full({4}, rank + 1.0f);
    const absl::Status status = (*made)->AllReduceSum(tensor);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(tensor[3].item<float>(), 3);
  });
  EXPECT_EQ(fake_.ids, 2);  // a communicator is never used again
  EXPECT_EQ(fake_.aborts, 3);
  EXPECT_EQ(fake_.destroys, 2);
}

TEST_F(NcclCollectiveTest, TheGoodbyeIsWaitedFor) {
  fake_.finalize_busy = 3;
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const auto made = Make(assignment, coordinator);
    ASSERT_TRUE(made.ok()) << made.status();
  });
  EXPECT_EQ(fake_.destroys, 2);
  EXPECT_EQ(fake_.aborts, 0);
}

TEST_F(NcclCollectiveTest, ALastCallThatStillRunsIsWaitedFor) {
  // More often than the collective asks by itself before it is destroyed.
  fake_.query_busy = 300;
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const torch::Tensor tensor = torch::ones({4});
    const auto made = Make(assignment, coordinator);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_TRUE((*made)->AllReduceSum(tensor).ok());
  });
  EXPECT_EQ(fake_.destroys, 2);
  EXPECT_EQ(fake_.aborts, 0);
}

TEST_F(NcclCollectiveTest, AGoodbyeThatFailsIsAnAbort) {
  fake_.finalize_error = FakeNccl::kError;
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const auto made = Make(assignment, coordinator);
    ASSERT_TRUE(made.ok()) << made.status();
  });
  EXPECT_EQ(fake_.destroys, 0);
  EXPECT_EQ(fake_.aborts, 2);
}

// Where a process that ends in the middle leaves its folders, until this goes.
class LastHome {
 public:
  LastHome() {
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
    ::setenv("TMPDIR", home_.path().c_str(), 1);
  }
  ~LastHome() {
    if (before_) {
      ::setenv("TMPDIR", before_->c_str(), 1);
    } else {
      ::unsetenv("TMPDIR");
    }
  }

  LastHome(const LastHome&) = delete;
  LastHome& operator=(const LastHome&) = delete;

 private:
  const TempDir home_;
  std::optional<std::string> before_;
};

TEST_F(NcclCollectiveTest, AnAbortOfAConnectionThatHangsEndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const LastHome home;
  EXPECT_EXIT(
      {
        fake_.abort_hangs = true;
        fake_.set_abort_patience_ms(200);
        fake_.init_busy = 1 << 30;
        RunRanks(2, [&](const v1::Assignment& assignment,
                        FakeCoordinatorClient* coordinator) {
          const auto made = Make(assignment, coordinator, kCallPatience);
        });
      },
      ::testing::ExitedWithCode(1), "did not abort");
}

TEST_F(NcclCollectiveTest, AnAbortThatHangsEndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const LastHome home;
  EXPECT_EXIT(
      {
        fake_.abort_hangs = true;
        fake_.set_abort_patience_ms(200);
        RunRankZero([&](Collective* collective, FakeCoordinatorClient*) {
          QueueInVain(collective);
          collective->Abort();
          absl::SleepFor(kPatience);
        });
      },
      ::testing::ExitedWithCode(1), "did not abort");
}

TEST(LoadNcclApiTest, WithoutTheLibraryTheRemedyIsNamed) {
  const auto api = LoadNcclApi();
  if (api.ok()) GTEST_SKIP() << "this build has NCCL " << (*api)->version;
  EXPECT_TRUE(absl::IsFailedPrecondition(api.status())) << api.status();
  const std::string message(api.status().message());
  EXPECT_NE(message.find("libflotilla_nccl.so"), std::string::npos) << message;
  EXPECT_NE(message.find("FLOTILLA_CUDA=ON"), std::string::npos) << message;
  EXPECT_NE(message.find("--backend gloo"), std::string::npos) << message;
}

}  // namespace
}  // namespace flotilla
