#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "services/coordinator/roster.h"
#include "tests/services/coordinator/roster_fixture.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::HasSubstr;

// ---- Restart of the coordinator

TEST_F(RosterTest, RestartWithAJournalFencesNobody) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(roster_->ReportEvaluation(Verdict(3, false), kKey));
  roster_->Stop("learner/0/0 got SIGTERM", /*preempted=*/true);
  Restart();
  EXPECT_EQ(state(), v1::ACTIVE);
  EXPECT_EQ(generation(), 1u);
  EXPECT_EQ(roster_->Command().evaluation().round(), 3);
  EXPECT_TRUE(roster_->Command().stop());
  EXPECT_TRUE(roster_->Command().preempted());
  // They come back late, but within the time they have.
  Pass(absl::Seconds(9), {Learner(0)}, 1);
  Pass(absl::Seconds(10), {Learner(0), Learner(1)}, 1);
  EXPECT_EQ(state(), v1::ACTIVE);
  EXPECT_EQ(StateOf(Learner(1)), "alive");
  EXPECT_OK(roster_->CheckGeneration(1));
}

TEST_F(RosterTest, LearnersRestartsAreCountedOnAfterARestart) {
  Make(2, 3);
  Form({Learner(0), Learner(1), Learner(2)});
  ASSERT_OK(Register(Learner(2, 2)));  // of a new launcher, which counts from 0
  Pass(absl::Seconds(5),
       {Learner(0), Learner(1)});  // it dies, and does not come
  ASSERT_OK(Join(Learner(0), 1, 10));
  ASSERT_OK(Join(Learner(1), 1, 10));
  ASSERT_TRUE(Place(Learner(0), 1));
  Restart();
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).learner_restarts(), 1);
  v1::Member replaced = Learner(1, 2);
  replaced.set_restarts(1);
  ASSERT_OK(Register(replaced));
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).learner_restarts(), 2);
}

TEST_F(RosterTest, WhoDoesNotComeBackAfterARestartIsDead) {
  Make(2);
  Form({Learner(0), Learner(1)});
  Restart();
  Pass(absl::Seconds(9.9), {Learner(0)}, 1);
  EXPECT_EQ(state(), v1::ACTIVE);
  Pass(absl::Seconds(0.1), {Learner(0)}, 1);
  EXPECT_EQ(state(), v1::FENCED);
  EXPECT_THAT(roster_->Command().fence_reason(),
              HasSubstr("rank 1 (learner/0/1)"));
}

TEST_F(RosterTest, OnceAllAreBackLivenessIsAsUsual) {
  Make(2);
  Form({Learner(0), Learner(1)});
  Restart();
  Pass(absl::Seconds(1), {Learner(0), Learner(1)}, 1);
  Pass(absl::Seconds(5), {Learner(0)}, 1);
  EXPECT_EQ(state(), v1::FENCED);
}

TEST_F(RosterTest, ACoordinatorThatStoodStillLetsEverybodySpeakFirst) {
  Make(2);
  Form({Learner(0), Learner(1)});
  Pass(absl::Seconds(1), {Learner(0), Learner(1)}, 1);
  clock_.Advance(absl::Seconds(60));
  roster_->Tick(clock_.Now());
  EXPECT_EQ(state(), v1::ACTIVE);
  EXPECT_EQ(StateOf(Learner(1)), "alive");
  Pass(absl::Seconds(3), {Learner(0)}, 1);
  EXPECT_EQ(state(), v1::ACTIVE);
  Pass(absl::Seconds(3), {Learner(0)}, 1);
  EXPECT_EQ(state(), v1::FENCED);
  EXPECT_EQ(StateOf(Learner(1)), "dead");
}

TEST_F(RosterTest, GenerationNumbersAreNeverUsedAgain) {
  Make(1);
  Form({Learner(0)});
  ASSERT_OK(Fail(Learner(0), 1));
  Restart();
  EXPECT_EQ(roster_->Command().fenced_generation(), 1u);
  ASSERT_OK(Register(Learner(0, 2)));
  ASSERT_OK(Join(Learner(0, 2)));
  EXPECT_EQ(Place(Learner(0, 2))->generation(), 2u);
}

