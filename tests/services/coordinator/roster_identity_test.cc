#include <cstdint>
#include <limits>
#include <string>

#include "tests/services/coordinator/roster_fixture.h"

// Who may speak for whom.

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kOther[] = "another key";
constexpr uint64_t kHighest = std::numeric_limits<uint64_t>::max();

class RosterIdentityTest : public RosterTest {
 protected:
  absl::Status RegisterWith(const v1::Member& member, const std::string& key) {
    return roster_->Register(member, key, clock_.Now()).status();
  }

  absl::Status BeatWith(const v1::Member& member, const std::string& key) {
    v1::Heartbeat beat;
    beat.set_member_id(member.id());
    beat.set_incarnation(member.incarnation());
    return roster_->Beat(beat, key, clock_.Now()).status();
  }

  absl::Status LeaveWith(const v1::Member& member, const std::string& key) {
    v1::LeaveRequest request;
    request.set_member_id(member.id());
    request.set_incarnation(member.incarnation());
    return roster_->Leave(request, key, clock_.Now());
  }

  absl::Status CloseWith(const std::string& id, const std::string& key) {
    v1::CloseRunRequest request;
    request.set_member_id(id);
    request.set_status("failed");
    return roster_->CloseRun(request, key);
  }
};

const auto& Denied() {
  static const auto& matcher = *new auto(
      StatusIs(StatusCode::kPermissionDenied, HasSubstr("learner/0/0")));
  return matcher;
}

TEST_F(RosterIdentityTest, RegisteringTakesASecret) {
  Make(1);
  EXPECT_THAT(
      RegisterWith(Learner(0), ""),
      StatusIs(StatusCode::kUnauthenticated,
               AllOf(HasSubstr("learner/0/0"), HasSubstr("flotilla-secret"))));
  EXPECT_OK(RegisterWith(Learner(0), kKey));
}

TEST_F(RosterIdentityTest, NoCallInAnothersNameIsHeard) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Register(EnvServer("far", 1)));
  const uint64_t version = roster_->state_version();
  for (const std::string key : {kOther, ""}) {
    EXPECT_THAT(BeatWith(Learner(0), key), Denied());
    EXPECT_THAT(LeaveWith(Learner(0), key), Denied());
    EXPECT_THAT(roster_->Join(Request(Learner(0), 1), key, clock_.Now()),
                Denied());
    v1::ReportFailureRequest failure;
    failure.set_member_id("learner/0/0");
    failure.set_generation(1);
    EXPECT_THAT(roster_->ReportFailure(failure, key, clock_.Now()), Denied());
    EXPECT_THAT(roster_->ReportEvaluation(Verdict(1, true), key), Denied());
    v1::ReportCollectedRequest collected;
    collected.set_member_id("learner/0/0");
    collected.set_generation(1);
    collected.set_fraction(0.1);
    EXPECT_THAT(roster_->ReportCollected(collected, key), Denied());
    v1::LeaseEnvServersRequest lease;
    lease.set_member_id("learner/0/0");
    lease.set_count(1);
    EXPECT_THAT(roster_->LeaseEnvServers(lease, key), Denied());
    v1::ReleaseEnvServersRequest release;
    release.set_member_id("learner/0/0");
    EXPECT_THAT(roster_->ReleaseEnvServers(release, key), Denied());
    EXPECT_THAT(CloseWith("learner/0/0", key), Denied());
    EXPECT_THAT(roster_->CheckInGeneration(1, "learner/0/0", key), Denied());
  }
  EXPECT_THAT(RegisterWith(Learner(0), kOther), Denied());
  EXPECT_THAT(RegisterWith(Learner(0, 2), kOther), Denied());
  EXPECT_EQ(roster_->state_version(), version);
  EXPECT_EQ(roster_->Command().state(), v1::ACTIVE);
  EXPECT_OK(BeatWith(Learner(0), kKey));
}

