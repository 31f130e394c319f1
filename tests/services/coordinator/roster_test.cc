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
  for (int i = 0; i < 25'000; ++i) {
    beat.clear_env_worker();
    beat.add_env_worker()->set_id(absl::StrCat("env/", i));
    ASSERT_OK(roster_->Beat(beat, kKey, clock_.Now()));
  }
  beat.set_waits_for(std::string(1 << 20, 'x'));
  beat.set_trouble(std::string(1 << 20, 'x'));
  beat.set_started_over(std::string(1 << 20, 'x'));
  ASSERT_OK(roster_->Beat(beat, kKey, clock_.Now()));
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).started_over().size(), 1024);
  const v1::LearnerStatus learner = roster_->GetStatus(clock_.Now()).learner(0);
  EXPECT_LE(learner.env_worker_size(), 10'000);
  EXPECT_EQ(learner.waits_for().size(), 1024);
  EXPECT_EQ(learner.trouble().size(), 1024);

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

// ---- Env servers

class LeaseTest : public RosterTest {
 protected:
  std::vector<std::string> Lease(const v1::Member& learner, int count,
                                 const std::string& dial_address = "") {
    v1::LeaseEnvServersRequest request;
    request.set_dial_address(dial_address);
    request.set_member_id(learner.id());
    request.set_count(count);
    auto servers = roster_->LeaseEnvServers(request, kKey);
    EXPECT_OK(servers);
    std::vector<std::string> ids;
    for (const v1::Member& server : *servers) ids.push_back(server.id());
    return ids;
  }

  void Release(const v1::Member& learner, const std::string& server) {
    v1::ReleaseEnvServersRequest request;
    request.set_member_id(learner.id());
    request.add_env_server_id(server);
    ASSERT_OK(roster_->ReleaseEnvServers(request, kKey));
  }

  // A heartbeat whose env worker 1 plays on `server`, as EnvPool says it.
  void Report(const v1::Member& learner, const std::string& server,
              uint64_t generation = 1) {
    v1::Heartbeat beat;
    beat.set_member_id(learner.id());
    beat.set_incarnation(learner.incarnation());
    beat.set_generation(generation);
    v1::EnvServerStatus* worker = beat.add_env_worker();
    worker->set_id("env worker 1");
    worker->set_server_id(server);
    worker->set_state(server.empty() ? "waiting for a server" : "playing");
    ASSERT_OK(roster_->Beat(beat, kKey, clock_.Now()));
  }

  int AssignedRank(const std::string& server) {
    const v1::Status status = roster_->GetStatus(clock_.Now());
    for (const v1::EnvServerStatus& env : status.env_server()) {
      if (env.id() == server) return env.assigned_rank();
    }
    return -2;
  }
};

TEST_F(LeaseTest, GivesWhatThereIsOnceOwnHostFirst) {
  Make(1);
  Form({Learner(0)});
  EXPECT_THAT(Lease(Learner(0), 1), IsEmpty());
  ASSERT_OK(Register(EnvServer("a-far", 1)));
  ASSERT_OK(Register(EnvServer("host0", 2)));
  ASSERT_OK(Register(EnvServer("z-far", 3)));
  EXPECT_THAT(Lease(Learner(0), 1), ElementsAre("env/host0/2"));
  EXPECT_THAT(Lease(Learner(0), 5), ElementsAre("env/a-far/1", "env/z-far/3"));
  EXPECT_THAT(Lease(Learner(0), 1), IsEmpty());
  EXPECT_EQ(AssignedRank("env/a-far/1"), 0);
}

TEST_F(LeaseTest, EndsWithRelease) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Register(EnvServer("far", 1)));
  ASSERT_THAT(Lease(Learner(0), 1), ElementsAre("env/far/1"));
  Release(Learner(1), "env/far/1");  // not its
  EXPECT_THAT(Lease(Learner(1), 1), IsEmpty());
  Release(Learner(0), "env/far/1");
  Release(Learner(0), "env/far/1");
  EXPECT_THAT(Lease(Learner(1), 1), ElementsAre("env/far/1"));
  EXPECT_EQ(AssignedRank("env/far/1"), 1);
}

TEST_F(LeaseTest, EndsWithTheLearnersMembershipButNotWithAFence) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Register(EnvServer("far", 1)));
  ASSERT_OK(Register(EnvServer("far", 2)));
  Lease(Learner(0), 1);
  Lease(Learner(1), 1);
  ASSERT_OK(Register(Learner(1, 2)));  // fences, and ends its lease alone
  EXPECT_EQ(AssignedRank("env/far/1"), 0);
  EXPECT_EQ(AssignedRank("env/far/2"), -1);
}

