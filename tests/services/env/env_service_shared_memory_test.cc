#include <memory>
#include <string>

#include "services/env/ring.h"
#include "services/env/shared_region.h"
#include "tests/services/env/env_service_fixture.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class SharedMemoryTest : public EnvServiceTest {
 protected:
  // The handshake up to the welcome.
  v1::Welcome Meet(RawLearner* learner) {
    v1::Hello hello = MakeHello();
    hello.set_offer_shared_memory(true);
    learner->Send(hello);
    return learner->Receive().value_or(v1::PlayReply()).welcome();
  }

  static v1::Start MakeStart(uint64_t slot_bytes, uint32_t num_slots) {
    v1::Start start;
    start.mutable_shared_memory()->set_slot_bytes(slot_bytes);
    start.mutable_shared_memory()->set_num_slots(num_slots);
    return start;
  }

  static constexpr size_t kSlot = 64;  // 2 rows of 2 floats, rounded up
};

TEST_F(SharedMemoryTest, RowsAreWrittenIntoTheGroupsSlot) {
  RawLearner learner(Channel());
  const v1::Welcome welcome = Meet(&learner);
  EXPECT_EQ(welcome.shared_memory_socket()[0], '@');
  ASSERT_OK_AND_ASSIGN(const SharedRegion region,
                       SharedRegion::Create(2 * kSlot));
  ASSERT_OK(SendRegion(welcome.shared_memory_socket(),
                       welcome.shared_memory_token(), region.fd()));
  learner.Send(MakeStart(kSlot, 2));
  for (uint32_t group : {0, 1}) {
    const auto reply = learner.Receive();
    ASSERT_TRUE(reply.has_value()) << learner.End();
    EXPECT_EQ(reply->step().payload_case(), v1::StepBatch::kSlot);
    EXPECT_EQ(reply->step().slot(), group);
  }
  learner.Send(MakeActions(1, 0, {0, 0}));
  learner.Receive();
  float seen[4];
  std::memcpy(seen, region.bytes().data() + kSlot, sizeof(seen));
  EXPECT_THAT(seen, ElementsAre(2, 1, 3, 1));
}