TEST_F(RosterIdentityTest, ReplacementWithTheSecretSpeaks) {
  Make(2);
  Form({Learner(0), Learner(1)});
  clock_.Advance(absl::Seconds(1));
  roster_->Tick(clock_.Now());
  ASSERT_OK(Register(Learner(0, 2)));  // its predecessor was killed
  EXPECT_OK(BeatWith(Learner(0, 2), kKey));
  ASSERT_OK(Join(Learner(0, 2)));
  ASSERT_OK(Join(Learner(1), 1));
  EXPECT_TRUE(Place(Learner(0, 2)));
  EXPECT_OK(roster_->CheckInGeneration(2, "learner/0/0", kKey));
  EXPECT_THAT(BeatWith(Learner(0, 2), kOther), Denied());
}

TEST_F(RosterIdentityTest, DeadLearnersIdIsStillItsOwn) {
  Make(2);
  Form({Learner(0), Learner(1)});
  Pass(absl::Seconds(20), {Learner(1)}, 1);
  EXPECT_THAT(RegisterWith(Learner(0, 2), kOther), Denied());
  EXPECT_OK(RegisterWith(Learner(0, 2), kKey));
}

TEST_F(RosterIdentityTest, WhoHasLeftGivesItsIdUp) {
  Make(2);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Leave(Learner(0)));
  EXPECT_OK(RegisterWith(Learner(0), kOther));
  EXPECT_THAT(BeatWith(Learner(0), kKey), Denied());
  EXPECT_OK(BeatWith(Learner(0), kOther));
}

TEST_F(RosterIdentityTest, EnvServersGiveTheirIdsUpWhenTheyDie) {
  Make(1);
  ASSERT_OK(Register(EnvServer("far", 1)));
  EXPECT_THAT(RegisterWith(EnvServer("far", 1), kOther),
              StatusIs(StatusCode::kPermissionDenied));
  Pass(absl::Seconds(20), {});
  EXPECT_OK(RegisterWith(EnvServer("far", 1), kOther));
}

TEST_F(RosterIdentityTest, RoleOfAnIdNeverChanges) {
  Make(2);
  Form({Learner(0), Learner(1)});
  for (const uint64_t incarnation : {1, 2}) {
    v1::Member member = EnvServer("far", 1);
    member.set_id("learner/0/0");
    member.set_incarnation(incarnation);
    EXPECT_THAT(Register(member), StatusIs(StatusCode::kInvalidArgument,
                                           HasSubstr("ENV_SERVER")));
  }
  EXPECT_EQ(roster_->Command().state(), v1::ACTIVE);
}

TEST_F(RosterIdentityTest, IncarnationsThatJumpAreRefused) {
  Make(2);
  EXPECT_THAT(
      Register(Learner(0, kHighest)),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("member.incarnation")));
  Form({Learner(0), Learner(1)});
  for (const uint64_t jump : {kHighest, uint64_t{10'002}}) {
    EXPECT_THAT(Register(Learner(0, jump)),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("jumps")));
  }
  EXPECT_EQ(roster_->Command().state(), v1::ACTIVE);
  EXPECT_OK(Register(Learner(0, 10'001)));
}

TEST_F(RosterIdentityTest, KeysOutliveTheCoordinator) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Register(Learner(0, 1, /*node=*/1)));  // in no generation
  Restart();
  EXPECT_THAT(RegisterWith(Learner(0), kOther), Denied());
  EXPECT_THAT(RegisterWith(Learner(0, 2), kOther), Denied());
  EXPECT_THAT(BeatWith(Learner(0), kOther), Denied());
  EXPECT_THAT(RegisterWith(Learner(0, 1, 1), kOther),
              StatusIs(StatusCode::kPermissionDenied));
  Restart();  // again, before any of them is back
  EXPECT_THAT(RegisterWith(Learner(0, 1, 1), kOther),
              StatusIs(StatusCode::kPermissionDenied));
  EXPECT_OK(BeatWith(Learner(0), kKey));
  EXPECT_OK(Register(Learner(0, 1, 1)));
}

TEST_F(RosterIdentityTest, StateChangesWithAClaim) {
  Make(2);
  const uint64_t before = roster_->state_version();
  ASSERT_OK(Register(Learner(0)));
  const uint64_t claimed = roster_->state_version();
  EXPECT_GT(claimed, before);
  ASSERT_OK(Register(Learner(0)));
  EXPECT_EQ(roster_->state_version(), claimed);
  EXPECT_EQ(roster_->State().keys.sha256().at("learner/0/0"), kKey);
}

TEST_F(RosterIdentityTest, ValuesOfAGenerationAreItsMembers) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Register(Learner(5)));
  ASSERT_OK(Register(EnvServer("far", 1)));
  EXPECT_OK(roster_->CheckInGeneration(1, "learner/0/1", kKey));
  for (const char* id : {"learner/0/5", "env/far/1", "nobody", ""}) {
    EXPECT_THAT(roster_->CheckInGeneration(1, id, kKey),
                StatusIs(StatusCode::kPermissionDenied,
                         HasSubstr("not in generation 1")));
  }
}

