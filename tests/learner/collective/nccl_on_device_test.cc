// NCCL's path with memory of a device: what is summed lies there and never touches
// the host, calls keep their place in the stream that they were made on, and an
// abort leaves a device that the next generation goes on with.

#include <barrier>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/collective/gradient_buckets.h"
#include "learner/collective/nccl_collective.h"
#include "learner/device/transfer.h"
#include "tests/learner/collective/fake_nccl.h"
#include "tests/learner/collective/ranks.h"
#include "tests/learner/collective/rehearsal_nccl.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/no_host_wait.h"
#include "tests/rehearsal/strict.h"

namespace flotilla {
namespace {

using rehearsal::Device;
using rehearsal::ReadCounts;

constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr int kRanks = 3;

// Each rank is a thread with a stream of its own.
class NcclOnDeviceTest : public testing::Test {
 protected:
  NcclOnDeviceTest() {
    rehearsal::Register();
    rehearsal::ResetCounts();
    // Kernels of this device run when they are launched.
    nccl_.calls_wait = true;
  }

  std::unique_ptr<Collective> Make(const v1::Assignment& assignment,
                                   CoordinatorClient* coordinator,
                                   absl::Duration timeout = kPatience) {
    auto made = MakeNcclCollective(nccl_.api(), assignment, coordinator,
                                   timeout, Device());
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }

  using Body = std::function<void(Collective*, FakeCoordinatorClient*)>;
  void RunAll(const Body& body) {
    RunRanks(kRanks, [&](const v1::Assignment& assignment,
                         FakeCoordinatorClient* coordinator) {
      const c10::StreamGuard own(NewStream());
      const auto collective = Make(assignment, coordinator);
      if (collective != nullptr) body(collective.get(), coordinator);
    });
  }

  static c10::Stream NewStream() {
    return c10::impl::VirtualGuardImpl(c10::kPrivateUse1)
        .getNewStream(Device());
  }