TEST_F(SharedMemoryTest, NotOfferedIsNotAccepted) {
  EXPECT_THAT(EndAfter([&](RawLearner* learner) {
                learner->Send(MakeHello());
                learner->Receive();
                learner->Send(MakeStart(kSlot, 2));
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the welcome announced no socket")));
}

TEST_F(SharedMemoryTest, OfferedMayStillBeInline) {
  RawLearner learner(Channel());
  Meet(&learner);
  learner.Send(v1::Start());
  EXPECT_TRUE(learner.Receive()->step().has_inline_());
}

TEST_F(SharedMemoryTest, SizesMustFit) {
  EXPECT_THAT(EndAfter([&](RawLearner* learner) {
                Meet(learner);
                learner->Send(MakeStart(kSlot - 1, 2));
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("slot_bytes is 63, want 64")));
  EXPECT_THAT(EndAfter([&](RawLearner* learner) {
                Meet(learner);
                learner->Send(MakeStart(kSlot, 3));
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("num_slots is 3, want 2")));
}

TEST_F(SharedMemoryTest, WrongTokenAndNoDescriptorAreRefused) {
  EXPECT_THAT(EndAfter([&](RawLearner* learner) {
                const v1::Welcome welcome = Meet(learner);
                const auto region = SharedRegion::Create(2 * kSlot);
                ASSERT_OK(SendRegion(welcome.shared_memory_socket(),
                                     std::string(16, 'x'), region->fd()));
                learner->Send(MakeStart(kSlot, 2));
              }),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("no descriptor came with the right token")));
  ExpectServes();
}

TEST_F(SharedMemoryTest, RegionOfTheWrongSizeIsRefused) {
  EXPECT_THAT(
      EndAfter([&](RawLearner* learner) {
        const v1::Welcome welcome = Meet(learner);
        const auto region = SharedRegion::Create(2 * kSlot - 1);
        ASSERT_OK(SendRegion(welcome.shared_memory_socket(),
                             welcome.shared_memory_token(), region->fd()));
        learner->Send(MakeStart(kSlot, 2));
      }),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("has 127 bytes, want 128")));
  ExpectServes();
}

// A learner that writes what it likes into its ring.
class RingServiceTest : public SharedMemoryTest {
 protected:
  RingServiceTest() {
    const v1::EnvSpec spec = *factory_.Describe("Fake", v1::EnvOptions());
    layout_ = *MakeGroupLayout(spec, 4, 2);
    ring_layout_ = MakeRingLayout(spec, layout_);
  }

  v1::Welcome Meet(RawLearner* learner, bool offer_ring = true) {
    v1::Hello hello = MakeHello();
    hello.set_offer_shared_memory(true);
    hello.set_offer_ring(offer_ring);
    learner->Send(hello);
    return learner->Receive().value_or(v1::PlayReply()).welcome();
  }

  v1::Start MakeStart(uint64_t ring_bytes) const {
    v1::Start start = SharedMemoryTest::MakeStart(kSlot, 2);
    start.mutable_shared_memory()->set_ring_bytes(ring_bytes);
    return start;
  }

  // Up to both resets, which are in the ring.
  void Begin(RawLearner* learner) {
    const v1::Welcome welcome = Meet(learner);
    EXPECT_TRUE(welcome.ring());
    auto region = SharedRegion::Create(2 * kSlot + ring_layout_.bytes);
    ASSERT_OK(SendRegion(welcome.shared_memory_socket(),
                         welcome.shared_memory_token(), region->fd()));
    region_.emplace(*std::move(region));
    ring_ = std::make_unique<Ring>(region_->bytes().subspan(2 * kSlot),
                                   &ring_layout_, Ring::End::kLearner);
    learner->Send(MakeStart(ring_layout_.bytes));
    AwaitSteps(2);
  }

  void AwaitSteps(uint32_t count) {
    while (ring_->Waiting() < count) {
      ring_->Await(Ring::Clock::now() + std::chrono::seconds(10));
    }
    for (; count > 0; --count) ring_->Take();
  }

  void Post(int group, uint64_t seq, std::vector<int64_t> actions) {
    ASSERT_OK(PutActions(layout_, ring_layout_,
                         MakeActions(group, seq, actions), ring_->NextOut()));
    ring_->Post();
  }

  // How the stream ends after `spoil`.
  absl::Status EndAfterBegin(const std::function<void(RawLearner*)>& spoil) {
    return EndAfter([&](RawLearner* learner) {
      Begin(learner);
      spoil(learner);
    });
  }

  GroupLayout layout_;
  RingLayout ring_layout_;
  std::optional<SharedRegion> region_;
  std::unique_ptr<Ring> ring_;
};

TEST_F(RingServiceTest, WhatWasPostedBeforeTheHalfCloseIsStepped) {
  RawLearner learner(Channel());
  Begin(&learner);
  Post(1, 0, {0, 0});
  learner.HalfClose();
  EXPECT_OK(learner.End());
  EXPECT_EQ(service_.steps(), 2);
}

TEST_F(RingServiceTest, OnlyWhatWasAgreedOnIsARing) {
  RawLearner learner(Channel());
  EXPECT_FALSE(Meet(&learner, /*offer_ring=*/false).ring());
  learner.Send(MakeStart(ring_layout_.bytes));
  EXPECT_THAT(learner.End(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("want 0: hello offered no ring")));
  EXPECT_THAT(EndAfter([&](RawLearner* other) {
                Meet(other);
                other->Send(MakeStart(64));
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("ring_bytes is 64, want 0 or ")));
}

TEST_F(RingServiceTest, ActionsInTheRingAreCheckedAsMessagesAre) {
  EXPECT_THAT(EndAfterBegin([&](auto*) {
                Post(2, 0, {0, 0});
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("actions.group is 2, want 0 to 1")));
  EXPECT_THAT(EndAfterBegin([&](auto*) {
                Post(0, 1, {0, 0});
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("actions.seq is 1, want 0")));
  EXPECT_THAT(EndAfterBegin([&](auto*) {
                Post(0, 0, {0, 3});
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is 3 in row 1, want 0 to 2")));
  factory_.Hold(0);
  EXPECT_THAT(
      EndAfter([&](RawLearner* learner) {
        const v1::Welcome welcome = Meet(learner);
        auto region = SharedRegion::Create(2 * kSlot + ring_layout_.bytes);
        ASSERT_OK(SendRegion(welcome.shared_memory_socket(),
                             welcome.shared_memory_token(), region->fd()));
        Ring ring(region->bytes().subspan(2 * kSlot), &ring_layout_,
                  Ring::End::kLearner);
        ring.Post();  // zeros: group 0, seq 0, whose reset is held
        learner->Send(MakeStart(ring_layout_.bytes));
      }),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("came before its step 0 was sent")));
}

TEST_F(RingServiceTest, ActionsBesideTheRingAreRefused) {
  EXPECT_THAT(EndAfterBegin([&](RawLearner* learner) {
                learner->Send(MakeActions(0, 0, {0, 0}));
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the request is actions, want nothing")));
  ExpectServes();
}

}  // namespace
}  // namespace flotilla
