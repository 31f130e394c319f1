#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

#include "services/coordinator/roster.h"
#include "tests/services/coordinator/roster_fixture.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- Forming

TEST_F(RosterTest, GenerationFormsWhenAllHaveJoined) {
  Make(2);
  EXPECT_EQ(state(), v1::GATHERING);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK(Join(Learner(1)));
  EXPECT_FALSE(Place(Learner(1)));
  EXPECT_EQ(state(), v1::GATHERING);
  ASSERT_OK(Join(Learner(0)));
  EXPECT_EQ(state(), v1::ACTIVE);

  const std::optional<v1::Assignment> place = Place(Learner(1));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->generation(), 1u);
  EXPECT_EQ(place->rank(), 1);
  EXPECT_EQ(place->local_rank(), 1);
  EXPECT_EQ(place->world_size(), 2);
  EXPECT_EQ(place->epoch(), "epoch-1");
  EXPECT_EQ(place->learner(0).local_world_size(), 2);
  EXPECT_THAT(Ids(*place), ElementsAre("learner/0/0", "learner/0/1"));
  EXPECT_EQ(Place(Learner(0))->rank(), 0);
}

TEST_F(RosterTest, AskingAgainGivesTheSamePlace) {
  Make(1);
  Form({Learner(0)});
  ASSERT_OK(Join(Learner(0)));
  EXPECT_EQ(Place(Learner(0))->generation(), 1u);
  EXPECT_EQ(generation(), 1u);
}

TEST_F(RosterTest, RequestedRanksAreGiven) {
  Make(2);
  v1::Member first = Learner(0), second = Learner(1);
  first.set_requested_rank(2);
  second.set_requested_rank(1);
  Form({first, second});
  EXPECT_EQ(Place(first)->rank(), 1);
  EXPECT_EQ(Place(second)->rank(), 0);
}

