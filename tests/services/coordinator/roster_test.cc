#include "services/coordinator/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/services/coordinator/roster_fixture.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;
using ::testing::StartsWith;

// ---- Registration

TEST_F(RosterTest, RegisterTellsIntervalsEpochAndRun) {
  Make(1);
  v1::Member member = Learner(0);
  member.set_run_id("run-7");
  ASSERT_OK_AND_ASSIGN(const v1::RegisterResponse response,
                       roster_->Register(member, kKey, clock_.Now()));
  EXPECT_EQ(response.heartbeat_ms(), 1000);
  EXPECT_EQ(response.dead_after_ms(), 5000);
  EXPECT_EQ(response.epoch(), "epoch-1");
  EXPECT_EQ(response.run_id(), "run-7");
}

TEST_F(RosterTest, RunWithoutANameGetsOne) {
  Make(1);
  ASSERT_OK_AND_ASSIGN(const v1::RegisterResponse response,
                       roster_->Register(Learner(0), kKey, clock_.Now()));
  EXPECT_THAT(response.run_id(), HasSubstr("epoch-1"));
}

TEST_F(RosterTest, MemberOfAnotherRunIsRefusedByName) {
  options_.run_id = "run-a";
  Make(options_);
  v1::Member member = Learner(0);
  member.set_run_id("run-b");
  EXPECT_THAT(Register(member),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("learner/0/0"), HasSubstr("run-a"),
                             HasSubstr("run-b"))));
}

TEST_F(RosterTest, AnotherBuildIsRefusedByName) {
  Make(2);
  ASSERT_OK(Register(Learner(0)));
  v1::Member other = Learner(1);
  other.set_version("2.0");
  EXPECT_THAT(
      Register(other),
      StatusIs(StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("learner/0/1"), HasSubstr("build \"2.0\""),
                     HasSubstr("learner/0/0"), HasSubstr("\"1.0\""))));
}

TEST_F(RosterTest, AnotherConfigurationIsRefusedByName) {
  Make(2);
  ASSERT_OK(Register(Learner(0)));
  v1::Member other = Learner(1);
  other.set_config_digest("def");
  EXPECT_THAT(Register(other),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("configuration digest \"def\""),
                             HasSubstr("\"abc\""),
                             HasSubstr("name runtime.precision"))));
}

