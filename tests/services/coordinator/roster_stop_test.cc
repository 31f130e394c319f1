#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "services/coordinator/roster.h"
#include "tests/services/coordinator/roster_fixture.h"
#include "tests/testing/status_matchers.h"

// How a run ends: flotilla stop, and whoever has saved closing it.

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(RosterTest, StopIsStickyAndKeepsItsFirstReason) {
  Make(1);
  Form({Learner(0)});
  EXPECT_EQ(roster_->Stop("user"), v1::ACTIVE);
  roster_->Stop("again");
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(const v1::Command command, Beat(Learner(0), 1));
    EXPECT_TRUE(command.stop());
    EXPECT_EQ(command.stop_reason(), "user");
  }
  EXPECT_EQ(state(), v1::ACTIVE);
}

TEST_F(RosterTest, APreemptionIsToldThoughTheRunWasToldToStopBefore) {
  Make(1);
  Form({Learner(0)});
  roster_->Stop("user");
  EXPECT_FALSE(roster_->Command().preempted());
  const uint64_t before = roster_->command_version();
  roster_->Stop("learner/0/0 got SIGTERM", /*preempted=*/true);
  EXPECT_GT(roster_->command_version(), before);
  roster_->Stop("user");
  ASSERT_OK_AND_ASSIGN(const v1::Command command, Beat(Learner(0), 1));
  EXPECT_TRUE(command.preempted());
  EXPECT_EQ(command.stop_reason(), "user");
  EXPECT_TRUE(roster_->GetStatus(clock_.Now()).preempted());
}

v1::CloseRunRequest Closing(const std::string& status) {
  v1::CloseRunRequest request;
  request.set_member_id("learner/0/0");
  request.set_status(status);
  return request;
}

TEST_F(RosterTest, WhatARunIsClosedWithSaysWhetherItWasPreempted) {
  for (const char* status : {"preempted", "completed", "failed"}) {
    const bool preempted = status == std::string("preempted");
    Make(1);
    Form({Learner(0)});
    // Of which the coordinator need not have heard before; or which came when all
    // had finished, or could not be saved.
    if (!preempted) roster_->Stop("learner/0/0 got SIGTERM", true);
    ASSERT_OK(roster_->CloseRun(Closing(status), kKey));
    roster_->Stop("learner/0/0 got SIGTERM", true);
    for (int coordinator = 0; coordinator < 2; ++coordinator) {
      EXPECT_EQ(roster_->Command().preempted(), preempted);
      EXPECT_EQ(roster_->GetStatus(clock_.Now()).preempted(), preempted);
      Restart();
    }
  }
}

TEST_F(RosterTest, WhoComesToAPreemptedRunIsTakenAndTold) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(roster_->CloseRun(Closing("preempted"), kKey));
  ASSERT_OK(Register(Learner(5)));
  EXPECT_THAT(Join(Learner(5)),
              StatusIs(StatusCode::kAborted, HasSubstr("preempted")));
  ASSERT_OK_AND_ASSIGN(const v1::Command command, Beat(Learner(5)));
  EXPECT_TRUE(command.closed());
  EXPECT_TRUE(command.preempted());
  EXPECT_EQ(StateOf(Learner(5)), "alive");  // its launcher's peers wait for it
}

TEST_F(RosterTest, StoppedRunFormsNothingMore) {
  Make(2);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK(Join(Learner(0)));
  roster_->Stop("user");
  EXPECT_THAT(roster_->JoinResult(Request(Learner(0))),
              StatusIs(StatusCode::kAborted, HasSubstr("user")));
  EXPECT_THAT(Join(Learner(1)), StatusIs(StatusCode::kAborted));
  EXPECT_EQ(generation(), 0u);
}

TEST_F(RosterTest, RunStoppedWhileItRecoversIsSavedByWhoIsLeft) {
  Make(3);
  Form({Learner(0), Learner(1), Learner(2)});
  ASSERT_OK(Register(Learner(1, 2)));  // in place of one that died
  ASSERT_OK(Join(Learner(1, 2)));
  ASSERT_OK(Join(Learner(0), 1, 7));
  roster_->Stop("user");
  roster_->Tick(clock_.Now());
  EXPECT_EQ(generation(), 1u) << "learner/0/2 has the state, too";
  EXPECT_THAT(roster_->JoinResult(Request(Learner(1, 2))),
              StatusIs(StatusCode::kAborted, HasSubstr("user")));
  ASSERT_OK(Join(Learner(2), 1, 8));
  const std::optional<v1::Assignment> place = Place(Learner(0), 1);
  ASSERT_TRUE(place);
  EXPECT_TRUE(place->stopping());
  EXPECT_THAT(Ids(*place), ElementsAre("learner/0/0", "learner/0/2"));
  EXPECT_EQ(place->source_rank(), 1);
  EXPECT_EQ(place->last_committed_update(), 8u);
  EXPECT_THAT(Join(Learner(1, 2)), StatusIs(StatusCode::kAborted));
}