TEST_F(RosterTest, OnlyRegisteredLearnersJoin) {
  Make(1);
  EXPECT_THAT(Join(Learner(0)), StatusIs(StatusCode::kNotFound));
  ASSERT_OK(Register(EnvServer("far", 1)));
  EXPECT_THAT(Join(EnvServer("far", 1)),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(RosterTest, WhyNotFormedSaysHowManyAndWho) {
  Make(3);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK(Join(Learner(1)));
  EXPECT_THAT(roster_->WhyNotFormed(),
              AllOf(HasSubstr("1 of 3 learners have joined (learner/0/1)"),
                    HasSubstr("not joined: learner/0/0")));
}

TEST_F(RosterTest, FullWorldRefusesOneMore) {
  Make(1);
  Form({Learner(0)});
  ASSERT_OK(Register(Learner(1)));
  EXPECT_THAT(Join(Learner(1)), StatusIs(StatusCode::kResourceExhausted,
                                         HasSubstr("1 of at most 1")));
  EXPECT_EQ(state(), v1::ACTIVE);
}

TEST_F(RosterTest, WishCanBeTakenBack) {
  Make(2);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK_AND_ASSIGN(const uint64_t first, Join(Learner(0)));
  ASSERT_OK_AND_ASSIGN(const uint64_t second, Join(Learner(0)));
  const absl::Time now = clock_.Now();
  roster_->GiveUpJoin("learner/0/0", first, now, now);  // no longer its wish
  EXPECT_THAT(roster_->WhyNotFormed(), HasSubstr("1 of 2"));
  roster_->GiveUpJoin("learner/0/0", second, now, now);
  EXPECT_THAT(roster_->WhyNotFormed(), HasSubstr("0 of 2"));
  ASSERT_OK(Join(Learner(1)));
  EXPECT_EQ(state(), v1::GATHERING);
}

TEST_F(RosterTest, WishMayLapseLater) {
  Make(2);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK_AND_ASSIGN(const uint64_t ticket, Join(Learner(0)));
  const absl::Time now = clock_.Now();
  roster_->GiveUpJoin("learner/0/0", ticket, now + absl::Seconds(2), now);
  Pass(absl::Seconds(1), {Learner(0)});
  EXPECT_THAT(roster_->WhyNotFormed(), HasSubstr("1 of 2"));
  Pass(absl::Seconds(1), {Learner(0)});
  EXPECT_THAT(roster_->WhyNotFormed(), HasSubstr("0 of 2"));
}

TEST_F(RosterTest, AskingInShortTurnsNeitherRestartsALastCallNorMissesAPlace) {
  Make(1, 3);
  ASSERT_OK(Register(Learner(0)));
  for (int second = 0; second < 30; ++second) {
    EXPECT_EQ(state(), second == 0 ? v1::GATHERING : v1::FORMING);
    ASSERT_OK_AND_ASSIGN(const uint64_t ticket, Join(Learner(0)));
    Pass(absl::Seconds(0.9), {Learner(0)});
    const absl::Time now = clock_.Now();
    roster_->GiveUpJoin("learner/0/0", ticket, now + absl::Seconds(1), now);
    Pass(absl::Seconds(0.1), {Learner(0)});
  }
  EXPECT_EQ(state(), v1::ACTIVE);  // while nobody asked
  ASSERT_OK(Join(Learner(0)));
  EXPECT_EQ(Place(Learner(0))->generation(), 1u);

  // The same for one who joins a generation that lives.
  ASSERT_OK(Register(Learner(1)));
  for (int second = 0; second < 30; ++second) {
    EXPECT_EQ(state(), v1::ACTIVE);
    ASSERT_OK_AND_ASSIGN(const uint64_t ticket, Join(Learner(1)));
    const absl::Time now = clock_.Now();
    roster_->GiveUpJoin("learner/0/1", ticket, now + absl::Seconds(2), now);
    Pass(absl::Seconds(1), {Learner(0), Learner(1)}, 1);
  }
  EXPECT_EQ(roster_->Command().fenced_generation(), 1u);
}

TEST_F(RosterTest, ElasticWorldWaitsForALastCall) {
  Make(1, 3);
  const std::vector<v1::Member> two = {Learner(0), Learner(1)};
  ASSERT_OK(Register(two[0]));
  ASSERT_OK(Join(two[0]));
  EXPECT_EQ(state(), v1::FORMING);
  EXPECT_THAT(roster_->WhyNotFormed(),
              HasSubstr("last call for up to 2 more, 30.0 s left"));
  Pass(absl::Seconds(20), {two[0]});
  ASSERT_OK(Register(two[1]));
  ASSERT_OK(Join(two[1]));
  EXPECT_EQ(state(), v1::FORMING);
  Pass(absl::Seconds(9), two);
  EXPECT_EQ(state(), v1::FORMING);
  Pass(absl::Seconds(1), two);
  EXPECT_EQ(state(), v1::ACTIVE);
  EXPECT_EQ(Place(two[1])->world_size(), 2);
}

TEST_F(RosterTest, LastCallEndsWhenTheWorldIsFull) {
  Make(1, 2);
  Form({Learner(0), Learner(1)});
  EXPECT_EQ(state(), v1::ACTIVE);
}

TEST_F(RosterTest, LastCallIsOffWhenTooFewAreLeft) {
  Make(2, 3);
  const std::vector<v1::Member> two = {Learner(0), Learner(1)};
  for (const v1::Member& member : two) ASSERT_OK(Register(member));
  ASSERT_OK(Join(two[0]));
  ASSERT_OK(Join(two[1]));
  EXPECT_EQ(state(), v1::FORMING);
  Pass(absl::Seconds(20), {two[0]});  // the other one dies
  EXPECT_EQ(state(), v1::GATHERING);
  ASSERT_OK(Register(Learner(1, 2)));
  ASSERT_OK(Join(Learner(1, 2)));
  EXPECT_EQ(state(), v1::FORMING);
  Pass(absl::Seconds(29), {two[0], Learner(1, 2)});
  EXPECT_EQ(state(), v1::FORMING);
}

TEST_F(RosterTest, JoinersEndAnElasticGenerationAfterALastCall) {
  Make(1, 3);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Join(Learner(0)));
  Pass(absl::Seconds(30), {Learner(0)});
  ASSERT_EQ(state(), v1::ACTIVE);

  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK(Join(Learner(1)));
  Pass(absl::Seconds(29), {Learner(0), Learner(1)}, 1);
  EXPECT_EQ(state(), v1::ACTIVE);
  Pass(absl::Seconds(1), {Learner(0), Learner(1)}, 1);
  EXPECT_EQ(roster_->Command().fenced_generation(), 1u);
  EXPECT_THAT(roster_->Command().fence_reason(),
              HasSubstr("learner/0/1 to join: the world grows from 1 to 2"));
  ASSERT_OK(Join(Learner(0), 1));  // all who live have joined: no last call
  EXPECT_EQ(Place(Learner(0), 1)->world_size(), 2);
  EXPECT_EQ(Place(Learner(1))->rank(), 1);
}

TEST_F(RosterTest, JoinersThatFillTheWorldNeedNoLastCall) {
  Make(1, 2);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Join(Learner(0)));
  Pass(absl::Seconds(30), {Learner(0)});
  ASSERT_EQ(state(), v1::ACTIVE);
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK(Join(Learner(1)));
  EXPECT_EQ(roster_->Command().fenced_generation(), 1u);
}

