// What every collective between processes promises, for each of them.

#include "learner/collective/collective.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "learner/collective/gloo_collective.h"
#include "learner/collective/shm_collective.h"
#include "services/base/steady_now.h"
#include "tests/learner/collective/ranks.h"

namespace flotilla {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
// Generous: other tests may have the cores.
constexpr absl::Duration kMoment = absl::Seconds(2);

std::unique_ptr<Collective> Make(const std::string& kind,
                                 const v1::Assignment& assignment,
                                 CoordinatorClient* coordinator,
                                 absl::Duration timeout = kPatience) {
  auto made = kind == "shm"
                  ? MakeShmCollective(assignment, coordinator, timeout)
                  : MakeGlooCollective(assignment, coordinator, timeout);
  if (!made.ok() || *made == nullptr) {
    ADD_FAILURE() << "rank " << assignment.rank() << ": " << made.status();
    std::abort();
  }
  return *std::move(made);
}

bool Mentions(const absl::Status& status, const std::string& text) {
  return status.ToString().find(text) != std::string::npos;
}

class CollectiveTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Runs `body` on one thread a rank.
  void Run(int world_size,
           const std::function<void(Collective*, FakeCoordinatorClient*)>& body,
           absl::Duration timeout = kPatience) {
    RunRanks(world_size, [&](const v1::Assignment& assignment,
                             FakeCoordinatorClient* coordinator) {
      const auto collective =
          Make(GetParam(), assignment, coordinator, timeout);
      body(collective.get(), coordinator);
    });
  }
};