TEST_F(RosterTest, LastSaveWaitsForNobodyThatIsSilent) {
  Make(2);
  Form({Learner(0), Learner(1)});
  roster_->Stop("user");
  ASSERT_OK(Fail(Learner(0), 1));
  ASSERT_OK(Join(Learner(0), 1, 7));
  EXPECT_FALSE(Place(Learner(0), 1, 7));
  Pass(absl::Seconds(6), {Learner(0)});
  ASSERT_TRUE(Place(Learner(0), 1));
  EXPECT_EQ(Place(Learner(0), 1)->world_size(), 1);

  // Should that one fail, too, it may try again.
  ASSERT_OK(Fail(Learner(0), 2));
  ASSERT_OK(Join(Learner(0), 2, 7));
  EXPECT_TRUE(Place(Learner(0), 2));
}

TEST_F(RosterTest, StoppedRunTakesNobodyIntoAGenerationThatFinishes) {
  Make(1, 3);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Join(Learner(0)));
  Pass(absl::Seconds(31), {Learner(0)});
  ASSERT_EQ(generation(), 1u);
  ASSERT_OK(Register(Learner(1)));
  roster_->Stop("user");
  EXPECT_THAT(Join(Learner(1), 1, 3), StatusIs(StatusCode::kAborted));
  EXPECT_EQ(state(), v1::ACTIVE);
}

TEST_F(RosterTest, ResumedRunStoppedBeforeItBeginsHasNothingToSave) {
  Make(2);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Join(Learner(0), 0, 7));
  roster_->Stop("user");
  EXPECT_THAT(roster_->JoinResult(Request(Learner(0), 0, 7)),
              StatusIs(StatusCode::kAborted));
  roster_->Tick(clock_.Now());
  EXPECT_EQ(generation(), 0u);
}

TEST_F(RosterTest, ClosedRunRefusesJoinersAndFencesNothing) {
  Make(2);
  Form({Learner(0), Learner(1)});
  v1::CloseRunRequest request;
  request.set_status("solved");
  request.set_member_id("learner/0/0");
  ASSERT_OK(roster_->CloseRun(request, kKey));
  ASSERT_OK(roster_->CloseRun(request, kKey));
  EXPECT_EQ(state(), v1::CLOSED);
  ASSERT_OK_AND_ASSIGN(const v1::Command command, Beat(Learner(1), 1));
  EXPECT_TRUE(command.closed());
  EXPECT_THAT(Join(Learner(1), 1),
              StatusIs(StatusCode::kAborted, HasSubstr("solved")));
  EXPECT_THAT(Register(Learner(5)),
              StatusIs(StatusCode::kAborted, HasSubstr("solved")));
  ASSERT_OK(Leave(Learner(1)));
  Pass(absl::Seconds(10), {});
  EXPECT_EQ(roster_->Command().fenced_generation(), 0u);
  EXPECT_OK(roster_->CheckGeneration(1));
}

// Nobody hears what cannot be parsed.
TEST_F(RosterTest, WordsAreCutBetweenCharacters) {
  Make(2);
  Form({Learner(0), Learner(1)});
  std::string words = "x";  // for the limit to be inside a character
  for (int i = 0; i < 600; ++i) words += "\xc3\xa4";
  v1::Heartbeat beat;
  beat.set_member_id(Learner(0).id());
  beat.set_incarnation(1);
  beat.set_generation(1);
  beat.set_trouble(words);
  ASSERT_OK(roster_->Beat(beat, kKey, clock_.Now()));
  roster_->Stop(words);
  v1::LeaveRequest leave;
  leave.set_member_id(Learner(1).id());
  leave.set_incarnation(1);
  leave.set_reason(words);
  ASSERT_OK(roster_->Leave(leave, kKey, clock_.Now()));

  const std::string begin = words.substr(0, 1 + 2 * 490);
  v1::Command command;
  ASSERT_TRUE(command.ParseFromString(roster_->Command().SerializeAsString()));
  EXPECT_THAT(command.stop_reason(), StartsWith(begin));
  EXPECT_THAT(command.fence_reason(), HasSubstr("left: " + begin));
  v1::Status status;
  ASSERT_TRUE(status.ParseFromString(
      roster_->GetStatus(clock_.Now()).SerializeAsString()));
  EXPECT_THAT(status.learner(0).trouble(), StartsWith(begin));
}