TEST_F(RosterTest, RanksSurviveARestart) {
  Make(2);
  v1::Member first = Learner(0), second = Learner(1);
  first.set_requested_rank(2);
  Form({first, second});
  Restart();
  ASSERT_OK(Beat(first, 1));
  ASSERT_OK(Beat(second, 1));
  ASSERT_OK(Fail(first, 1));
  ASSERT_OK(Join(second, 1));
  ASSERT_OK(Join(first, 1));
  EXPECT_EQ(Place(first, 1)->rank(), 1);
}

// A node that comes back begins above it.
TEST_F(RosterTest, StatusKnowsIncarnationsFromBeforeARestart) {
  Make(1);
  Form({Learner(0, 1)});
  ASSERT_OK(Register(Learner(0, 2)));
  ASSERT_OK(Join(Learner(0, 2)));
  Restart();
  const v1::Status status = roster_->GetStatus(clock_.Now());
  EXPECT_EQ(status.learner(0).incarnation(), 2u);
  EXPECT_THAT(Register(Learner(0, 1)), StatusIs(StatusCode::kAlreadyExists));
}

TEST_F(RosterTest, ReplacementAfterARestartFences) {
  Make(2);
  Form({Learner(0), Learner(1)});
  Restart();
  ASSERT_OK(Register(Learner(1, 2)));
  EXPECT_EQ(state(), v1::FENCED);
}

TEST_F(RosterTest, ElasticWorldDoesNotReformSmallerWhileRecovering) {
  Make(1, 2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Fail(Learner(0), 1));
  Restart();
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Join(Learner(0), 1));  // it alone would be all who live
  EXPECT_FALSE(Place(Learner(0), 1));
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK(Join(Learner(1), 1));
  EXPECT_EQ(Place(Learner(0), 1)->world_size(), 2);
}

TEST_F(RosterTest, ClosedRunStaysClosed) {
  Make(1);
  Form({Learner(0)});
  v1::CloseRunRequest request;
  request.set_member_id("learner/0/0");
  request.set_status("solved");
  ASSERT_OK(roster_->CloseRun(request, kKey));
  Restart();
  EXPECT_EQ(state(), v1::CLOSED);
  EXPECT_THAT(
      Join(Learner(0), 1),
      StatusIs(StatusCode::kAborted,
               HasSubstr("is over: closed before this coordinator began")));
  EXPECT_THAT(
      Register(Learner(5)),
      StatusIs(StatusCode::kAborted,
               HasSubstr("is over (closed before this coordinator began)")));
  v1::SetRequest change;
  change.add_override("ppo.epochs=2");
  EXPECT_THAT(
      roster_->Set(change),
      StatusIs(StatusCode::kFailedPrecondition,
               HasSubstr("is over (closed before this coordinator began)")));
}

TEST_F(RosterTest, AFailedRunStaysFailed) {
  Make(1);
  Form({Learner(0)});
  v1::CloseRunRequest request;
  request.set_member_id("learner/0/0");
  request.set_status("failed");
  ASSERT_OK(roster_->CloseRun(request, kKey));
  Restart();
  v1::SetRequest change;
  change.add_override("ppo.epochs=2");
  EXPECT_THAT(roster_->Set(change), StatusIs(StatusCode::kFailedPrecondition,
                                             HasSubstr("is over (failed)")));
}