INSTANTIATE_TEST_SUITE_P(All, CollectiveTest, ::testing::Values("shm", "gloo"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

// Whoever is through has seen every rank: all are connected. A rank that leaves
// before that fails the others' making of it, not a call of theirs.
void ReduceOnce(Collective* collective) {
  const absl::Status status = collective->AllReduceSum(torch::ones({9250}));
  EXPECT_TRUE(status.ok()) << status;
}

// What ends it.
absl::Status ReduceUntilError(Collective* collective, int64_t count = 9250) {
  absl::Status status;
  while (status.ok()) status = collective->AllReduceSum(torch::ones({count}));
  return status;
}

// Not exact in binary, so that the order of additions shows.
torch::Tensor Input(int rank, int64_t count, torch::Dtype dtype) {
  return (torch::arange(count, torch::kFloat64).remainder(1000) * 0.1 *
              (rank + 1) +
          1000 * rank)
      .to(dtype);
}

TEST_P(CollectiveTest, EveryRankGetsTheSameBitsTheSumInRankOrder) {
  for (const int world_size : {2, 3}) {
    for (const int64_t count : {1, 2, 100, 9250, 100'003, 300'000}) {
      for (const auto dtype :
           {torch::kFloat32, torch::kFloat64, torch::kInt64}) {
        torch::Tensor expected = Input(0, count, dtype);
        for (int r = 1; r < world_size; ++r) {
          expected += Input(r, count, dtype);
        }
        Run(world_size, [&](Collective* collective, FakeCoordinatorClient*) {
          torch::Tensor tensor = Input(collective->rank(), count, dtype);
          const absl::Status status = collective->AllReduceSum(tensor);
          ASSERT_TRUE(status.ok()) << status;
          EXPECT_TRUE(torch::equal(tensor, expected))
              << world_size << " ranks, " << count << " elements";
        });
      }
    }
  }
}

TEST_P(CollectiveTest, ShowsEachPartOnceItIsSummed) {
  constexpr int64_t kPart = Collective::kSummedPart;
  for (const int world_size : {1, 2, 3}) {
    for (const int64_t count : {int64_t{7}, kPart, 3 * kPart + 5}) {
      torch::Tensor expected = Input(0, count, torch::kFloat32);
      for (int r = 1; r < world_size; ++r) {
        expected += Input(r, count, torch::kFloat32);
      }
      Run(world_size, [&](Collective* collective, FakeCoordinatorClient*) {
        torch::Tensor tensor =
            Input(collective->rank(), count, torch::kFloat32);
        int64_t shown = 0;
        const absl::Status status = collective->AllReduceSumByParts(
            tensor, [&](int64_t first, int64_t size) {
              EXPECT_EQ(first, shown);
              EXPECT_EQ(size, std::min(kPart, count - first));
              EXPECT_TRUE(torch::equal(tensor.narrow(0, first, size),
                                       expected.narrow(0, first, size)));
              shown += size;
            });
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(shown, count);
      });
    }
  }
}

// 1 + 2^-8 + 2^-8 is 1 + 2^-7 in bfloat16 only where the halves were added in
// something wider: each alone rounds away.
TEST_P(CollectiveTest, Bfloat16IsSummedInFloat32AndRoundedOnce) {
  for (const int64_t count : {1, 100, 300'001}) {
    Run(3, [&](Collective* collective, FakeCoordinatorClient*) {
      const float mine = collective->rank() == 0 ? 1 : 1.0f / 256;
      torch::Tensor tensor = torch::full({count}, mine, torch::kBFloat16);
      const absl::Status status = collective->AllReduceSum(tensor);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(torch::equal(
          tensor, torch::full({count}, 1 + 1.0f / 128, torch::kBFloat16)));

      torch::Tensor wide = torch::zeros({count});
      for (int r = 0; r < 3; ++r) {
        wide += Input(r, count, torch::kBFloat16);
      }
      tensor = Input(collective->rank(), count, torch::kBFloat16);
      ASSERT_TRUE(collective->AllReduceSum(tensor).ok());
      EXPECT_TRUE(torch::equal(tensor, wide.to(torch::kBFloat16)));
    });
  }
}

TEST_P(CollectiveTest, Bfloat16KeepsWhatIsNotFinite) {
  Run(2, [](Collective* collective, FakeCoordinatorClient*) {
    torch::Tensor tensor =
        torch::tensor({1.0f / 0.0f, std::nanf(""), 3e38f}).to(torch::kBFloat16);
    ASSERT_TRUE(collective->AllReduceSum(tensor).ok());
    tensor = tensor.to(torch::kFloat32);
    EXPECT_TRUE(std::isinf(tensor[0].item<float>()));
    EXPECT_TRUE(std::isnan(tensor[1].item<float>()));
    EXPECT_TRUE(std::isinf(tensor[2].item<float>()));
  });
}

TEST_P(CollectiveTest, GathersBytesOfAnyLengthAtARank) {
  for (int root = 0; root < 3; ++root) {
    Run(3, [&](Collective* collective, FakeCoordinatorClient*) {
      const auto text = [](int rank) {
        // Nothing, a zero in the middle, and more than any message of ours.
        return rank == 0   ? std::string()
               : rank == 1 ? std::string("a\0b", 3)
                           : std::string(300'000, 'c');
      };
      const auto gathered =
          collective->GatherBytes(text(collective->rank()), root);
      ASSERT_TRUE(gathered.ok()) << gathered.status();
      if (collective->rank() != root) {
        EXPECT_TRUE(gathered->empty());
        return;
      }
      EXPECT_EQ(*gathered,
                (std::vector<std::string>{text(0), text(1), text(2)}));
    });
  }
}

TEST_P(CollectiveTest, TooMuchToGatherIsRefusedEverywhere) {
  Run(2, [](Collective* collective, FakeCoordinatorClient*) {
    std::string mine(collective->rank() * (Collective::kMostGatheredBytes + 1),
                     'x');
    const auto gathered = collective->GatherBytes(std::move(mine), 0);
    EXPECT_TRUE(absl::IsResourceExhausted(gathered.status()));
    EXPECT_TRUE(Mentions(gathered.status(), "rank 1")) << gathered.status();
    torch::Tensor tensor = torch::ones({1});  // nobody is out of step
    EXPECT_TRUE(collective->AllReduceSum(tensor).ok());
    EXPECT_EQ(tensor.item<float>(), 2);
  });
}

TEST_P(CollectiveTest, AGroupOfOneDoesItAll) {
  Run(1, [](Collective* collective, FakeCoordinatorClient*) {
    EXPECT_TRUE(collective->has_group());
    for (const int64_t count : {1, 300'000}) {
      for (const auto dtype :
           {torch::kFloat32, torch::kInt64, torch::kBFloat16}) {
        torch::Tensor tensor = Input(0, count, dtype);
        ASSERT_TRUE(collective->AllReduceSum(tensor).ok());
        EXPECT_TRUE(torch::equal(tensor, Input(0, count, dtype)));
      }
    }
    torch::Tensor tensor = torch::ones({3});
    EXPECT_TRUE(collective->Broadcast(tensor, 0).ok());
    EXPECT_EQ(collective->GatherBytes("me", 0).value(),
              std::vector<std::string>{"me"});
  });
}

TEST_P(CollectiveTest, SumsSevenMillionFloats) {
  Run(2, [&](Collective* collective, FakeCoordinatorClient*) {
    torch::Tensor tensor =
        Input(collective->rank(), 7'000'000, torch::kFloat32);
    ASSERT_TRUE(collective->AllReduceSum(tensor).ok());
    EXPECT_TRUE(torch::equal(tensor, Input(0, 7'000'000, torch::kFloat32) +
                                         Input(1, 7'000'000, torch::kFloat32)));
  });
}

TEST_P(CollectiveTest, ManyCallsOfAllKindsInARow) {
  for (const int world_size : {2, 3}) {
    const int64_t ranks = world_size, sum_of_ranks = ranks * (ranks - 1) / 2;
    Run(world_size, [=](Collective* collective, FakeCoordinatorClient*) {
      for (int call = 0; call < 100; ++call) {
        torch::Tensor tensor =
            torch::full({call % 7 == 0 ? 140'000 : 10},
                        call + collective->rank(), torch::kFloat32);
        ASSERT_TRUE(collective->AllReduceSum(tensor).ok());
        ASSERT_EQ(tensor.min().item<float>(), ranks * call + sum_of_ranks);
        ASSERT_EQ(tensor.max().item<float>(), ranks * call + sum_of_ranks);
        torch::Tensor value = torch::tensor(collective->rank());
        ASSERT_TRUE(collective->Broadcast(value, call % world_size).ok());
        ASSERT_EQ(value.item<int64_t>(), call % world_size);
      }
    });
  }
}

TEST_P(CollectiveTest, ReducesViewsInPlace) {
  Run(2, [](Collective* collective, FakeCoordinatorClient*) {
    torch::Tensor whole = torch::ones({4, 5});
    ASSERT_TRUE(collective->AllReduceSum(whole[1]).ok());
    EXPECT_EQ(whole.sum().item<float>(), 25);
    EXPECT_EQ(whole[1].sum().item<float>(), 10);
  });
}

TEST_P(CollectiveTest, ReducesTensorsThatRequireGradients) {
  Run(2, [](Collective* collective, FakeCoordinatorClient*) {
    torch::Tensor leaf = torch::ones({3}, torch::requires_grad());
    ASSERT_TRUE(collective->AllReduceSum(leaf).ok());
    EXPECT_EQ(leaf.sum().item<float>(), 6);
  });
}

TEST_P(CollectiveTest, BroadcastsAnyDtypeFromAnyRoot) {
  Run(3, [](Collective* collective, FakeCoordinatorClient*) {
    const int rank = collective->rank();
    for (int root = 0; root < 3; ++root) {
      for (const auto dtype : {torch::kUInt8, torch::kBool, torch::kFloat32,
                               torch::kInt64, torch::kBFloat16}) {
        torch::Tensor tensor = torch::full({100, 3}, rank == root).to(dtype);
        const absl::Status status = collective->Broadcast(tensor, root);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_TRUE(torch::equal(tensor, torch::ones({100, 3}).to(dtype)));
      }
      torch::Tensor large = torch::full({2'000'000}, rank);
      ASSERT_TRUE(collective->Broadcast(large, root).ok());
      EXPECT_TRUE(torch::equal(large, torch::full({2'000'000}, root)));
    }
  });
}

TEST_P(CollectiveTest, EmptyTensorsAreFine) {
  Run(2, [](Collective* collective, FakeCoordinatorClient*) {
    EXPECT_TRUE(collective->AllReduceSum(torch::ones({0})).ok());
    EXPECT_TRUE(collective->Broadcast(torch::ones({0}), 1).ok());
    torch::Tensor tensor = torch::ones({1});
    EXPECT_TRUE(collective->AllReduceSum(tensor).ok());
    EXPECT_EQ(tensor.item<float>(), 2);
  });
}

TEST_P(CollectiveTest, WaitsForALateRank) {
  Run(2, [](Collective* collective, FakeCoordinatorClient*) {
    for (int call = 0; call < 4; ++call) {
      if (call % 2 == collective->rank()) {
        absl::SleepFor(absl::Milliseconds(50));
      }
      torch::Tensor tensor = torch::ones({9250});
      ASSERT_TRUE(collective->AllReduceSum(tensor).ok());
      EXPECT_EQ(tensor[9249].item<float>(), 2);
    }
  });
}

TEST_P(CollectiveTest, RefusesWhatItCannotSumAndStaysUsable) {
  Run(2, [](Collective* collective, FakeCoordinatorClient*) {
    const absl::Status dtype =
        collective->AllReduceSum(torch::ones({2}, torch::kFloat16));
    EXPECT_TRUE(absl::IsInvalidArgument(dtype));
    EXPECT_TRUE(Mentions(dtype, "Half")) << dtype;
    EXPECT_TRUE(absl::IsInvalidArgument(
        collective->AllReduceSum(torch::ones({2, 3}).t())));
    EXPECT_TRUE(absl::IsInvalidArgument(collective->AllReduceSumByParts(
        torch::ones({2, 3}).t(), [](int64_t, int64_t) { FAIL(); })));
    EXPECT_TRUE(absl::IsInvalidArgument(
        collective->Broadcast(torch::ones({2, 3}).t(), 0)));
    EXPECT_TRUE(
        absl::IsInvalidArgument(collective->Broadcast(torch::ones({2}), 2)));
    torch::Tensor tensor = torch::ones({2});
    EXPECT_TRUE(collective->AllReduceSum(tensor).ok());
  });
}

TEST_P(CollectiveTest, ADeadlineNamesTheRanksThatDidNotCome) {
  std::atomic<bool> over = false;
  Run(
      3,
      [&](Collective* collective, FakeCoordinatorClient*) {
        if (collective->rank() != 0) {
          while (!over) absl::SleepFor(absl::Milliseconds(5));
          return;
        }
        const absl::Status status =
            collective->AllReduceSum(torch::ones({9250}));
        EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
        EXPECT_TRUE(Mentions(status, "rank 1")) << status;
        EXPECT_TRUE(Mentions(status, "rank 2")) << status;
        EXPECT_TRUE(Mentions(status, "9250")) << status;
        // Dead from now on.
        EXPECT_EQ(collective->AllReduceSum(torch::ones({1})), status);
        EXPECT_EQ(collective->Broadcast(torch::ones({1}), 0), status);
        over = true;
      },
      absl::Seconds(2));  // also to meet in
}

TEST_P(CollectiveTest, APeerThatIsGoneIsUnavailable) {
  Run(2, [](Collective* collective, FakeCoordinatorClient*) {
    ReduceOnce(collective);
    if (collective->rank() == 1) return;  // destroys it
    const absl::Time start = SteadyNow();
    const absl::Status status = collective->AllReduceSum(torch::ones({9250}));
    EXPECT_LT(SteadyNow() - start, kMoment);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_TRUE(Mentions(status, "rank 1")) << status;
  });
}

TEST_P(CollectiveTest, AbortEndsABlockedCallFromAnyThread) {
  for (const int64_t count : {1, 9250, 4'000'000}) {
    std::atomic<bool> over = false;
    Run(2, [&](Collective* collective, FakeCoordinatorClient*) {
      if (collective->rank() == 1) {
        while (!over) absl::SleepFor(absl::Milliseconds(5));
        return;
      }
      std::thread aborter([&] {
        absl::SleepFor(absl::Milliseconds(50));
        collective->Abort();
      });
      torch::Tensor tensor = torch::ones({count});
      const absl::Time start = SteadyNow();
      const absl::Status status = collective->AllReduceSum(tensor);
      EXPECT_LT(SteadyNow() - start, kMoment);
      EXPECT_TRUE(absl::IsAborted(status)) << status;
      EXPECT_TRUE(absl::IsAborted(collective->AllReduceSum(torch::ones({1}))));
      aborter.join();
      over = true;
    });
  }
}

TEST_P(CollectiveTest, AfterAbortCallsFailAtOnce) {
  Run(2, [](Collective* collective, FakeCoordinatorClient*) {
    ReduceOnce(collective);
    collective->Abort();
    EXPECT_TRUE(absl::IsAborted(collective->AllReduceSum(torch::ones({1}))));
    EXPECT_TRUE(absl::IsAborted(collective->Broadcast(torch::ones({1}), 0)));
    collective->Abort();
  });
}

TEST_P(CollectiveTest, AFenceAbortsEveryRank) {
  Run(3, [](Collective* collective, FakeCoordinatorClient* coordinator) {
    if (collective->rank() == 2) {
      ReduceOnce(collective);
      ASSERT_TRUE(coordinator->ReportFailure(1, "test").ok());
      return;
    }
    const absl::Time start = SteadyNow();
    const absl::Status status = ReduceUntilError(collective);
    EXPECT_LT(SteadyNow() - start, kMoment);
    // Rank 2 may be seen to leave before its fence is.
    EXPECT_TRUE(absl::IsAborted(status) || absl::IsUnavailable(status))
        << status;
    absl::Notification fenced;
    const std::stop_callback tell(coordinator->Fence(1),
                                  [&] { fenced.Notify(); });
    fenced.WaitForNotification();
  });
}

TEST_P(CollectiveTest, AFenceAbortsACallOnAPeerThatNeverComes) {
  std::atomic<bool> over = false;
  Run(2, [&](Collective* collective, FakeCoordinatorClient* coordinator) {
    if (collective->rank() == 1) {
      while (!over) absl::SleepFor(absl::Milliseconds(5));
      return;
    }
    std::thread fencer([&] {
      absl::SleepFor(absl::Milliseconds(50));
      ASSERT_TRUE(coordinator->ReportFailure(1, "test").ok());
    });
    const absl::Time start = SteadyNow();
    const absl::Status status = collective->AllReduceSum(torch::ones({9250}));
    EXPECT_LT(SteadyNow() - start, kMoment);
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_TRUE(Mentions(status, "generation 1")) << status;
    fencer.join();
    over = true;
  });
}

TEST_P(CollectiveTest, ThoseThatDoNotComeToTheRendezvousAreNamed) {
  TempDir folder;
  FakeCoordinatorClient coordinator(folder.path());
  const v1::Assignment assignment = MakeAssignment(0, 3);
  const auto made =
      GetParam() == "shm"
          ? MakeShmCollective(assignment, &coordinator, absl::Milliseconds(100))
          : MakeGlooCollective(assignment, &coordinator,
                               absl::Milliseconds(100));
  EXPECT_TRUE(absl::IsDeadlineExceeded(made.status())) << made.status();
  EXPECT_TRUE(Mentions(made.status(), "learner/0/1")) << made.status();
  EXPECT_TRUE(Mentions(made.status(), "learner/0/2")) << made.status();
  EXPECT_FALSE(Mentions(made.status(), "learner/0/0")) << made.status();
}

TEST_P(CollectiveTest, AFenceEndsTheRendezvous) {
  TempDir folder;
  FakeCoordinatorClient coordinator(folder.path());
  std::thread fencer([&] {
    absl::SleepFor(absl::Milliseconds(30));
    ASSERT_TRUE(coordinator.ReportFailure(1, "test").ok());
  });
  const v1::Assignment assignment = MakeAssignment(0, 2);
  const auto made =
      GetParam() == "shm"
          ? MakeShmCollective(assignment, &coordinator, kPatience)
          : MakeGlooCollective(assignment, &coordinator, kPatience);
  EXPECT_TRUE(absl::IsAborted(made.status())) << made.status();
  fencer.join();
}

TEST_P(CollectiveTest, TheNextGenerationMeetsAgain) {
  TempDir folder;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      FakeCoordinatorClient coordinator(folder.path());
      for (uint64_t generation = 1; generation <= 5; ++generation) {
        const auto collective =
            Make(GetParam(), MakeAssignment(rank, 2, generation), &coordinator);
        torch::Tensor tensor = torch::ones({9250});
        const absl::Status status = collective->AllReduceSum(tensor);
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(tensor[0].item<float>(), 2);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// Rank 1 in a process of its own, which all-reduces until an error: this
// program again, at the test below.
class PeerProcessTest : public CollectiveTest {
 protected:
  void Start(int64_t count, absl::Duration timeout) {
    count_ = count;
    peer_ = ::fork();
    ASSERT_GE(peer_, 0);
    if (peer_ == 0) {
      ::setenv("RANK_KIND", GetParam().c_str(), 1);
      ::setenv("RANK_FOLDER", folder_.path().c_str(), 1);
      ::setenv("RANK_COUNT", absl::StrCat(count).c_str(), 1);
      ::execl("/proc/self/exe", "rank", "--gtest_also_run_disabled_tests",
              "--gtest_filter=RankTest.DISABLED_AllReduceUntilError", nullptr);
      ::_exit(1);
    }
    coordinator_ = std::make_unique<FakeCoordinatorClient>(folder_.path());
    // `timeout` is for the calls, not for a program to start.
    ASSERT_TRUE(coordinator_
                    ->Wait(1,
                           {GetParam() == "shm" ? "collective/shared-memory/1"
                                                : "collective/gloo/1"},
                           kPatience)
                    .ok());
    collective_ =
        Make(GetParam(), MakeAssignment(0, 2), coordinator_.get(), timeout);
    for (int i = 0; i < 20; ++i) {
      const absl::Status status = Reduce();
      ASSERT_TRUE(status.ok()) << status;
    }
  }

  void Stop() {
    ASSERT_GT(peer_, 0);
    ASSERT_EQ(::kill(peer_, SIGSTOP), 0);
    ASSERT_EQ(::waitpid(peer_, nullptr, WUNTRACED), peer_);
  }

  void TearDown() override {
    if (peer_ <= 0) return;  // kill(-1) would be everybody
    ::kill(peer_, SIGKILL);
    ::waitpid(peer_, nullptr, 0);
    peer_ = -1;
  }

  absl::Status Reduce() {
    return collective_->AllReduceSum(torch::ones({count_}));
  }

  TempDir folder_;
  int64_t count_ = 0;
  pid_t peer_ = -1;
  std::unique_ptr<FakeCoordinatorClient> coordinator_;
  std::unique_ptr<Collective> collective_;
};

INSTANTIATE_TEST_SUITE_P(All, PeerProcessTest, ::testing::Values("shm", "gloo"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

TEST(RankTest, DISABLED_AllReduceUntilError) {
  FakeCoordinatorClient coordinator(std::getenv("RANK_FOLDER"));
  int64_t count = 0;
  ASSERT_TRUE(absl::SimpleAtoi(std::getenv("RANK_COUNT"), &count));
  const auto collective =
      Make(std::getenv("RANK_KIND"), MakeAssignment(1, 2), &coordinator);
  EXPECT_FALSE(ReduceUntilError(collective.get(), count).ok());
}

TEST_P(PeerProcessTest, AKilledPeerIsUnavailableWithinMoments) {
  ASSERT_NO_FATAL_FAILURE(Start(9250, kPatience));
  ::kill(peer_, SIGKILL);
  const absl::Time start = SteadyNow();
  const absl::Status status = ReduceUntilError(collective_.get(), count_);
  EXPECT_LT(SteadyNow() - start, kMoment);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(Mentions(status, "rank 1")) << status;
}

TEST_P(PeerProcessTest, APeerKilledInTheMiddleOfMegabytesIsUnavailable) {
  ASSERT_NO_FATAL_FAILURE(Start(2'000'000, kPatience));
  std::thread killer([&] {
    absl::SleepFor(absl::Milliseconds(37));  // somewhere inside a call
    ::kill(peer_, SIGKILL);
  });
  const absl::Time start = SteadyNow();
  const absl::Status status = ReduceUntilError(collective_.get(), count_);
  EXPECT_LT(SteadyNow() - start, 2 * kMoment);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  killer.join();
}

TEST_P(PeerProcessTest, AStoppedPeerIsSeenAtTheDeadline) {
  ASSERT_NO_FATAL_FAILURE(Start(9250, absl::Seconds(1)));
  ASSERT_NO_FATAL_FAILURE(Stop());
  const absl::Time start = SteadyNow();
  const absl::Status status = ReduceUntilError(collective_.get(), count_);
  EXPECT_LT(SteadyNow() - start, absl::Seconds(1) + kMoment);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(Mentions(status, "rank 1")) << status;
}

TEST_P(PeerProcessTest, AFenceDoesNotWaitForAStoppedPeer) {
  for (const int64_t count : {9250, 2'000'000}) {
    ASSERT_NO_FATAL_FAILURE(Start(count, kPatience));
    ASSERT_NO_FATAL_FAILURE(Stop());
    std::thread fencer([&] {
      absl::SleepFor(absl::Milliseconds(50));
      ASSERT_TRUE(coordinator_->ReportFailure(1, "test").ok());
    });
    const absl::Time start = SteadyNow();
    const absl::Status status = ReduceUntilError(collective_.get(), count_);
    EXPECT_LT(SteadyNow() - start, kMoment);
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    // Nor does its destructor, nor the end of the process.
    collective_.reset();
    EXPECT_LT(SteadyNow() - start, kMoment);
    fencer.join();
    TearDown();
    coordinator_.reset();
    std::filesystem::remove(folder_ / "fence.1");
    for (const auto& key :
         std::filesystem::directory_iterator(folder_.path())) {
      std::filesystem::remove(key);
    }
  }
}

TEST_P(PeerProcessTest, AnAbandonedTensorIsNotWrittenToLater) {
  ASSERT_NO_FATAL_FAILURE(Start(2'000'000, kPatience));
  ASSERT_NO_FATAL_FAILURE(Stop());
  torch::Tensor tensor = torch::ones({2'000'000});
  std::thread aborter([&] {
    absl::SleepFor(absl::Milliseconds(100));
    collective_->Abort();
  });
  absl::Status status;
  while (status.ok()) {
    tensor.fill_(1);
    status = collective_->AllReduceSum(tensor);
  }
  aborter.join();
  const torch::Tensor before = tensor.clone();
  // The peer goes on and sends what it still has.
  ASSERT_EQ(::kill(peer_, SIGCONT), 0);
  int ended = 0;
  ASSERT_EQ(::waitpid(peer_, &ended, 0), peer_);
  peer_ = -1;
  EXPECT_TRUE(torch::equal(tensor, before));
}

TEST_P(PeerProcessTest, APeerThatGoesOnAfterTheFenceEndsCleanly) {
  ASSERT_NO_FATAL_FAILURE(Start(2'000'000, kPatience));
  ASSERT_NO_FATAL_FAILURE(Stop());
  ASSERT_TRUE(coordinator_->ReportFailure(1, "test").ok());
  const absl::Status status = ReduceUntilError(collective_.get(), count_);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  // It sees the fence, or finds the connection closed in the middle of a write.
  ASSERT_EQ(::kill(peer_, SIGCONT), 0);
  int ended = -1;
  ASSERT_EQ(::waitpid(peer_, &ended, 0), peer_);
  peer_ = -1;
  EXPECT_EQ(ended, 0);
}

// A write to a peer that is gone must not end this process. Whether one happens
// is a matter of microseconds; that nothing comes of it is not.
TEST(GlooCollectiveTest, BrokenPipesAreNoLongerDeadly) {
  ::signal(SIGPIPE, SIG_DFL);
  RunRanks(2, [](const v1::Assignment& assignment,
                 FakeCoordinatorClient* coordinator) {
    ReduceOnce(Make("gloo", assignment, coordinator).get());
  });
  struct sigaction current {};
  ASSERT_EQ(::sigaction(SIGPIPE, nullptr, &current), 0);
  EXPECT_EQ(current.sa_handler, SIG_IGN);
}

// Tells when its rank, in the making of its collective, has connected to all.
class ConnectingCoordinator : public FakeCoordinatorClient {
 public:
  ConnectingCoordinator(const std::string& folder,
                        std::function<void()> connected)
      : FakeCoordinatorClient(folder), connected_(std::move(connected)) {}

  std::stop_token Fence(uint64_t generation) override {
    connected_();
    return FakeCoordinatorClient::Fence(generation);
  }

 private:
  const std::function<void()> connected_;
};

// Ends of TCP connections that this process has.
int Connections() {
  int connections = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    int fd = -1;
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    if (absl::SimpleAtoi(entry.path().filename().string(), &fd) &&
        ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        peer.ss_family != AF_UNIX) {
      ++connections;
    }
  }
  return connections;
}

TEST(GlooCollectiveTest, APeerThatIsLostWhileTheGroupFormsIsUnavailable) {
  TempDir folder;
  std::latch all_connected(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      ConnectingCoordinator coordinator(folder.path(), [&, rank] {
        all_connected.arrive_and_wait();
        if (rank == 2) return;
        // Until both have seen rank 2 leave: what is left is between them.
        const absl::Time until = SteadyNow() + kPatience;
        while (Connections() > 2 && SteadyNow() < until) {
          absl::SleepFor(absl::Milliseconds(1));
        }
      });
      const auto made =
          MakeGlooCollective(MakeAssignment(rank, 3), &coordinator, kPatience);
      if (rank == 2) {
        EXPECT_TRUE(made.ok()) << made.status();
      } else {
        EXPECT_TRUE(absl::IsUnavailable(made.status())) << made.status();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace flotilla