TEST_F(RosterTest, AReasonThatIsNotUtf8IsHeard) {
  Make(1);
  roster_->Stop("caf\xe9");
  v1::Command command;
  ASSERT_TRUE(command.ParseFromString(roster_->Command().SerializeAsString()));
  EXPECT_EQ(command.stop_reason(), "caf\\xe9");
}

// As a launcher does that gives up.
v1::CloseRunRequest GivenUp(const v1::Member& learner) {
  v1::CloseRunRequest request;
  request.set_member_id(learner.id());
  request.set_status("failed");
  return request;
}

// What those hear that are left.
auto IsToldWhoGaveUp() {
  return StatusIs(StatusCode::kResourceExhausted,
                  AllOf(HasSubstr("the run failed"), HasSubstr("learner/1/0")));
}

// It may not be known yet that its learner is gone: NCCL waits for that one.
TEST_F(RosterTest, ALauncherThatGivesUpEndsTheGenerationAndSaysWhoItIs) {
  Make(2);
  const v1::Member lost = Learner(0, 1, /*node=*/1);
  Form({Learner(0), lost});
  ASSERT_OK(roster_->CloseRun(GivenUp(lost), kKey));
  for (int coordinator = 0; coordinator < 2; ++coordinator) {
    EXPECT_EQ(state(), v1::CLOSED);
    ASSERT_OK_AND_ASSIGN(const v1::Command command, Beat(Learner(0), 1));
    EXPECT_TRUE(command.closed());
    EXPECT_EQ(command.fenced_generation(), 1u);
    EXPECT_EQ(command.fence_reason(), command.failure());
    EXPECT_THAT(command.failure(), HasSubstr("rank 1 (learner/1/0) on host1"));
    EXPECT_THAT(roster_->CheckGeneration(1),
                StatusIs(StatusCode::kAborted, HasSubstr("learner/1/0")));
    EXPECT_THAT(Join(Learner(0), 1, 12), IsToldWhoGaveUp());
    EXPECT_THAT(Register(Learner(5)), IsToldWhoGaveUp());
    Restart();  // the next one says it too
  }
}

TEST_F(RosterTest, WhoWaitsForTheFirstGenerationIsToldWhoGaveUp) {
  Make(2);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Join(Learner(0)));
  // One that was refused a seat.
  ASSERT_OK(roster_->CloseRun(GivenUp(Learner(0, 1, /*node=*/1)), kKey));
  EXPECT_THAT(roster_->JoinResult(Request(Learner(0))), IsToldWhoGaveUp());
  // Its launcher's coordinator stays until it has gone.
  EXPECT_EQ(StateOf(Learner(0)), "alive");
}

TEST_F(RosterTest, ARunThatEndedWellDoesNotFailAfterwards) {
  Make(1);
  Form({Learner(0)});
  v1::CloseRunRequest request = GivenUp(Learner(0));
  request.set_status("completed");
  ASSERT_OK(roster_->CloseRun(request, kKey));
  ASSERT_OK(roster_->CloseRun(GivenUp(Learner(0)), kKey));
  EXPECT_EQ(roster_->Command().failure(), "");
  EXPECT_THAT(Join(Learner(0), 1, 12),
              StatusIs(StatusCode::kAborted, HasSubstr("completed")));
}

// Rank 0 still writes what it came to.
TEST_F(RosterTest, WhoGivesUpHavingFinishedEndsNothing) {
  Make(2);
  const v1::Member done = Learner(0, 1, /*node=*/1);
  Form({Learner(0), done});
  ASSERT_OK(Beat(done, 1, v1::FINISHED));
  ASSERT_OK(roster_->CloseRun(GivenUp(done), kKey));
  EXPECT_EQ(state(), v1::ACTIVE);
  EXPECT_EQ(roster_->Command().failure(), "");
  EXPECT_OK(roster_->CheckGeneration(1));
}

TEST_F(RosterTest, AWorldGoesOnWithoutWhoGivesUpOutsideOfIt) {
  Make(1, 2);
  const v1::Member lost = Learner(0, 1, /*node=*/1);
  Form({Learner(0), lost});
  Pass(absl::Seconds(6), {Learner(0)}, 1);
  ASSERT_OK(Join(Learner(0), 1, 12));
  ASSERT_EQ(Place(Learner(0), 1, 12)->world_size(), 1);
  ASSERT_OK(roster_->CloseRun(GivenUp(lost), kKey));
  EXPECT_EQ(state(), v1::ACTIVE);
  EXPECT_FALSE(roster_->Command().closed());
  EXPECT_OK(roster_->CheckGeneration(2));
}

}  // namespace
}  // namespace flotilla