// Or it would write what the run came to once more, beside rank 0.
TEST_F(RosterTest, WhoJoinsARunThatIsConcludedWaitsForItsEnd) {
  for (const v1::Phase phase : {v1::EVALUATING, v1::SAVING, v1::FINISHED}) {
    Make(1, 2);
    ASSERT_OK(Register(Learner(0)));
    ASSERT_OK(Join(Learner(0)));
    Pass(absl::Seconds(30), {Learner(0)});
    ASSERT_EQ(state(), v1::ACTIVE);
    ASSERT_OK(Beat(Learner(0), 1, phase));
    ASSERT_OK(Register(Learner(1)));
    ASSERT_OK(Join(Learner(1)));
    for (int s = 0; s < 60; ++s) {
      clock_.Advance(absl::Seconds(1));
      ASSERT_OK(Beat(Learner(0), 1, phase));
      ASSERT_OK(Beat(Learner(1)));
      roster_->Tick(clock_.Now());
    }
    EXPECT_EQ(state(), v1::ACTIVE) << v1::Phase_Name(phase);
    EXPECT_FALSE(Place(Learner(1)).has_value());
    // One that an update waits for is none of the end.
    if (phase != v1::EVALUATING) continue;
    v1::Heartbeat beat;
    beat.set_member_id(Learner(0).id());
    beat.set_incarnation(1);
    beat.set_generation(1);
    beat.set_phase(phase);
    beat.set_waits_for("the evaluation of update 7");
    ASSERT_OK(roster_->Beat(beat, kKey, clock_.Now()));
    roster_->Tick(clock_.Now());
    EXPECT_EQ(roster_->Command().fenced_generation(), 1u);
  }
}

// The other may have been rank 0, and is lost.
TEST_F(RosterTest, WhoIsTakenOverAtItsEndWithoutAJournalDoesNotWaitForEver) {
  Make(2);
  Form({Learner(0), Learner(1)});
  Restart(/*with_journal=*/false);
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK(Beat(Learner(1), 1, v1::FINISHED));
  for (int s = 0; s < 30; ++s) {
    clock_.Advance(absl::Seconds(1));
    ASSERT_OK(Beat(Learner(1), 1, v1::FINISHED));
    roster_->Tick(clock_.Now());
  }
  EXPECT_EQ(roster_->Command().fenced_generation(), 1u);
}

// ---- Fences

TEST_F(RosterTest, SilentMemberDiesAndEndsItsGeneration) {
  Make(2);
  Form({Learner(0), Learner(1)});
  Pass(absl::Seconds(4.9), {Learner(0)}, 1);
  EXPECT_EQ(state(), v1::ACTIVE);
  EXPECT_EQ(StateOf(Learner(1)), "suspect");
  Pass(absl::Seconds(0.1), {Learner(0)}, 1);
  EXPECT_EQ(state(), v1::FENCED);
  EXPECT_THAT(roster_->Command().fence_reason(),
              HasSubstr("rank 1 (learner/0/1) sent no heartbeat for 5.0 s"));
  EXPECT_EQ(StateOf(Learner(1)), "dead");
  EXPECT_EQ(StateOf(Learner(0)), "alive");
}

TEST_F(RosterTest, BrokenSessionOnlyMakesAMemberSuspect) {
  Make(1);
  Form({Learner(0)});
  roster_->SessionBroken("learner/0/0", 1);
  EXPECT_EQ(StateOf(Learner(0)), "suspect");
  EXPECT_EQ(state(), v1::ACTIVE);
  ASSERT_OK(Beat(Learner(0), 1));
  EXPECT_EQ(StateOf(Learner(0)), "alive");
  roster_->SessionBroken("learner/0/0", 0);  // an older process's
  EXPECT_EQ(StateOf(Learner(0)), "alive");
}