TEST_F(RosterTest, RefusedMemberEvictsNobody) {
  Make(1);
  Form({Learner(0)});
  v1::Member other = Learner(0, 2);
  other.set_config_digest("def");
  EXPECT_THAT(Register(other), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_EQ(state(), v1::ACTIVE);
}

TEST_F(RosterTest, ConfigurationMayChangeBeforeTheFirstGeneration) {
  Make(1);
  ASSERT_OK(Register(Learner(0)));
  v1::Member again = Learner(0, 2);
  again.set_config_digest("def");
  EXPECT_OK(Register(again));
}

TEST_F(RosterTest, EnvServersNeedNoEqualBuild) {
  Make(1);
  ASSERT_OK(Register(Learner(0)));
  v1::Member server = EnvServer("far", 1);
  server.set_version("python 3");
  EXPECT_OK(Register(server));
}

TEST_F(RosterTest, MalformedMembersAreRefused) {
  Make(2);
  v1::Member member = Learner(0);
  member.set_id("");
  EXPECT_THAT(Register(member), StatusIs(StatusCode::kInvalidArgument));
  member.set_id(std::string(1000, 'x'));
  EXPECT_THAT(Register(member), StatusIs(StatusCode::kInvalidArgument));
  member = Learner(0);
  member.clear_role();
  EXPECT_THAT(Register(member),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("role")));
  member = Learner(0);
  member.set_requested_rank(3);
  EXPECT_THAT(Register(member),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 2")));
  member.set_requested_rank(-1);
  EXPECT_THAT(Register(member), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(RosterTest, MembersAreNotBelievedEverything) {
  Make(2);
  v1::Member member = Learner(0);
  member.set_requested_rank(std::numeric_limits<int32_t>::min());
  EXPECT_THAT(Register(member), StatusIs(StatusCode::kInvalidArgument,
                                         HasSubstr("asks for rank")));
  member = Learner(0);
  for (const int64_t restarts : {int64_t{-1}, int64_t{1} << 62}) {
    member.set_restarts(restarts);
    EXPECT_THAT(Register(member), StatusIs(StatusCode::kInvalidArgument,
                                           HasSubstr("member.restarts is")));
  }
  member = Learner(0);
  member.set_device(std::string(1 << 20, 'x'));
  EXPECT_THAT(Register(member),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("member.device has 1048576 bytes")));
}

TEST_F(RosterTest, MemberKeepsItsRole) {
  Make(1);
  v1::Member member = Learner(0);
  ASSERT_OK(Register(member));
  member.set_role(v1::ENV_SERVER);
  EXPECT_THAT(Register(member), StatusIs(StatusCode::kInvalidArgument,
                                         AllOf(HasSubstr("ENV_SERVER"),
                                               HasSubstr("as LEARNER"))));
}

TEST_F(RosterTest, HeartbeatsFillNoMemory) {
  Make(1);
  Form({Learner(0)});
  v1::Heartbeat beat;
  beat.set_member_id(Learner(0).id());
  beat.set_incarnation(1);
  for (int i = 0; i < 25'000;) {
    beat.clear_env_worker();
    for (const int end = i + 500; i < end; ++i) {
      beat.add_env_worker()->set_id(absl::StrCat("env/", i));
    }
    ASSERT_OK(roster_->Beat(beat, kKey, clock_.Now()));
  }
  beat.set_waits_for(std::string(1 << 20, 'x'));
  beat.set_trouble(std::string(1 << 20, 'x'));
  beat.set_started_over(std::string(1 << 20, 'x'));
  ASSERT_OK(roster_->Beat(beat, kKey, clock_.Now()));
  const auto cut = AllOf(SizeIs(Le(1024u)), StartsWith(std::string(980, 'x')));
  EXPECT_THAT(roster_->GetStatus(clock_.Now()).started_over(), cut);
  const v1::LearnerStatus learner = roster_->GetStatus(clock_.Now()).learner(0);
  EXPECT_LE(learner.env_worker_size(), 10'000);
  EXPECT_THAT(learner.waits_for(), cut);
  EXPECT_THAT(learner.trouble(), cut);

  beat.mutable_env_worker(0)->set_host(std::string(1 << 20, 'x'));
  EXPECT_THAT(
      roster_->Beat(beat, kKey, clock_.Now()),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("want at most 1024")));
  beat.clear_env_worker();
  for (int i = 0; i < 10'001; ++i) beat.add_env_worker();
  EXPECT_THAT(
      roster_->Beat(beat, kKey, clock_.Now()),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("10001 workers")));
  beat.clear_env_worker();
  beat.set_env_worker_restarts(std::numeric_limits<int64_t>::max());
  EXPECT_THAT(roster_->Beat(beat, kKey, clock_.Now()),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("heartbeat.env_worker_restarts")));
}

TEST_F(RosterTest, TwoMembersCannotAskForOneRank) {
  Make(2);
  v1::Member first = Learner(0), second = Learner(1);
  first.set_requested_rank(1);
  second.set_requested_rank(1);
  ASSERT_OK(Register(first));
  EXPECT_THAT(Register(second),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rank 0"), HasSubstr("learner/0/0"),
                             HasSubstr("learner/0/1"))));
  ASSERT_OK(Leave(first));
  EXPECT_OK(Register(second));
}

TEST_F(RosterTest, RegisteringAgainChangesNothing) {
  Make(2);
  Form({Learner(0), Learner(1)});
  EXPECT_OK(Register(Learner(1)));
  EXPECT_EQ(state(), v1::ACTIVE);
  EXPECT_EQ(Place(Learner(1))->rank(), 1);
}