TEST_F(LeaseTest, SilentServerIsGoneAndFencesNothing) {
  Make(1);
  Form({Learner(0)});
  ASSERT_OK(Register(EnvServer("far", 1)));
  Lease(Learner(0), 1);
  Pass(absl::Seconds(6), {Learner(0)}, 1);
  EXPECT_EQ(state(), v1::ACTIVE);
  EXPECT_EQ(AssignedRank("env/far/1"), -1);
  EXPECT_THAT(Lease(Learner(0), 1), IsEmpty());
  ASSERT_OK(Register(EnvServer("far", 1)));
  EXPECT_THAT(Lease(Learner(0), 1), ElementsAre("env/far/1"));
}

v1::Member Dialler(uint64_t incarnation = 1) {
  v1::Member member = EnvServer("robot", 7);
  member.clear_address();
  member.set_dials(true);
  member.set_incarnation(incarnation);
  return member;
}

TEST_F(LeaseTest, WhoDialsGoesToLearnersThatListenAndIsToldWhere) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Register(Dialler()));
  EXPECT_THAT(Lease(Learner(0), 1), IsEmpty());
  EXPECT_EQ(roster_->CommandFor("env/robot/7").dial(), "");
  EXPECT_THAT(Lease(Learner(1), 1, "host1:4000"), ElementsAre("env/robot/7"));
  EXPECT_THAT(Lease(Learner(0), 1, "host0:4000"), IsEmpty());
  EXPECT_EQ(roster_->CommandFor("env/robot/7").dial(), "host1:4000");
  EXPECT_EQ(roster_->CommandFor("env/robot/7").dial_learner(), Learner(1).id());
  EXPECT_EQ(roster_->CommandFor(Learner(1).id()).dial(), "");
  Release(Learner(1), "env/robot/7");
  EXPECT_EQ(roster_->CommandFor("env/robot/7").dial(), "");
  EXPECT_EQ(roster_->CommandFor("env/robot/7").dial_learner(), "");
  EXPECT_EQ(roster_->CommandFor("nobody").generation(), 1u);
}

TEST_F(LeaseTest, WhoseServerIsSilentOrReplacedStaysItsLearners) {
  Make(1);
  Form({Learner(0)});
  ASSERT_OK(Register(Dialler()));
  Lease(Learner(0), 1, "host0:4000");
  Pass(absl::Seconds(6), {Learner(0)}, 1);
  EXPECT_EQ(roster_->CommandFor("env/robot/7").dial(), "");  // nobody is there
  EXPECT_THAT(Lease(Learner(0), 1, "host0:4000"), IsEmpty());
  ASSERT_OK(Register(Dialler()));
  EXPECT_EQ(roster_->CommandFor("env/robot/7").dial(), "host0:4000");
  ASSERT_OK(Register(Dialler(2)));
  EXPECT_EQ(roster_->CommandFor("env/robot/7").dial(), "host0:4000");
  EXPECT_EQ(AssignedRank("env/robot/7"), 0);
  // Until that says otherwise.
  Pass(absl::Seconds(6), {Learner(0)}, 1);
  Release(Learner(0), "env/robot/7");
  ASSERT_OK(Register(Dialler(2)));
  EXPECT_EQ(roster_->CommandFor("env/robot/7").dial(), "");
}

TEST_F(LeaseTest, WhoTakesADeadServersIdDoesNotTakeItsLease) {
  Make(1);
  Form({Learner(0)});
  ASSERT_OK(Register(Dialler()));
  Lease(Learner(0), 1, "host0:4000");
  Pass(absl::Seconds(6), {Learner(0)}, 1);
  ASSERT_OK(roster_->Register(Dialler(), "another key", clock_.Now()));
  EXPECT_EQ(roster_->CommandFor("env/robot/7").dial(), "");
}

TEST_F(LeaseTest, WhoLeavesOrWhoseLearnerGoesHasNowhereToDial) {
  Make(1);
  Form({Learner(0)});
  ASSERT_OK(Register(Dialler()));
  Lease(Learner(0), 1, "host0:4000");
  ASSERT_OK(Leave(Dialler()));
  ASSERT_OK(Register(Dialler()));
  EXPECT_EQ(roster_->CommandFor("env/robot/7").dial(), "");
  Lease(Learner(0), 1, "host0:4000");
  ASSERT_OK(Register(Learner(0, 2)));
  EXPECT_EQ(roster_->CommandFor("env/robot/7").dial(), "");
}