TEST_F(RosterTest, FenceIsSticky) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Fail(Learner(0), 1));
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(const v1::Command command, Beat(Learner(1), 1));
    EXPECT_EQ(command.fenced_generation(), 1u);
    EXPECT_THAT(command.fence_reason(), HasSubstr("it broke"));
  }
  ASSERT_OK(Join(Learner(0), 1));
  ASSERT_OK(Join(Learner(1), 1));
  ASSERT_OK_AND_ASSIGN(const v1::Command command, Beat(Learner(1), 2));
  EXPECT_EQ(command.fenced_generation(), 1u);
  EXPECT_EQ(command.generation(), 2u);
}

TEST_F(RosterTest, ReportedFailureFencesOnce) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Fail(Learner(1), 1, "all-reduce timed out"));
  EXPECT_THAT(roster_->Command().fence_reason(),
              HasSubstr("rank 1 (learner/0/1) reported: all-reduce timed out"));
  EXPECT_OK(Fail(Learner(0), 1, "another"));
  EXPECT_THAT(roster_->Command().fence_reason(), HasSubstr("timed out"));
  ASSERT_OK(Join(Learner(0), 1));
  ASSERT_OK(Join(Learner(1), 1));
  EXPECT_OK(Fail(Learner(0), 1, "late"));
  EXPECT_EQ(state(), v1::ACTIVE);
}

TEST_F(RosterTest, OnlyMembersReportFailuresOfGenerationsThatExist) {
  Make(1);
  Form({Learner(0)});
  EXPECT_THAT(Fail(Learner(0), 0), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Fail(Learner(0), 2), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(Fail(Learner(7), 1), StatusIs(StatusCode::kNotFound));
  EXPECT_EQ(state(), v1::ACTIVE);
}

TEST_F(RosterTest, RestartsOfThoseWhoAreGoneAreAssignedToo) {
  Make(2, 3);
  Form({Learner(0), Learner(1), Learner(2)});
  ASSERT_OK(Register(Learner(2, 2)));
  Pass(absl::Seconds(5), {Learner(0), Learner(1)});  // it dies once more
  ASSERT_OK(Join(Learner(0), 1, 10));
  ASSERT_OK(Join(Learner(1), 1, 10));
  const std::optional<v1::Assignment> place = Place(Learner(0), 1);
  ASSERT_TRUE(place);
  EXPECT_THAT(Ids(*place), ElementsAre("learner/0/0", "learner/0/1"));
  EXPECT_EQ(place->learner_restarts(), 1);
}

TEST_F(RosterTest, LeavingEndsTheGenerationWithoutARestart) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Leave(Learner(1)));
  EXPECT_EQ(state(), v1::FENCED);
  EXPECT_EQ(StateOf(Learner(1)), "left");
  ASSERT_OK(Register(Learner(1, 2)));
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).learner_restarts(), 0);
  ASSERT_OK(Leave(Learner(1, 2)));
  v1::Member again = Learner(1, 3);
  again.set_restarts(1);  // its launcher had to start it again
  ASSERT_OK(Register(again));
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).learner_restarts(), 1);
  EXPECT_OK(Leave(Learner(9)));  // never came
}

TEST_F(RosterTest, JoiningTheNextEndsTheCurrent) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Join(Learner(1), 1));
  EXPECT_EQ(roster_->Command().fenced_generation(), 1u);
  EXPECT_THAT(roster_->Command().fence_reason(),
              HasSubstr("rank 1 (learner/0/1) left generation 1"));
}

TEST_F(RosterTest, WhoHasFinishedEndsNothingByGoing) {
  Make(3);
  Form({Learner(0), Learner(1), Learner(2)});
  ASSERT_OK(Beat(Learner(1), 1, v1::FINISHED));
  ASSERT_OK(Beat(Learner(2), 1, v1::FINISHED));
  ASSERT_OK(Leave(Learner(1)));
  Pass(absl::Seconds(10), {Learner(0)}, 1);
  EXPECT_EQ(StateOf(Learner(2)), "dead");
  EXPECT_EQ(state(), v1::ACTIVE);
}

TEST_F(RosterTest, CheckGenerationTellsFencedFromUnknown) {
  Make(1);
  EXPECT_THAT(roster_->CheckGeneration(0),
              StatusIs(StatusCode::kInvalidArgument));
  Form({Learner(0)});
  EXPECT_OK(roster_->CheckGeneration(1));
  EXPECT_THAT(
      roster_->CheckGeneration(2),
      StatusIs(StatusCode::kFailedPrecondition, HasSubstr("newest is 1")));
  ASSERT_OK(Fail(Learner(0), 1));
  EXPECT_THAT(roster_->CheckGeneration(1),
              StatusIs(StatusCode::kAborted,
                       AllOf(HasSubstr("it broke"),
                             HasSubstr("generation 2 is gathering"))));
  ASSERT_OK(Join(Learner(0), 1));
  EXPECT_THAT(roster_->CheckGeneration(1),
              StatusIs(StatusCode::kAborted, HasSubstr("current one is 2")));
}