TEST_F(RosterTest, WithoutAJournalTheHighestReportedGenerationIsAdopted) {
  Make(2);
  Form({Learner(0), Learner(1)});
  Restart(/*with_journal=*/false);
  EXPECT_THAT(roster_->CheckGeneration(1), StatusIs(StatusCode::kUnavailable));
  ASSERT_OK_AND_ASSIGN(v1::Command command, Beat(Learner(1), 7));
  EXPECT_TRUE(command.register_again());
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK_AND_ASSIGN(command, Beat(Learner(1), 7));
  EXPECT_EQ(command.generation(), 7u);
  EXPECT_EQ(command.state(), v1::ACTIVE);
  EXPECT_LT(command.fenced_generation(), 7u);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Beat(Learner(0), 7));

  const v1::Status status = roster_->GetStatus(clock_.Now());
  EXPECT_EQ(status.world_size(), 2);
  EXPECT_EQ(status.learner(0).id(), "learner/0/0");
  EXPECT_EQ(status.learner(0).rank(), 0);
  Pass(absl::Seconds(20), {Learner(0), Learner(1)}, 7);
  EXPECT_EQ(state(), v1::ACTIVE);

  ASSERT_OK(Fail(Learner(0), 7));
  ASSERT_OK(Join(Learner(0), 7));
  ASSERT_OK(Join(Learner(1), 7));
  EXPECT_EQ(generation(), 8u);
}

// Silence ends nothing that it has finished, and it is listed once.
TEST_F(RosterTest, WhoHasFinishedKeepsItsRankThoughItWasSilent) {
  for (const bool adopted : {false, true}) {
    SCOPED_TRACE(adopted);
    Make(2);
    Form({Learner(0), Learner(1)});
    const uint64_t generation = adopted ? 7 : 1;
    if (adopted) {
      Restart(/*with_journal=*/false);
      for (const int i : {0, 1}) {
        ASSERT_OK(Register(Learner(i)));
        ASSERT_OK(Beat(Learner(i), generation));
      }
    }
    ASSERT_OK(Beat(Learner(1), generation, v1::FINISHED));
    Pass(absl::Seconds(6), {Learner(0)}, generation);
    ASSERT_EQ(StateOf(Learner(1)), "dead");
    ASSERT_EQ(state(), v1::ACTIVE);
    ASSERT_OK(Register(Learner(1)));
    ASSERT_OK(Beat(Learner(1), generation, v1::FINISHED));
    const v1::Status status = roster_->GetStatus(clock_.Now());
    EXPECT_EQ(status.world_size(), 2);
    EXPECT_EQ(status.learner(1).id(), "learner/0/1");
    EXPECT_EQ(status.learner(1).rank(), 1);
  }
}

TEST_F(RosterTest, WhoLeftAnAdoptedWorldAndComesBackIsListedOnce) {
  Make(2);
  for (const int i : {0, 1}) {
    ASSERT_OK(Register(Learner(i)));
    ASSERT_OK(Beat(Learner(i), 7, v1::FINISHED));
  }
  ASSERT_OK(Leave(Learner(1)));
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK(Beat(Learner(1), 7, v1::FINISHED));
  EXPECT_EQ(state(), v1::ACTIVE);
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).world_size(), 2);
}

TEST_F(RosterTest, AdoptedWorldThatStaysTooSmallIsFenced) {
  Make(2);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Beat(Learner(0), 7));
  Pass(absl::Seconds(9), {Learner(0)}, 7);
  EXPECT_EQ(state(), v1::ACTIVE);
  Pass(absl::Seconds(2), {Learner(0)}, 7);
  EXPECT_EQ(state(), v1::FENCED);
  EXPECT_THAT(roster_->Command().fence_reason(), HasSubstr("only 1 of 2"));
}

TEST_F(RosterTest, NumberOfAnotherCoordinatorEndsWhatFormedHere) {
  Make(1);
  Form({Learner(0)});
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK(Beat(Learner(1), 5));
  EXPECT_EQ(roster_->Command().fenced_generation(), 5u);
  ASSERT_OK(Join(Learner(0), 1));
  EXPECT_EQ(generation(), 6u);
}

TEST_F(RosterTest, JoinAfterAnUnknownGenerationGetsALaterOne) {
  Make(1);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Join(Learner(0), 4));
  EXPECT_EQ(Place(Learner(0), 4)->generation(), 5u);
  EXPECT_THAT(Join(Learner(0), UINT64_MAX),
              StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace flotilla