  const rehearsal::Strict strict_;
  const RehearsalNccl device_;
  FakeNccl nccl_{&device_};
};

// Copies on their way up, the sum, and what is computed of it, one after the other
// in a stream; the host waits for the last alone.
TEST_F(NcclOnDeviceTest, SumsKeepTheirPlaceInTheStream) {
  RunAll([](Collective* collective, FakeCoordinatorClient*) {
    const int rank = collective->rank();
    for (int call = 0; call < 10; ++call) {
      torch::Tensor twice, from;
      {
        const rehearsal::NoHostWait nobody_waits;
        torch::Tensor host = Staging({5}, torch::kFloat32, Device());
        for (int i = 0; i < 5; ++i) host.data_ptr<float>()[i] = rank + call;
        const torch::Tensor sum = ToDevice(host, Device()) + 1;
        ASSERT_TRUE(collective->AllReduceSum(sum).ok());
        twice = sum * 2;
        from = torch::full({2}, rank, Device());
        ASSERT_TRUE(collective->Broadcast(from, call % kRanks).ok());
      }
      EXPECT_EQ(ToHost(twice)[4].item<float>(),
                2 * (kRanks * (call + 1) + 0 + 1 + 2));
      EXPECT_EQ(ToHost(from)[1].item<float>(), call % kRanks);
    }
  });
  EXPECT_EQ(ReadCounts().missing_events, 0);
  EXPECT_EQ(ReadCounts().overwritten_sources, 0);
  EXPECT_EQ(ReadCounts().pageable_to_device.copies, 0);
  EXPECT_EQ(nccl_.aborts, 0);
  EXPECT_EQ(nccl_.destroys, kRanks);
}

// Who computes on one stream and sums on another without an event between is found.
TEST_F(NcclOnDeviceTest, AMissingEventBeforeASumIsFound) {
  RunAll([](Collective* collective, FakeCoordinatorClient*) {
    const torch::Tensor tensor = torch::ones({4}, Device()) * 2;
    const c10::StreamGuard other(NewStream());
    ASSERT_TRUE(collective->AllReduceSum(tensor).ok());
  });
  EXPECT_GE(ReadCounts().missing_events, kRanks);
}

TEST_F(NcclOnDeviceTest, AMissingEventAfterASumIsFound) {
  nccl_.never_over =
      true;  // or the host knows, and so does all that it launches
  RunAll([](Collective* collective, FakeCoordinatorClient*) {
    const torch::Tensor tensor = torch::ones({4}, Device());
    ASSERT_TRUE(collective->AllReduceSum(tensor).ok());
    const c10::StreamGuard other(NewStream());
    const torch::Tensor twice = tensor * 2;
    EXPECT_EQ(twice.size(0), 4);
    collective->Abort();  // or the sum is waited for
  });
  EXPECT_GE(ReadCounts().missing_events, kRanks);
}

// Summed in float32 and rounded once, as without a device.
TEST_F(NcclOnDeviceTest, Bfloat16NeverLeavesTheDevice) {
  for (const int64_t count : {1, 3, 100}) {
    RunAll([&](Collective* collective, FakeCoordinatorClient*) {
      const float mine = collective->rank() == 0 ? 1 : 1.0f / 256;
      torch::Tensor tensor = torch::full(
          {count}, mine, torch::dtype(torch::kBFloat16).device(Device()));
      {
        const rehearsal::NoHostWait nobody_waits;
        ASSERT_TRUE(collective->AllReduceSum(tensor).ok());
      }
      EXPECT_TRUE(
          torch::equal(ToHost(tensor),
                       torch::full({count}, 1 + 1.0f / 128, torch::kBFloat16)));
    });
  }
  EXPECT_EQ(ReadCounts().missing_events, 0);
}

// While a backward pass goes on, on a stream of their own, and never early.
TEST_F(NcclOnDeviceTest, GradientsAreSummedBesideTheBackwardPass) {
  for (const auto type : {v1::GRADIENT_FLOAT32, v1::GRADIENT_BFLOAT16}) {
    RunAll([&](Collective* collective, FakeCoordinatorClient*) {
      torch::Tensor gradients = torch::zeros({3 * 4 * 4}, Device());
      std::vector<torch::Tensor> leaf;
      for (int i = 0; i < 3; ++i) {
        leaf.push_back(
            torch::eye(4, torch::device(Device())).set_requires_grad(true));
        leaf.back().mutable_grad() =
            gradients.narrow(0, i * 16, 16).view({4, 4});
      }
      GradientBuckets buckets(leaf, gradients,
                              {.bucket_bytes = 64, .type = type});
      for (int step = 0; step < 3; ++step) {
        gradients.zero_();
        const float mine = collective->rank() + 1.0f;
        buckets.Begin(collective, /*scale=*/0.5);
        torch::Tensor x = torch::full({2, 4}, mine, Device());
        for (const torch::Tensor& weight : leaf) x = x.matmul(weight);
        x.sum().backward();
        const absl::Status summed = buckets.Finish(collective, 0.5);
        ASSERT_TRUE(summed.ok()) << summed;
        // Identities pass on what they get: each weight's gradient is that of the
        // sum of two rows of `mine`.
        const torch::Tensor got = ToHost(gradients);
        EXPECT_TRUE(torch::equal(got, torch::full({48}, 0.5 * 2 * (1 + 2 + 3))))
            << got;
      }
    });
  }
  EXPECT_EQ(ReadCounts().missing_events, 0);
}

// A peer that does not come: the call was queued, the deadline passes, the
// communicator is aborted, and nothing that was computed counts; those who are left
// meet again and go on with the same device memory.
TEST_F(NcclOnDeviceTest, AfterALossTheNextGenerationGoesOn) {
  nccl_.calls_wait = false;  // queued, and no more
  std::barrier there(kRanks), lost(kRanks - 1);
  RunRanks(kRanks, [&](const v1::Assignment& assignment,
                       FakeCoordinatorClient* coordinator) {
    const c10::StreamGuard own(NewStream());
    const int rank = assignment.rank();
    // Also to meet in.
    auto collective = Make(assignment, coordinator, absl::Seconds(2));
    there.arrive_and_wait();
    ASSERT_NE(collective, nullptr);
    if (rank == 2) return;  // is lost
    const torch::Tensor weights = torch::full({4}, 7.0, Device());
    const torch::Tensor kept = ToHost(weights);
    ASSERT_TRUE(collective->AllReduceSum(weights).ok());
    weights.mul_(2);  // of nonsense, and nobody waits here
    for (int aborts; (aborts = nccl_.aborts) < kRanks - 1;) {
      nccl_.aborts.wait(aborts);
    }
    absl::Status status = collective->AllReduceSum(weights);
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("a peer has not come"));
    collective.reset();
    lost.arrive_and_wait();
    nccl_.calls_wait = true;
    collective =
        Make(MakeAssignment(rank, kRanks - 1, 2), coordinator, kPatience);
    ASSERT_NE(collective, nullptr);
    CopyToDevice(kept, weights);
    const torch::Tensor gradients = weights * (rank + 1);
    status = collective->AllReduceSum(gradients);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(
        torch::equal(ToHost(gradients), torch::full({4}, 7.0f * (1 + 2))));
  });
  EXPECT_GE(nccl_.aborts, 2);
  EXPECT_EQ(nccl_.ids, 2);
  EXPECT_EQ(ReadCounts().missing_events, 0);
}

// A fence ends a sum that waits for its peers.
TEST_F(NcclOnDeviceTest, AFenceEndsASumOnTheDevice) {
  std::barrier there(kRanks);
  RunRanks(kRanks, [&](const v1::Assignment& assignment,
                       FakeCoordinatorClient* coordinator) {
    const c10::StreamGuard own(NewStream());
    const auto collective = Make(assignment, coordinator);
    there.arrive_and_wait();
    ASSERT_NE(collective, nullptr);
    if (assignment.rank() == 2) {
      ASSERT_TRUE(coordinator->ReportFailure(1, "test").ok());
      return;
    }
    const absl::Status status =
        collective->AllReduceSum(torch::ones({4}, Device()));
    EXPECT_TRUE(absl::IsAborted(status)) << status;
  });
  EXPECT_GE(nccl_.aborts, 2);
}

// What the host has goes by way of the device, and comes back as a sum.
TEST_F(NcclOnDeviceTest, HostTensorsTakeTheDetour) {
  RunAll([](Collective* collective, FakeCoordinatorClient*) {
    torch::Tensor tensor = torch::full({3}, collective->rank() + 1.0f);
    ASSERT_TRUE(collective->AllReduceSum(tensor).ok());
    EXPECT_TRUE(torch::equal(tensor, torch::full({3}, 6.0f)));
  });
  EXPECT_EQ(ReadCounts().missing_events, 0);
}

}  // namespace
}  // namespace flotilla
