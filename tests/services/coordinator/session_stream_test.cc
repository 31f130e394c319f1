#include "services/coordinator/session_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/services/coordinator/coordinator_service_fixture.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

using SessionStreamTest = CoordinatorServiceTest;

TEST_F(SessionStreamTest, BrokenSessionMakesAMemberSuspectOnly) {
  Start(Patient(1, 1));
  FormOne();
  auto session = std::make_unique<RawSession>(stub_.get());
  v1::Command command;
  ASSERT_TRUE(session->Send(TestLearner(0), 1));
  ASSERT_TRUE(session->Read(&command));
  EXPECT_EQ(GetStatus().learner(0).state(), "alive");
  session->Cancel();
  session->Finish().IgnoreError();
  EXPECT_TRUE(
      Eventually([&] { return GetStatus().learner(0).state() == "suspect"; }));
  EXPECT_EQ(GetStatus().state(), v1::ACTIVE);

  RawSession again(stub_.get());
  ASSERT_TRUE(again.Send(TestLearner(0), 1));
  ASSERT_TRUE(again.Read(&command));
  EXPECT_EQ(GetStatus().learner(0).state(), "alive");
}

TEST_F(SessionStreamTest, HalfCloseEndsASessionInPeace) {
  Start(Patient(1, 1));
  ASSERT_OK(Register(TestLearner(0)));
  RawSession session(stub_.get());
  ASSERT_TRUE(session.Send(TestLearner(0)));
  session.HalfClose();
  EXPECT_OK(session.Finish());
}

TEST_F(SessionStreamTest, SessionThatNeverSpeaksIsEnded) {
  Start(1, 1);
  RawSession session(stub_.get());
  EXPECT_THAT(session.Finish(), StatusIs(StatusCode::kDeadlineExceeded,
                                         HasSubstr("no heartbeat")));
}

TEST_F(SessionStreamTest, SessionThatFallsSilentIsEnded) {
  Start(1, 1);
  ASSERT_OK(Register(TestLearner(0)));
  RawSession session(stub_.get());
  ASSERT_TRUE(session.Send(TestLearner(0)));
  EXPECT_THAT(session.Finish(), StatusIs(StatusCode::kDeadlineExceeded));
}

TEST_F(SessionStreamTest, NewerSessionOfAMemberReplacesTheOlder) {
  Start(Patient(1, 1));
  RawSession first(stub_.get()), second(stub_.get());
  v1::Command command;
  // Commands come unasked too: what changes in them tells that its heartbeat has
  // been taken in.
  ASSERT_TRUE(first.Send(TestLearner(0)));
  ASSERT_TRUE(first.ReadUntil(
      [](const v1::Command& c) { return c.register_again(); }, &command));
  ASSERT_OK(Register(TestLearner(0)));
  ASSERT_TRUE(first.Send(TestLearner(0)));
  ASSERT_TRUE(first.ReadUntil(
      [](const v1::Command& c) { return !c.register_again(); }, &command));
  ASSERT_TRUE(second.Send(TestLearner(0)));
  ASSERT_TRUE(second.Read(&command));
  EXPECT_THAT(first.Finish(), StatusIs(StatusCode::kAborted));
  ASSERT_TRUE(second.Send(TestLearner(0)));
  ASSERT_TRUE(second.Read(&command));
  EXPECT_EQ(GetStatus().learner(0).state(), "joining");
}

TEST_F(SessionStreamTest, SessionIsOfOneMember) {
  Start(Patient(1, 1));
  RawSession nameless(stub_.get()), mixed(stub_.get());
  ASSERT_TRUE(nameless.Send(v1::Member()));
  EXPECT_THAT(nameless.Finish(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("member_id")));
  ASSERT_TRUE(mixed.Send(TestLearner(0)));
  ASSERT_TRUE(mixed.Send(TestLearner(1)));
  EXPECT_THAT(mixed.Finish(), StatusIs(StatusCode::kInvalidArgument,
                                       AllOf(HasSubstr("learner/0/0"),
                                             HasSubstr("learner/0/1"))));
}

TEST_F(SessionStreamTest, StrangersHeartbeatIsAskedToRegister) {
  Start(Patient(1, 1));
  RawSession session(stub_.get());
  v1::Command command;
  ASSERT_TRUE(session.Send(TestLearner(0)));
  EXPECT_TRUE(session.ReadUntil(
      [](const v1::Command& c) { return c.register_again(); }, &command));
  ASSERT_OK(Register(TestLearner(0)));
  ASSERT_TRUE(session.Send(TestLearner(0)));
  EXPECT_TRUE(session.ReadUntil(
      [](const v1::Command& c) { return !c.register_again(); }, &command));
}

// A client that sends and sends but never reads.
TEST_F(SessionStreamTest, ClientThatNeverReadsHarmsNobody) {
  Start(Patient(1, 1));
  ASSERT_OK(Register(TestLearner(0)));
  RawSession deaf(stub_.get());
  for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(deaf.Send(TestLearner(0)));
  EXPECT_EQ(GetStatus().learner_size(), 1);
  deaf.Cancel();
  deaf.Finish().IgnoreError();
}

}  // namespace
}  // namespace flotilla
