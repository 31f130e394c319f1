#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/coordinator/roster.h"
#include "tests/services/coordinator/roster_fixture.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LeaseTest : public RosterTest {
 protected:
  std::vector<std::string> Lease(const v1::Member& learner, int count,
                                 const std::string& dial_address = "",
                                 const std::string& lease_id = "") {
    v1::LeaseEnvServersRequest request;
    request.set_lease_id(lease_id);
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

TEST_F(LeaseTest, OneThatIsAskedForAgainIsTheSame) {
  Make(2);
  Form({Learner(0), Learner(1)});
  for (const int pid : {1, 2, 3, 4}) {
    ASSERT_OK(Register(EnvServer("far", pid)));
  }
  const auto lease = [&](int learner, const std::string& id, int count = 1) {
    return Lease(Learner(learner), count, "", id);
  };
  EXPECT_THAT(lease(0, "a"), ElementsAre("env/far/1"));
  EXPECT_THAT(lease(0, "a"), ElementsAre("env/far/1"));
  EXPECT_THAT(lease(1, "a"), ElementsAre("env/far/2"));  // another's
  EXPECT_THAT(lease(0, "b"), ElementsAre("env/far/3"));
  EXPECT_THAT(lease(0, "b", 3), ElementsAre("env/far/3", "env/far/4"));
  Release(Learner(0), "env/far/1");
  EXPECT_THAT(lease(0, "c"), ElementsAre("env/far/1"));
  EXPECT_THAT(lease(0, "a"), IsEmpty());
  // Without one, each request is another.
  Release(Learner(0), "env/far/3");
  EXPECT_THAT(lease(0, ""), ElementsAre("env/far/3"));
  EXPECT_THAT(lease(0, ""), IsEmpty());
}

TEST_F(LeaseTest, TheNameOfARequestHasALimit) {
  Make(1);
  Form({Learner(0)});
  v1::LeaseEnvServersRequest request;
  request.set_member_id(Learner(0).id());
  request.set_count(1);
  request.set_lease_id(std::string(257, 'x'));
  EXPECT_THAT(roster_->LeaseEnvServers(request, kKey),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("lease_id"), HasSubstr("257 bytes"))));
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

TEST_F(LeaseTest, AReportFromBeforeTheReleaseDoesNotUndoIt) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Register(EnvServer("far", 1)));
  for (const bool reported : {false, true}) {
    Lease(Learner(0), 1);
    if (reported) Report(Learner(0), "env/far/1");
    Release(Learner(0), "env/far/1");
    Report(Learner(0), "env/far/1");
    EXPECT_EQ(AssignedRank("env/far/1"), -1);
  }
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