// ---- The next generation

TEST_F(RosterTest, FixedWorldWaitsForTheReplacement) {
  Make(2);
  Form({Learner(0), Learner(1)});
  Pass(absl::Seconds(5), {Learner(0)}, 1);
  ASSERT_OK(Join(Learner(0), 1, 40));
  Pass(absl::Minutes(5), {Learner(0)}, 1);
  EXPECT_FALSE(Place(Learner(0), 1));
  EXPECT_EQ(state(), v1::GATHERING);
  EXPECT_THAT(roster_->WhyNotFormed(), HasSubstr("1 of 2"));
  EXPECT_THAT(roster_->WhyNotFormed(), HasSubstr("learner/0/1 (dead)"));

  ASSERT_OK(Register(Learner(1, 2)));
  ASSERT_OK(Join(Learner(1, 2)));
  const std::optional<v1::Assignment> place = Place(Learner(1, 2));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->generation(), 2u);
  EXPECT_EQ(place->rank(), 1);
  EXPECT_EQ(place->source_rank(), 0);
  EXPECT_EQ(place->last_committed_update(), 40u);
}

TEST_F(RosterTest, ElasticWorldShrinksAtOnceWhenAllSurvivorsAreBack) {
  Make(2, 3);
  const std::vector<v1::Member> all = {Learner(0), Learner(1), Learner(2)};
  Form(all);
  Pass(absl::Seconds(5), {all[1], all[2]}, 1);  // rank 0 dies
  ASSERT_OK(Join(all[2], 1, 10));
  EXPECT_FALSE(Place(all[2], 1));
  ASSERT_OK(Join(all[1], 1, 10));
  const std::optional<v1::Assignment> place = Place(all[2], 1);
  ASSERT_TRUE(place);
  EXPECT_THAT(Ids(*place), ElementsAre("learner/0/1", "learner/0/2"));
  EXPECT_EQ(place->rank(), 1);
}

TEST_F(RosterTest, ElasticWorldNeverShrinksBelowItsMinimum) {
  Make(2, 3);
  Form({Learner(0), Learner(1), Learner(2)});
  Pass(absl::Seconds(5), {Learner(0)}, 1);
  ASSERT_OK(Join(Learner(0), 1));
  Pass(absl::Minutes(2), {Learner(0)}, 1);
  EXPECT_FALSE(Place(Learner(0), 1));
}

TEST_F(RosterTest, MemberThatDoesNotJoinIsLeftBehindAfterALastCall) {
  Make(1, 2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Fail(Learner(0), 1));
  ASSERT_OK(Join(Learner(0), 1));
  EXPECT_EQ(state(), v1::FORMING);
  Pass(absl::Seconds(30), {Learner(0), Learner(1)}, 1);
  ASSERT_EQ(state(), v1::ACTIVE);
  EXPECT_EQ(Place(Learner(0), 1)->world_size(), 1);
  EXPECT_EQ(StateOf(Learner(1)), "joining");
}

TEST_F(RosterTest, SourceHasTheMostUpdatesAndTheLowestRankOfEquals) {
  Make(3);
  Form({Learner(0), Learner(1), Learner(2)});
  ASSERT_OK(Fail(Learner(0), 1));
  ASSERT_OK(Join(Learner(0), 1, 7));
  ASSERT_OK(Join(Learner(2), 1, 8));
  ASSERT_OK(Join(Learner(1), 1, 8));
  EXPECT_EQ(Place(Learner(0), 1)->source_rank(), 1);
  EXPECT_EQ(Place(Learner(0), 1)->last_committed_update(), 8u);
}

TEST_F(RosterTest, WhoHasNoStateIsNoSource) {
  Make(2);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK(Join(Learner(0)));
  ASSERT_OK(Join(Learner(1), 0, 0));  // restored at update 0
  EXPECT_EQ(Place(Learner(0))->source_rank(), 1);
}