TEST_F(LeaseTest, DialAddressesAndWhoDialsAreChecked) {
  Make(1);
  v1::Member learner = Learner(0);
  learner.set_dials(true);
  EXPECT_THAT(Register(learner), StatusIs(StatusCode::kInvalidArgument));
  Form({Learner(0)});
  for (const std::string& address :
       {std::string("host 0:1"), std::string("host\n:1"),
        std::string(257, 'h')}) {
    v1::LeaseEnvServersRequest request;
    request.set_member_id("learner/0/0");
    request.set_count(1);
    request.set_dial_address(address);
    EXPECT_THAT(roster_->LeaseEnvServers(request, kKey),
                StatusIs(StatusCode::kInvalidArgument));
  }
}

TEST_F(LeaseTest, OnlyLearnersLease) {
  Make(1);
  ASSERT_OK(Register(EnvServer("far", 1)));
  v1::LeaseEnvServersRequest request;
  request.set_member_id("env/far/1");
  request.set_count(1);
  EXPECT_THAT(roster_->LeaseEnvServers(request, kKey),
              StatusIs(StatusCode::kNotFound));
  Form({Learner(0)});
  request.set_member_id("learner/0/0");
  request.set_count(0);
  EXPECT_THAT(roster_->LeaseEnvServers(request, kKey),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(LeaseTest, AreRebuiltFromLearnersAfterARestart) {
  Make(1);
  Form({Learner(0)});
  ASSERT_OK(Register(EnvServer("far", 1)));
  Lease(Learner(0), 1);
  Restart();
  Report(Learner(0), "env/far/1");
  // It may come back long after its learner.
  Pass(absl::Seconds(20), {Learner(0)}, 1);
  ASSERT_OK(Register(EnvServer("far", 1)));
  Report(Learner(0), "env/far/1");
  EXPECT_EQ(AssignedRank("env/far/1"), 0);
  EXPECT_THAT(Lease(Learner(0), 1), IsEmpty());  // for another of its workers
  Release(Learner(0), "env/far/1");
  Report(Learner(0), "");
  EXPECT_THAT(Lease(Learner(0), 1), ElementsAre("env/far/1"));
}

TEST_F(LeaseTest, WhoWasTakenForDeadStillPlaysWhereItDid) {
  Make(1, 2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Register(EnvServer("far", 1)));
  Lease(Learner(1), 1);
  Pass(absl::Seconds(6), {Learner(0), EnvServer("far", 1)}, 1);
  EXPECT_EQ(StateOf(Learner(1)), "dead");
  EXPECT_EQ(AssignedRank("env/far/1"), -1);
  ASSERT_OK(Register(Learner(1)));
  Report(Learner(1), "env/far/1");
  EXPECT_THAT(Lease(Learner(0), 1), IsEmpty());
}

TEST_F(LeaseTest, AReportFromBeforeTheReleaseHoldsUntilTheNextOne) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Register(EnvServer("far", 1)));
  Lease(Learner(0), 1);
  Release(Learner(0), "env/far/1");
  Report(Learner(0), "env/far/1");
  Report(Learner(0), "");
  EXPECT_THAT(Lease(Learner(1), 1), ElementsAre("env/far/1"));
  // Whoever has leased it since keeps it.
  Report(Learner(0), "env/far/1");
  EXPECT_EQ(AssignedRank("env/far/1"), 1);
}

TEST_F(LeaseTest, AnotherWorkersLeaseDoesNotEndWithAReport) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Register(EnvServer("far", 1)));
  Lease(Learner(0), 1);
  Report(Learner(0), "env/far/1");
  Release(Learner(0), "env/far/1");
  Lease(Learner(0), 1);  // for one that has not begun to play
  Report(Learner(0), "");
  EXPECT_THAT(Lease(Learner(1), 1), IsEmpty());
}

TEST_F(LeaseTest, OnlyEnvServersAreTakenForLeasedByAReport) {
  Make(2);
  Form({Learner(0), Learner(1)});
  Report(Learner(0), "learner/0/1");
  Report(Learner(0), "env/nobody/1");
  v1::Member server = EnvServer("far", 1);
  ASSERT_OK(Register(server));
  ASSERT_OK(Leave(server));
  Report(Learner(0), "env/far/1");
  EXPECT_EQ(AssignedRank("env/far/1"), -1);
}

}  // namespace
}  // namespace flotilla
