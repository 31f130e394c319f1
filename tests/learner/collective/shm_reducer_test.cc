#include "learner/collective/shm_reducer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "learner/collective/shm_segment.h"
#include "services/base/steady_now.h"

namespace flotilla {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
// Until a deadline that is awaited: a peer that is well, and may have to wait
// for a core, has to come in time.
constexpr absl::Duration kCallPatience = absl::Seconds(2);

// All ranks' processes are `pid`, by default this one.
std::unique_ptr<ShmReducer> MakeReducer(std::byte* segment, int rank, int world,
                                        absl::Duration timeout = kPatience,
                                        pid_t pid = ::getpid()) {
  std::vector<PeerProcess> peer;
  for (int r = 0; r < world; ++r) {
    auto process = PeerProcess::Open(r == rank ? ::getpid() : pid);
    if (!process.ok()) std::abort();
    peer.push_back(*std::move(process));
  }
  return std::make_unique<ShmReducer>(segment, rank, world, std::move(peer),
                                      timeout);
}

ShmSegment MakeSegment(int world) {
  auto segment = ShmSegment::Create(ShmReducer::SegmentBytes(world));
  if (!segment.ok()) std::abort();
  return *std::move(segment);
}

// Runs `body` on one thread a rank; all of them map the same segment once, so
// that a race detector sees every access.
void RunRanks(int world, const std::function<void(int rank, ShmReducer*)>& body,
              absl::Duration timeout = kPatience) {
  const ShmSegment segment = MakeSegment(world);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto reducer = MakeReducer(segment.data(), rank, world, timeout);
      body(rank, reducer.get());
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// What rank r contributes: not exact in binary, so that order shows.
template <typename T>
std::vector<T> Input(int rank, size_t count) {
  std::vector<T> input(count);
  for (size_t i = 0; i < count; ++i) {
    input[i] = static_cast<T>(0.1 * (rank + 1) * (i % 1000) + 1000 * rank);
  }
  return input;
}

template <typename T>
std::vector<T> SumInRankOrder(int world, size_t count) {
  std::vector<T> sum = Input<T>(0, count);
  for (int rank = 1; rank < world; ++rank) {
    const std::vector<T> input = Input<T>(rank, count);
    for (size_t i = 0; i < count; ++i) sum[i] += input[i];
  }
  return sum;
}

template <typename T>
void ExpectSums(int world, size_t count, Element element) {
  const std::vector<T> expected = SumInRankOrder<T>(world, count);
  RunRanks(world, [&](int rank, ShmReducer* reducer) {
    std::vector<T> data = Input<T>(rank, count);
    const absl::Status status =
        reducer->AllReduceSum(data.data(), count, element);
    ASSERT_TRUE(status.ok()) << status;
    // Bit for bit.
    EXPECT_EQ(std::memcmp(data.data(), expected.data(), count * sizeof(T)), 0)
        << "rank " << rank << " of " << world << ", " << count << " elements";
  });
}

TEST(ShmReducerTest, EveryRankGetsTheSumInRankOrderForEverySize) {
  for (const int world : {2, 3, 5}) {
    // Around a cache line, a block, the border between the two ways, a chunk.
    for (const size_t count : {1, 2, 15, 16, 17, 1023, 1025, 8191, 8193, 9250,
                               32768, 32769, 300001}) {
      ExpectSums<float>(world, count, Element::kFloat32);
    }
  }
}

TEST(ShmReducerTest, SumsEveryElementType) {
  ExpectSums<double>(3, 40001, Element::kFloat64);
  ExpectSums<int64_t>(3, 40001, Element::kInt64);
  ExpectSums<float>(3, 40001, Element::kFloat32);
}

TEST(ShmReducerTest, SumsMillionsOfFloats) {
  ExpectSums<float>(2, 7'000'000, Element::kFloat32);
}

TEST(ShmReducerTest, NothingToSumIsNoError) {
  RunRanks(2, [](int, ShmReducer* reducer) {
    EXPECT_TRUE(reducer->AllReduceSum(nullptr, 0, Element::kFloat32).ok());
  });
}

TEST(ShmReducerTest, ManyCallsInARowReuseTheSlotsSafely) {
  constexpr int kWorld = 3;
  RunRanks(kWorld, [](int rank, ShmReducer* reducer) {
    for (int call = 0; call < 500; ++call) {
      // Sizes that take turns between one chunk, two chunks and both ways.
      const size_t count = call % 3 == 0 ? 7 : call % 3 == 1 ? 20000 : 40000;
      std::vector<float> data(count, static_cast<float>(call + rank));
      ASSERT_TRUE(
          reducer->AllReduceSum(data.data(), count, Element::kFloat32).ok());
      for (const float value : data) {
        ASSERT_EQ(value, 3.f * call + 0 + 1 + 2) << "call " << call;
      }
    }
  });
}

TEST(ShmReducerTest, WaitsForALateRank) {
  RunRanks(2, [](int rank, ShmReducer* reducer) {
    for (int call = 0; call < 5; ++call) {
      // Lateness beyond spinning and yielding; each rank is late in turn.
      if (call % 2 == rank) absl::SleepFor(absl::Milliseconds(30));
      float value = 1;
      ASSERT_TRUE(reducer->AllReduceSum(&value, 1, Element::kFloat32).ok());
      EXPECT_EQ(value, 2);
    }
  });
}

TEST(ShmReducerTest, BroadcastsFromAnyRoot) {
  for (const size_t bytes : {1, 1000, 131072, 1000001}) {
    RunRanks(3, [&](int rank, ShmReducer* reducer) {
      for (int root = 0; root < 3; ++root) {
        std::string data(bytes, static_cast<char>('a' + rank));
        ASSERT_TRUE(reducer->Broadcast(data.data(), bytes, root).ok());
        EXPECT_EQ(data, std::string(bytes, static_cast<char>('a' + root)));
      }
    });
  }
}

TEST(ShmReducerTest, DifferentCallsAreAnErrorThatNamesBoth) {
  std::atomic<int> named = 0;
  RunRanks(2, [&](int rank, ShmReducer* reducer) {
    std::vector<float> data(10);
    const absl::Status status =
        reducer->AllReduceSum(data.data(), 5 + rank, Element::kFloat32);
    // The other rank may leave first.
    EXPECT_TRUE(absl::IsInternal(status) || absl::IsUnavailable(status))
        << status;
    if (absl::IsInternal(status)) {
      ++named;
      EXPECT_NE(status.message().find("5 float32"), absl::string_view::npos);
      EXPECT_NE(status.message().find("6 float32"), absl::string_view::npos);
    }
  });
  EXPECT_GE(named, 1);
}

TEST(ShmReducerTest, ADeadlineNamesTheRanksThatAreMissing) {
  const ShmSegment segment = MakeSegment(3);
  const auto reducer =
      MakeReducer(segment.data(), 1, 3, absl::Milliseconds(100));
  float value = 1;
  const absl::Status status =
      reducer->AllReduceSum(&value, 1, Element::kFloat32);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_NE(status.message().find("rank 0"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("rank 2"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("100ms"), absl::string_view::npos) << status;
}

TEST(ShmReducerTest, AfterAnErrorEveryCallReturnsIt) {
  const ShmSegment segment = MakeSegment(2);
  const auto reducer =
      MakeReducer(segment.data(), 0, 2, absl::Milliseconds(10));
  float value = 1;
  const absl::Status first =
      reducer->AllReduceSum(&value, 1, Element::kFloat32);
  ASSERT_TRUE(absl::IsDeadlineExceeded(first));
  EXPECT_EQ(reducer->AllReduceSum(&value, 1, Element::kFloat32), first);
  EXPECT_EQ(reducer->Broadcast(&value, 4, 0), first);
}

TEST(ShmReducerTest, AbortEndsABlockedCall) {
  const ShmSegment segment = MakeSegment(2);
  const auto reducer = MakeReducer(segment.data(), 0, 2);
  std::thread aborter([&] {
    // Long enough for the other thread to sleep on the futex; if it does not
    // yet, Abort must work all the same.
    absl::SleepFor(absl::Milliseconds(50));
    reducer->Abort(absl::AbortedError("generation 3 is fenced"));
  });
  float value = 1;
  const absl::Time start = SteadyNow();
  const absl::Status status =
      reducer->AllReduceSum(&value, 1, Element::kFloat32);
  EXPECT_LT(SteadyNow() - start, absl::Seconds(2));
  EXPECT_EQ(status, absl::AbortedError("generation 3 is fenced"));
  aborter.join();
}

TEST(ShmReducerTest, AnAbortedRankIsLostToItsPeers) {
  const ShmSegment segment = MakeSegment(2);
  const auto waiting = MakeReducer(segment.data(), 0, 2);
  const auto aborted = MakeReducer(segment.data(), 1, 2);
  std::thread aborter([&] { aborted->Abort(absl::AbortedError("failed")); });
  float value = 1;
  const absl::Status status =
      waiting->AllReduceSum(&value, 1, Element::kFloat32);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("rank 1"), absl::string_view::npos) << status;
  aborter.join();
}

TEST(ShmReducerTest, ARankWhoseGenerationEndedIsLostOnceItIsGone) {
  const ShmSegment segment = MakeSegment(2);
  auto ended = MakeReducer(segment.data(), 1, 2);
  ended->End(absl::AbortedError("fenced"));
  float value = 1;
  EXPECT_EQ(ended->AllReduceSum(&value, 1, Element::kFloat32),
            absl::AbortedError("fenced"));
  const auto reduce = [&] {
    return MakeReducer(segment.data(), 0, 2, absl::Milliseconds(100))
        ->AllReduceSum(&value, 1, Element::kFloat32);
  };
  // Its peers wait, as for one that is late, until they are fenced themselves.
  EXPECT_TRUE(absl::IsDeadlineExceeded(reduce()));
  ended.reset();
  EXPECT_TRUE(absl::IsUnavailable(reduce()));
}

TEST(ShmReducerTest, ARankThatFinishedDoesNotSpoilTheLastCall) {
  for (int i = 0; i < 200; ++i) {
    RunRanks(2, [](int, ShmReducer* reducer) {
      std::vector<float> data(40000, 1.f);
      const absl::Status status =
          reducer->AllReduceSum(data.data(), data.size(), Element::kFloat32);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(data[39999], 2.f);
    });
  }
}

// Rank 1 in a process of its own, which all-reduces until it is killed.
class PeerTest : public ::testing::Test {
 protected:
  void Start(size_t count, absl::Duration timeout) {
    count_ = count;
    reducer_.reset();
    segment_ = std::make_unique<ShmSegment>(MakeSegment(2));
    peer_ = ::fork();
    ASSERT_GE(peer_, 0);
    if (peer_ == 0) {
      const auto reducer =
          MakeReducer(segment_->data(), 1, 2, kPatience, ::getppid());
      std::vector<float> data(count);
      while (
          reducer->AllReduceSum(data.data(), count, Element::kFloat32).ok()) {
      }
      ::_exit(0);
    }
    reducer_ = MakeReducer(segment_->data(), 0, 2, timeout, peer_);
    data_.resize(count);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(Reduce().ok());
  }

  void TearDown() override {
    if (peer_ <= 0) return;  // kill(-1) would be everybody
    ::kill(peer_, SIGKILL);
    ::waitpid(peer_, nullptr, 0);
    peer_ = -1;
  }

  absl::Status Reduce() {
    return reducer_->AllReduceSum(data_.data(), count_, Element::kFloat32);
  }

  // Until the first error; the peer's fate is already sealed.
  absl::Status ReduceUntilError() {
    absl::Status status;
    while (status.ok()) status = Reduce();
    return status;
  }

  size_t count_;
  std::unique_ptr<ShmSegment> segment_;
  pid_t peer_ = -1;
  std::unique_ptr<ShmReducer> reducer_;
  std::vector<float> data_;
};

TEST_F(PeerTest, AKilledPeerIsLostWithinMoments) {
  for (const size_t count : {1, 9250, 2'000'000}) {
    ASSERT_NO_FATAL_FAILURE(Start(count, kPatience));
    ::kill(peer_, SIGKILL);
    const absl::Time start = SteadyNow();
    const absl::Status status = ReduceUntilError();
    EXPECT_LT(SteadyNow() - start, absl::Seconds(2));
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_NE(status.message().find("rank 1"), absl::string_view::npos);
    EXPECT_NE(status.message().find("has ended"), absl::string_view::npos);
    TearDown();
  }
}

TEST_F(PeerTest, AStoppedPeerIsNamedAtTheDeadline) {
  ASSERT_NO_FATAL_FAILURE(Start(9250, kCallPatience));
  ASSERT_EQ(::kill(peer_, SIGSTOP), 0);
  ::waitpid(peer_, nullptr, WUNTRACED);
  const absl::Status status = ReduceUntilError();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_NE(status.message().find("rank 1"), absl::string_view::npos);
  EXPECT_NE(status.message().find("is stopped"), absl::string_view::npos)
      << status;
}

TEST_F(PeerTest, AbortDoesNotWaitForAStoppedPeer) {
  ASSERT_NO_FATAL_FAILURE(Start(9250, kPatience));
  ASSERT_EQ(::kill(peer_, SIGSTOP), 0);
  ::waitpid(peer_, nullptr, WUNTRACED);
  std::thread aborter([&] {
    absl::SleepFor(absl::Milliseconds(50));
    reducer_->Abort(absl::AbortedError("fenced"));
  });
  const absl::Time start = SteadyNow();
  const absl::Status status = ReduceUntilError();
  EXPECT_LT(SteadyNow() - start, absl::Seconds(2));
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  aborter.join();
}

TEST_F(PeerTest, APeerThatGoesOnAfterwardsSeesThatThisRankLeft) {
  ASSERT_NO_FATAL_FAILURE(Start(9250, kCallPatience));
  ASSERT_EQ(::kill(peer_, SIGSTOP), 0);
  ::waitpid(peer_, nullptr, WUNTRACED);
  ASSERT_TRUE(absl::IsDeadlineExceeded(ReduceUntilError()));
  ASSERT_EQ(::kill(peer_, SIGCONT), 0);
  // Its loop ends with an error, then it exits.
  int status = -1;
  ASSERT_EQ(::waitpid(peer_, &status, 0), peer_);
  peer_ = -1;
  EXPECT_TRUE(WIFEXITED(status)) << status;
}

TEST(ShmSegmentTest, AnotherProcessMapsTheSameMemory) {
  auto segment = ShmSegment::Create(4096);
  ASSERT_TRUE(segment.ok()) << segment.status();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto same = ShmSegment::Open(segment->locator());
    if (!same.ok()) ::_exit(1);
    // Not by way of fork: this is another mapping.
    if (same->data() == segment->data()) ::_exit(2);
    same->data()[100] = std::byte{42};
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(segment->data()[100], std::byte{42});
}

TEST(ShmSegmentTest, RefusesWhatIsNotTheSegmentMeant) {
  std::string locator;
  {
    auto segment = ShmSegment::Create(4096);
    ASSERT_TRUE(segment.ok());
    locator = segment->locator();
  }
  auto other = ShmSegment::Create(4096);  // takes the same descriptor
  EXPECT_TRUE(absl::IsUnavailable(ShmSegment::Open(locator).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ShmSegment::Open("1:2").status()));
  EXPECT_TRUE(
      absl::IsUnavailable(ShmSegment::Open("999999999:3:1:4096").status()));
}

TEST(PeerProcessTest, SeesAProcessStopAndEnd) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (;;) ::pause();
  }
  auto peer = PeerProcess::Open(child);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_FALSE(peer->Ended());
  EXPECT_NE(peer->Describe().find("runs"), std::string::npos);
  ::kill(child, SIGSTOP);
  ::waitpid(child, nullptr, WUNTRACED);
  EXPECT_FALSE(peer->Ended());
  EXPECT_NE(peer->Describe().find("is stopped"), std::string::npos);
  ::kill(child, SIGKILL);
  siginfo_t info;
  ::waitid(P_PID, child, &info, WEXITED | WNOWAIT);
  EXPECT_TRUE(peer->Ended());  // not reaped yet
  ::waitpid(child, nullptr, 0);
  EXPECT_NE(peer->Describe().find("has ended"), std::string::npos);
}

TEST(PeerProcessTest, NamesAProcessThatDoesNotExist) {
  const auto peer = PeerProcess::Open(999999999);
  ASSERT_FALSE(peer.ok());
  EXPECT_NE(peer.status().message().find("999999999"), absl::string_view::npos);
}

}  // namespace
}  // namespace flotilla