TEST_F(RosterTest, OlderIncarnationIsRefused) {
  Make(1);
  ASSERT_OK(Register(Learner(0, 3)));
  EXPECT_THAT(
      Register(Learner(0, 2)),
      StatusIs(StatusCode::kAlreadyExists,
               AllOf(HasSubstr("incarnation 3"), HasSubstr("incarnation 2"))));
  EXPECT_THAT(Beat(Learner(0, 2)), StatusIs(StatusCode::kAlreadyExists));
  EXPECT_THAT(Join(Learner(0, 2)), StatusIs(StatusCode::kAlreadyExists));
}

TEST_F(RosterTest, NewerIncarnationEvictsTheOlderAndFencesItsGeneration) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Register(Learner(1, 2)));
  EXPECT_EQ(state(), v1::FENCED);
  EXPECT_THAT(roster_->Command().fence_reason(),
              AllOf(HasSubstr("rank 1 (learner/0/1)"),
                    HasSubstr("replaced by its incarnation 2")));
  EXPECT_THAT(Beat(Learner(1, 1)), StatusIs(StatusCode::kAlreadyExists));
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).learner_restarts(), 1);
}

TEST_F(RosterTest, AnEnvServerThatIsReplacedIsNoLearner) {
  Make(1);
  v1::Member server = EnvServer("far", 1);
  server.set_dials(true);
  ASSERT_OK(Register(server));
  server.set_incarnation(2);
  ASSERT_OK(Register(server));
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).learner_restarts(), 0);
}

TEST_F(RosterTest, HeartbeatOfAStrangerIsAskedToRegister) {
  Make(1);
  ASSERT_OK_AND_ASSIGN(v1::Command command, Beat(Learner(0)));
  EXPECT_TRUE(command.register_again());
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK_AND_ASSIGN(command, Beat(Learner(0)));
  EXPECT_FALSE(command.register_again());
  ASSERT_OK_AND_ASSIGN(command, Beat(Learner(0, 2)));
  EXPECT_TRUE(command.register_again());
}

// ---- Evaluation

TEST_F(RosterTest, NewestEvaluationIsRepeatedToEveryone) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK_AND_ASSIGN(v1::Command command, Beat(Learner(1), 1));
  EXPECT_FALSE(command.has_evaluation());
  ASSERT_OK(roster_->ReportEvaluation(Verdict(2, true), kKey));
  ASSERT_OK_AND_ASSIGN(const v1::Evaluation newest,
                       roster_->ReportEvaluation(Verdict(1, false), kKey));
  EXPECT_EQ(newest.round(), 2);
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(command, Beat(Learner(1), 1));
    EXPECT_EQ(command.evaluation().round(), 2);
    EXPECT_TRUE(command.evaluation().stop());
  }
}

TEST_F(RosterTest, EvaluationOutlivesItsGeneration) {
  Make(1);
  Form({Learner(0)});
  ASSERT_OK(roster_->ReportEvaluation(Verdict(1, false), kKey));
  ASSERT_OK(Fail(Learner(0), 1));
  ASSERT_OK(Join(Learner(0), 1));
  EXPECT_EQ(roster_->Command().evaluation().round(), 1);
}

TEST_F(RosterTest, EvaluationNeedsARoundAndALearner) {
  Make(1);
  EXPECT_THAT(roster_->ReportEvaluation(Verdict(1, false), kKey),
              StatusIs(StatusCode::kNotFound));
  Form({Learner(0)});
  EXPECT_THAT(roster_->ReportEvaluation(Verdict(0, false), kKey),
              StatusIs(StatusCode::kInvalidArgument));
}