TEST_F(RosterIdentityTest, OfAnAdoptedGenerationTheyWaitForTheirOwnReturn) {
  Make(2);
  Form({Learner(0), Learner(1)});
  Restart(/*with_journal=*/false);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Beat(Learner(0), 1));
  EXPECT_OK(roster_->CheckInGeneration(1, "learner/0/0", kKey));
  EXPECT_THAT(roster_->CheckInGeneration(1, "learner/0/1", kKey),
              StatusIs(StatusCode::kUnavailable));
}

TEST_F(RosterIdentityTest, OnlyALearnerClosesARunThatHasBegun) {
  Make(1);
  Form({Learner(0)});
  ASSERT_OK(Register(EnvServer("far", 1)));
  for (const char* id : {"learner/0/7", "env/far/1"}) {
    EXPECT_THAT(CloseWith(id, kKey), StatusIs(StatusCode::kNotFound));
  }
  EXPECT_FALSE(roster_->Command().closed());
  Pass(absl::Seconds(20), {});  // it dies, and its launcher gives up
  EXPECT_OK(CloseWith("learner/0/0", kKey));
  EXPECT_TRUE(roster_->Command().closed());
}

TEST_F(RosterIdentityTest, RefusedLearnersLauncherClosesARunThatHasNot) {
  Make(2);
  ASSERT_OK(Register(Learner(0)));
  v1::Member other = Learner(1);
  other.set_config_digest("other");
  ASSERT_THAT(Register(other), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_OK(CloseWith("learner/0/1", kKey));
  EXPECT_TRUE(roster_->Command().closed());
}

TEST_F(RosterIdentityTest, NumbersThatAreNotFiniteAreRefusedByName) {
  Make(1);
  Form({Learner(0)});
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    v1::ReportEvaluationRequest forged = Verdict(1, true);
    forged.mutable_evaluation()->set_mean_return(bad);
    EXPECT_THAT(roster_->ReportEvaluation(forged, kKey),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr("evaluation.mean_return")));
    forged = Verdict(1, true);
    (*forged.mutable_evaluation()->mutable_mean_metric())["spl"] = bad;
    EXPECT_THAT(roster_->ReportEvaluation(forged, kKey),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("spl")));
    v1::Heartbeat beat;
    beat.set_member_id("learner/0/0");
    beat.set_incarnation(1);
    beat.set_mean_return(bad);
    EXPECT_THAT(roster_->Beat(beat, kKey, clock_.Now()),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr("heartbeat.mean_return")));
  }
  EXPECT_FALSE(roster_->Command().has_evaluation());
}

}  // namespace
}  // namespace flotilla