TEST_F(RosterTest, FreshWorldTakesRankZerosState) {
  Make(2);
  Form({Learner(0), Learner(1)});
  EXPECT_EQ(Place(Learner(1))->source_rank(), 0);
  EXPECT_EQ(Place(Learner(1))->last_committed_update(), 0u);
}

TEST_F(RosterTest, StoppedProcessThatWakesUpJoinsAgain) {
  Make(2);
  Form({Learner(0), Learner(1)});
  Pass(absl::Seconds(6), {Learner(0)}, 1);
  ASSERT_OK_AND_ASSIGN(const v1::Command command, Beat(Learner(1), 1));
  EXPECT_TRUE(command.register_again());
  EXPECT_EQ(command.fenced_generation(), 1u);
  EXPECT_THAT(Join(Learner(1), 1), StatusIs(StatusCode::kNotFound));
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK(Join(Learner(1), 1));
  ASSERT_OK(Join(Learner(0), 1));
  EXPECT_EQ(Place(Learner(1), 1)->rank(), 1);
  EXPECT_EQ(Place(Learner(1), 1)->generation(), 2u);
}

TEST_F(RosterTest, PlaceIsGivenEvenIfItsGenerationWasFencedMeanwhile) {
  Make(2);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK(Join(Learner(0)));
  ASSERT_OK(Join(Learner(1)));
  ASSERT_OK(Fail(Learner(1), 1));
  const std::optional<v1::Assignment> place = Place(Learner(0));
  ASSERT_TRUE(place);  // or it would wait for ever: nobody knows its wish
  EXPECT_EQ(place->generation(), 1u);
  ASSERT_OK(Join(Learner(0), 1));
  EXPECT_FALSE(Place(Learner(0), 1));
}

TEST_F(RosterTest, WhoDoesNotWaitIsToldToJoinAgain) {
  Make(2);
  ASSERT_OK(Register(Learner(0)));
  EXPECT_THAT(roster_->JoinResult(Request(Learner(0))),
              StatusIs(StatusCode::kUnavailable));
}

TEST_F(RosterTest, WaiterThatDiesIsNotCounted) {
  Make(2);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Join(Learner(0)));
  Pass(absl::Seconds(5), {});
  EXPECT_THAT(roster_->JoinResult(Request(Learner(0))),
              StatusIs(StatusCode::kNotFound));
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK(Join(Learner(1)));
  EXPECT_EQ(state(), v1::GATHERING);
}

TEST_F(RosterTest, DeadMembersAreForgottenUnlessTheyHaveAPlace) {
  Make(1);
  ASSERT_OK(Register(EnvServer("far", 1)));
  ASSERT_OK(Register(Learner(1)));
  Form({Learner(0)});
  Pass(absl::Seconds(30), {Learner(0)}, 1);
  EXPECT_EQ(StateOf(Learner(1)), "dead");
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).env_server(0).state(), "dead");
  Pass(absl::Seconds(60), {Learner(0)}, 1);
  EXPECT_EQ(StateOf(Learner(1)), "unknown");
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).env_server_size(), 0);
  Pass(absl::Minutes(5), {});
  EXPECT_EQ(StateOf(Learner(0)), "dead");
}

// Many learners, each on its own thread, through several generations.
TEST_F(RosterTest, ManyThreadsMeetInEveryGeneration) {
  constexpr int kLearners = 8, kGenerations = 20;
  Make(kLearners);
  const absl::Time now = clock_.Now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kLearners; ++i) {
    threads.emplace_back([&, i] {
      const v1::Member me = Learner(i);
      EXPECT_TRUE(roster_->Register(me, kKey, now).ok());
      for (uint64_t after = 0; after < kGenerations; ++after) {
        v1::JoinGenerationRequest request = Request(me, after, after);
        EXPECT_TRUE(roster_->Join(request, kKey, now).ok());
        std::optional<v1::Assignment> place;
        while (!place) {
          auto result = roster_->JoinResult(request);
          ASSERT_TRUE(result.ok());
          place = *result;
          std::this_thread::yield();
        }
        EXPECT_EQ(place->generation(), after + 1);
        EXPECT_EQ(place->rank(), i);
        v1::Heartbeat beat;
        beat.set_member_id(me.id());
        beat.set_incarnation(1);
        beat.set_generation(after + 1);
        EXPECT_TRUE(roster_->Beat(beat, kKey, now).ok());
        roster_->GetStatus(now);
        // The last one in ends the generation by joining the next.
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(generation(), static_cast<uint64_t>(kGenerations));
}

}  // namespace
}  // namespace flotilla