// gRPC carries 8 KiB of them.
TEST_F(RosterTest, WhatAnEvaluationIsRefusedWithIsShort) {
  Make(1);
  Form({Learner(0)});
  for (const int bytes : {1'000, 100'000}) {
    v1::ReportEvaluationRequest request = Verdict(1, false);
    auto& metrics = *request.mutable_evaluation()->mutable_mean_metric();
    metrics[std::string(bytes, 'x')] = std::nan("");
    const absl::Status refused =
        roster_->ReportEvaluation(request, kKey).status();
    EXPECT_THAT(refused,
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr(bytes > 65'536 ? "want at most 65536"
                                                  : "want a finite number")));
    EXPECT_LT(refused.message().size(), 256u);
  }
}

// ---- Preemption

class PreemptionTest : public RosterTest {
 protected:
  absl::Status Collected(int local, int64_t update, double fraction,
                         uint64_t generation = 1) {
    v1::ReportCollectedRequest request;
    request.set_generation(generation);
    request.set_member_id(Learner(local).id());
    request.set_update(update);
    request.set_fraction(fraction);
    return roster_->ReportCollected(request, kKey);
  }
  int64_t preempted() { return roster_->Command().preempt_update(); }
};

TEST_F(PreemptionTest, ComesAtTheFractionOfTheWorld) {
  Make(4);
  Form({Learner(0), Learner(1), Learner(2), Learner(3)});
  ASSERT_OK(Collected(0, 5, 0.6));  // ceil(2.4) = 3
  ASSERT_OK(Collected(1, 5, 0.6));
  ASSERT_OK(Collected(1, 5, 0.6));  // counts once
  EXPECT_EQ(preempted(), 0);
  const uint64_t before = roster_->command_version();
  ASSERT_OK(Collected(3, 5, 0.6));
  EXPECT_EQ(preempted(), 5);
  EXPECT_EQ(roster_->Command().preempt_generation(), 1u);
  EXPECT_GT(roster_->command_version(), before);
  const uint64_t after = roster_->command_version();
  ASSERT_OK(Collected(2, 5, 0.6));
  EXPECT_EQ(roster_->command_version(), after);  // one edge
}

TEST_F(PreemptionTest, NeedsOneAndLeavesOne) {
  Make(3);
  Form({Learner(0), Learner(1), Learner(2)});
  ASSERT_OK(Collected(0, 1, 0.01));
  EXPECT_EQ(preempted(), 1);
  ASSERT_OK(Collected(0, 2, 1.0));
  EXPECT_EQ(preempted(), 1);
  ASSERT_OK(Collected(1, 2, 1.0));  // two of three: the third is the straggler
  EXPECT_EQ(preempted(), 2);
}

TEST_F(PreemptionTest, NeverPreemptsAWorldOfOne) {
  Make(1);
  Form({Learner(0)});
  ASSERT_OK(Collected(0, 1, 1.0));
  EXPECT_EQ(preempted(), 0);
}

TEST_F(PreemptionTest, IgnoresUpdatesThatAreOver) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Collected(0, 5, 0.5));
  ASSERT_OK(Collected(1, 4, 0.5));
  EXPECT_EQ(preempted(), 5);
}

TEST_F(PreemptionTest, EndsWithTheGeneration) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Collected(0, 5, 0.5));
  ASSERT_OK(Fail(Learner(0), 1));
  EXPECT_THAT(Collected(1, 5, 0.5), StatusIs(StatusCode::kAborted));
  ASSERT_OK(Join(Learner(0), 1));
  ASSERT_OK(Join(Learner(1), 1));
  EXPECT_EQ(preempted(), 0);
  ASSERT_OK(Collected(1, 5, 0.5, 2));  // the redone update
  EXPECT_EQ(preempted(), 5);
}

TEST_F(PreemptionTest, RefusesFractionsThatAreNone) {
  Make(2);
  Form({Learner(0), Learner(1)});
  for (double bad : {0.0, -1.0, 1.5, std::nan("")}) {
    EXPECT_THAT(Collected(0, 1, bad), StatusIs(StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(Collected(9, 1, 0.5), StatusIs(StatusCode::kNotFound));
}

}  // namespace
}  // namespace flotilla
