#include "services/coordinator/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

v1::Member Learner(int local, uint64_t incarnation = 1, int node = 0) {
  v1::Member member;
  member.set_id(absl::StrCat("learner/", node, "/", local));
  member.set_incarnation(incarnation);
  member.set_role(v1::LEARNER);
  member.set_host(absl::StrCat("host", node));
  member.set_pid(1000 + local);
  member.set_node_rank(node);
  member.set_local_rank(local);
  member.set_version("1.0");
  member.set_config_digest("abc");
  return member;
}

v1::Member EnvServer(const std::string& host, int pid) {
  v1::Member member;
  member.set_id(absl::StrCat("env/", host, "/", pid));
  member.set_incarnation(1);
  member.set_role(v1::ENV_SERVER);
  member.set_host(host);
  member.set_pid(pid);
  member.set_address(absl::StrCat(host, ":5000"));
  member.set_num_envs(8);
  return member;
}

class RosterTest : public ::testing::Test {
 protected:
  // A roster for a fixed world of `learners`, or min to max.
  void Make(int min, int max) {
    RosterOptions options;
    options.epoch = "epoch-1";
    options.min_learners = min;
    options.max_learners = max;
    Make(options);
  }
  void Make(int learners) { Make(learners, learners); }
  void Make(const RosterOptions& options) {
    options_ = options;
    roster_ = std::make_unique<Roster>(options, clock_.Now());
  }

  // What a coordinator that takes over from this one makes of its state.
  void Restart(bool with_journal = true) {
    const RosterState state = roster_->State();
    options_.epoch += "+";
    Make(options_);
    if (with_journal) roster_->Restore(state, clock_.Now());
  }

  absl::Status Register(const v1::Member& member) {
    return roster_->Register(member, clock_.Now()).status();
  }

  static v1::JoinGenerationRequest Request(
      const v1::Member& member, uint64_t after = 0,
      std::optional<uint64_t> update = std::nullopt) {
    v1::JoinGenerationRequest request;
    request.set_member_id(member.id());
    request.set_incarnation(member.incarnation());
    request.set_after_generation(after);
    request.set_has_state(update.has_value());
    request.set_last_committed_update(update.value_or(0));
    return request;
  }

  absl::StatusOr<uint64_t> Join(const v1::Member& member, uint64_t after = 0,
                                std::optional<uint64_t> update = std::nullopt) {
    return roster_->Join(Request(member, after, update), clock_.Now());
  }

  // The place of a member that has joined; nullopt while it waits.
  std::optional<v1::Assignment> Place(const v1::Member& member,
                                      uint64_t after = 0) {
    auto result = roster_->JoinResult(Request(member, after));
    EXPECT_OK(result);
    return result.ok() ? *result : std::nullopt;
  }

  absl::StatusOr<v1::Command> Beat(const v1::Member& member,
                                   uint64_t generation = 0,
                                   v1::Phase phase = v1::LEARNING) {
    v1::Heartbeat beat;
    beat.set_member_id(member.id());
    beat.set_incarnation(member.incarnation());
    beat.set_generation(generation);
    beat.set_phase(phase);
    return roster_->Beat(beat, clock_.Now());
  }

  // Registers and joins them all.
  void Form(const std::vector<v1::Member>& members) {
    for (const v1::Member& member : members) ASSERT_OK(Register(member));
    for (const v1::Member& member : members) ASSERT_OK(Join(member));
    for (const v1::Member& member : members) ASSERT_TRUE(Place(member));
  }

  absl::Status Fail(const v1::Member& member, uint64_t generation,
                    const std::string& reason = "it broke") {
    v1::ReportFailureRequest request;
    request.set_member_id(member.id());
    request.set_generation(generation);
    request.set_reason(reason);
    return roster_->ReportFailure(request, clock_.Now());
  }

  absl::Status Leave(const v1::Member& member) {
    v1::LeaveRequest request;
    request.set_member_id(member.id());
    request.set_incarnation(member.incarnation());
    return roster_->Leave(request, clock_.Now());
  }

  // Time passes, with these members alive and well.
  void Pass(absl::Duration time, const std::vector<v1::Member>& alive,
            uint64_t generation = 0) {
    const absl::Time end = clock_.Now() + time;
    while (clock_.Now() < end) {
      clock_.Advance(std::min(end - clock_.Now(), absl::Seconds(1)));
      for (const v1::Member& member : alive) {
        ASSERT_OK(Beat(member, generation));
      }
      roster_->Tick(clock_.Now());
    }
  }

  std::string StateOf(const v1::Member& member) {
    const v1::Status status = roster_->GetStatus(clock_.Now());
    for (const v1::LearnerStatus& learner : status.learner()) {
      if (learner.id() == member.id()) return learner.state();
    }
    return "unknown";
  }

  v1::GenerationState state() { return roster_->Command().state(); }
  uint64_t generation() { return roster_->Command().generation(); }

  FakeClock clock_;
  RosterOptions options_;
  std::unique_ptr<Roster> roster_;
};

std::vector<std::string> Ids(const v1::Assignment& assignment) {
  std::vector<std::string> ids;
  for (const v1::Member& m : assignment.learner()) ids.push_back(m.id());
  return ids;
}

// ---- Registration

TEST_F(RosterTest, RegisterTellsIntervalsEpochAndRun) {
  Make(1);
  v1::Member member = Learner(0);
  member.set_run_id("run-7");
  ASSERT_OK_AND_ASSIGN(const v1::RegisterResponse response,
                       roster_->Register(member, clock_.Now()));
  EXPECT_EQ(response.heartbeat_ms(), 1000);
  EXPECT_EQ(response.dead_after_ms(), 5000);
  EXPECT_EQ(response.epoch(), "epoch-1");
  EXPECT_EQ(response.run_id(), "run-7");
}

TEST_F(RosterTest, RunWithoutANameGetsOne) {
  Make(1);
  ASSERT_OK_AND_ASSIGN(const v1::RegisterResponse response,
                       roster_->Register(Learner(0), clock_.Now()));
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
                             HasSubstr("\"abc\""))));
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
  EXPECT_THAT(Register(member), StatusIs(StatusCode::kInvalidArgument,
                                         HasSubstr("member has 1048")));
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
    ASSERT_OK(roster_->Beat(beat, clock_.Now()));
  }
  beat.set_waits_for(std::string(1 << 20, 'x'));
  ASSERT_OK(roster_->Beat(beat, clock_.Now()));
  const v1::LearnerStatus learner = roster_->GetStatus(clock_.Now()).learner(0);
  EXPECT_LE(learner.env_worker_size(), 10'000);
  EXPECT_EQ(learner.waits_for().size(), 1024);

  beat.mutable_env_worker(0)->set_host(std::string(1 << 20, 'x'));
  EXPECT_THAT(
      roster_->Beat(beat, clock_.Now()),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("want at most 4096")));
  beat.clear_env_worker();
  for (int i = 0; i < 10'001; ++i) beat.add_env_worker();
  EXPECT_THAT(
      roster_->Beat(beat, clock_.Now()),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("10001 workers")));
  beat.clear_env_worker();
  beat.set_env_worker_restarts(std::numeric_limits<int64_t>::max());
  EXPECT_THAT(roster_->Beat(beat, clock_.Now()),
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

TEST_F(RosterTest, LeavingEndsTheGenerationWithoutARestart) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Leave(Learner(1)));
  EXPECT_EQ(state(), v1::FENCED);
  EXPECT_EQ(StateOf(Learner(1)), "left");
  ASSERT_OK(Register(Learner(1, 2)));
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).learner_restarts(), 0);
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

// ---- Stop and close

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

TEST_F(RosterTest, ClosedRunRefusesJoinersAndFencesNothing) {
  Make(2);
  Form({Learner(0), Learner(1)});
  v1::CloseRunRequest request;
  request.set_status("solved");
  request.set_member_id("learner/0/0");
  ASSERT_OK(roster_->CloseRun(request));
  ASSERT_OK(roster_->CloseRun(request));
  EXPECT_EQ(state(), v1::CLOSED);
  ASSERT_OK_AND_ASSIGN(const v1::Command command, Beat(Learner(1), 1));
  EXPECT_TRUE(command.closed());
  EXPECT_THAT(Join(Learner(1), 1),
              StatusIs(StatusCode::kAborted, HasSubstr("solved")));
  EXPECT_THAT(Register(Learner(5)),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("solved")));
  ASSERT_OK(Leave(Learner(1)));
  Pass(absl::Seconds(10), {});
  EXPECT_EQ(roster_->Command().fenced_generation(), 0u);
  EXPECT_OK(roster_->CheckGeneration(1));
}

// ---- Evaluation

v1::ReportEvaluationRequest Verdict(int64_t round, bool stop) {
  v1::ReportEvaluationRequest request;
  request.set_member_id("learner/0/0");
  request.mutable_evaluation()->set_round(round);
  request.mutable_evaluation()->set_stop(stop);
  return request;
}

TEST_F(RosterTest, NewestEvaluationIsRepeatedToEveryone) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK_AND_ASSIGN(v1::Command command, Beat(Learner(1), 1));
  EXPECT_FALSE(command.has_evaluation());
  ASSERT_OK(roster_->ReportEvaluation(Verdict(2, true)));
  ASSERT_OK_AND_ASSIGN(const v1::Evaluation newest,
                       roster_->ReportEvaluation(Verdict(1, false)));
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
  ASSERT_OK(roster_->ReportEvaluation(Verdict(1, false)));
  ASSERT_OK(Fail(Learner(0), 1));
  ASSERT_OK(Join(Learner(0), 1));
  EXPECT_EQ(roster_->Command().evaluation().round(), 1);
}

TEST_F(RosterTest, EvaluationNeedsARoundAndALearner) {
  Make(1);
  EXPECT_THAT(roster_->ReportEvaluation(Verdict(1, false)),
              StatusIs(StatusCode::kNotFound));
  Form({Learner(0)});
  EXPECT_THAT(roster_->ReportEvaluation(Verdict(0, false)),
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
    return roster_->ReportCollected(request);
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
  std::vector<std::string> Lease(const v1::Member& learner, int count) {
    v1::LeaseEnvServersRequest request;
    request.set_member_id(learner.id());
    request.set_count(count);
    auto servers = roster_->LeaseEnvServers(request);
    EXPECT_OK(servers);
    std::vector<std::string> ids;
    for (const v1::Member& server : *servers) ids.push_back(server.id());
    return ids;
  }

  void Release(const v1::Member& learner, const std::string& server) {
    v1::ReleaseEnvServersRequest request;
    request.set_member_id(learner.id());
    request.add_env_server_id(server);
    ASSERT_OK(roster_->ReleaseEnvServers(request));
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

TEST_F(LeaseTest, OnlyLearnersLease) {
  Make(1);
  ASSERT_OK(Register(EnvServer("far", 1)));
  v1::LeaseEnvServersRequest request;
  request.set_member_id("env/far/1");
  request.set_count(1);
  EXPECT_THAT(roster_->LeaseEnvServers(request),
              StatusIs(StatusCode::kNotFound));
  Form({Learner(0)});
  request.set_member_id("learner/0/0");
  request.set_count(0);
  EXPECT_THAT(roster_->LeaseEnvServers(request),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(LeaseTest, AreRebuiltFromLearnersAfterARestart) {
  Make(1);
  Form({Learner(0)});
  ASSERT_OK(Register(EnvServer("far", 1)));
  Lease(Learner(0), 1);
  Restart();
  ASSERT_OK(Register(EnvServer("far", 1)));
  v1::Heartbeat beat;
  beat.set_member_id("learner/0/0");
  beat.set_incarnation(1);
  beat.set_generation(1);
  beat.add_env_worker()->set_id("env/far/1");
  ASSERT_OK(roster_->Beat(beat, clock_.Now()));
  EXPECT_EQ(AssignedRank("env/far/1"), 0);

  // Later a stale report does not undo a release.
  Pass(absl::Seconds(11), {Learner(0), EnvServer("far", 1)}, 1);
  Release(Learner(0), "env/far/1");
  ASSERT_OK(roster_->Beat(beat, clock_.Now()));
  EXPECT_EQ(AssignedRank("env/far/1"), -1);
}

// ---- Restart of the coordinator

TEST_F(RosterTest, RestartWithAJournalFencesNobody) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(roster_->ReportEvaluation(Verdict(3, false)));
  roster_->Stop("user");
  Restart();
  EXPECT_EQ(state(), v1::ACTIVE);
  EXPECT_EQ(generation(), 1u);
  EXPECT_EQ(roster_->Command().evaluation().round(), 3);
  EXPECT_TRUE(roster_->Command().stop());
  // They come back late, but within the time they have.
  Pass(absl::Seconds(9), {Learner(0)}, 1);
  Pass(absl::Seconds(10), {Learner(0), Learner(1)}, 1);
  EXPECT_EQ(state(), v1::ACTIVE);
  EXPECT_EQ(StateOf(Learner(1)), "alive");
  EXPECT_OK(roster_->CheckGeneration(1));
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
  ASSERT_OK(roster_->CloseRun(request));
  Restart();
  EXPECT_EQ(state(), v1::CLOSED);
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

// ---- Status

TEST_F(RosterTest, StatusFillsEveryField) {
  options_.run_id = "run-1";
  options_.min_learners = options_.max_learners = 2;
  options_.epoch = "epoch-1";
  Make(options_);
  v1::Member second = Learner(1);
  second.set_device("cuda:1 GPU-x");
  second.set_restarts(2);
  Form({Learner(0), second});
  v1::Member server = EnvServer("far", 9);
  server.set_restarts(4);
  ASSERT_OK(Register(server));
  v1::LeaseEnvServersRequest lease;
  lease.set_member_id("learner/0/1");
  lease.set_count(1);
  ASSERT_OK(roster_->LeaseEnvServers(lease));
  ASSERT_OK(roster_->ReportEvaluation(Verdict(1, true)));
  roster_->Stop("enough");

  v1::Heartbeat beat;
  beat.set_member_id("learner/0/0");
  beat.set_incarnation(1);
  beat.set_generation(1);
  beat.set_phase(v1::COLLECTIVE);
  beat.set_update(12);
  beat.set_env_steps(4096);
  beat.set_steps_per_second(100);
  beat.set_mean_return(17.5);
  beat.set_env_worker_restarts(1);
  ASSERT_OK(roster_->Beat(beat, clock_.Now()));
  beat.set_member_id("learner/0/1");
  beat.set_phase(v1::STEPPING);
  beat.set_phase_seconds(11.3);
  beat.set_steps_per_second(50);
  beat.set_env_worker_restarts(2);
  beat.set_waits_for("env worker 3");
  auto* worker = beat.add_env_worker();
  worker->set_id("w0");
  worker->set_state("restarting");
  ASSERT_OK(roster_->Beat(beat, clock_.Now()));
  beat.clear_env_worker();  // unchanged
  ASSERT_OK(roster_->Beat(beat, clock_.Now()));
  clock_.Advance(absl::Seconds(1));

  const v1::Status status = roster_->GetStatus(clock_.Now());
  EXPECT_EQ(status.run_id(), "run-1");
  EXPECT_EQ(status.state(), v1::ACTIVE);
  EXPECT_EQ(status.generation(), 1u);
  EXPECT_EQ(status.world_size(), 2);
  EXPECT_EQ(status.evaluation().round(), 1);
  EXPECT_TRUE(status.stop());
  EXPECT_EQ(status.stop_reason(), "enough");
  EXPECT_NE(status.version(), "");
  EXPECT_EQ(status.uptime_seconds(), 1);
  EXPECT_EQ(status.epoch(), "epoch-1");
  EXPECT_EQ(status.global_step(), 4096);
  EXPECT_EQ(status.update(), 12);
  EXPECT_EQ(status.steps_per_second(), 150);
  EXPECT_EQ(status.env_worker_restarts(), 3);
  EXPECT_EQ(status.learner_restarts(), 2);
  EXPECT_EQ(status.min_learners(), 2);
  EXPECT_EQ(status.max_learners(), 2);
  EXPECT_EQ(status.mean_return(), 17.5);
  EXPECT_EQ(status.config_digest(), "abc");
  EXPECT_EQ(status.waiting_for(),
            "rank 1 (learner/0/1) in STEPPING for 12.3 s, waiting for env "
            "worker 3");

  ASSERT_EQ(status.learner_size(), 2);
  const v1::LearnerStatus& learner = status.learner(1);
  EXPECT_EQ(learner.rank(), 1);
  EXPECT_EQ(learner.local_rank(), 1);
  EXPECT_EQ(learner.id(), "learner/0/1");
  EXPECT_EQ(learner.host(), "host0");
  EXPECT_EQ(learner.pid(), 1001);
  EXPECT_EQ(learner.device(), "cuda:1 GPU-x");
  EXPECT_EQ(learner.state(), "alive");
  EXPECT_EQ(learner.phase(), v1::STEPPING);
  EXPECT_EQ(learner.update(), 12);
  EXPECT_EQ(learner.last_heartbeat_seconds(), 1);
  EXPECT_EQ(learner.waits_for(), "env worker 3");
  EXPECT_EQ(learner.restarts(), 2);
  ASSERT_EQ(learner.env_worker_size(), 1);
  EXPECT_EQ(learner.env_worker(0).state(), "restarting");

  ASSERT_EQ(status.env_server_size(), 1);
  const v1::EnvServerStatus& env = status.env_server(0);
  EXPECT_EQ(env.id(), "env/far/9");
  EXPECT_EQ(env.host(), "far");
  EXPECT_EQ(env.address(), "far:5000");
  EXPECT_EQ(env.num_envs(), 8);
  EXPECT_EQ(env.assigned_rank(), 1);
  EXPECT_EQ(env.state(), "playing");
  EXPECT_EQ(env.restarts(), 4);
  EXPECT_EQ(env.pid(), 9);
}

TEST_F(RosterTest, StatusSaysWhoKeepsTheOthersWaiting) {
  Make(2);
  const auto waiting_for = [&] {
    return roster_->GetStatus(clock_.Now()).waiting_for();
  };
  EXPECT_THAT(waiting_for(), HasSubstr("0 of 2 learners have joined"));
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Beat(Learner(0), 1, v1::STEPPING));
  ASSERT_OK(Beat(Learner(1), 1, v1::LEARNING));
  EXPECT_EQ(waiting_for(), "");  // nobody is held up
  ASSERT_OK(Beat(Learner(0), 1, v1::COLLECTIVE));
  EXPECT_THAT(waiting_for(), HasSubstr("rank 1 (learner/0/1) in LEARNING"));
  ASSERT_OK(Beat(Learner(1), 1, v1::COLLECTIVE));
  EXPECT_EQ(waiting_for(), "");
  clock_.Advance(absl::Seconds(3));
  ASSERT_OK(Beat(Learner(0), 1, v1::COLLECTIVE));
  EXPECT_EQ(waiting_for(), "rank 1 (learner/0/1): no heartbeat for 3.0 s");
}

TEST_F(RosterTest, EnvRestartsAreNotForgottenWithTheirLearner) {
  Make(1);
  Form({Learner(0)});
  v1::Heartbeat beat;
  beat.set_member_id("learner/0/0");
  beat.set_incarnation(1);
  beat.set_env_worker_restarts(3);
  ASSERT_OK(roster_->Beat(beat, clock_.Now()));
  ASSERT_OK(Register(Learner(0, 2)));
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).env_worker_restarts(), 3);
}

TEST_F(RosterTest, VersionsGrowWithWhatPeopleMustHear) {
  Make(2);
  uint64_t command = roster_->command_version();
  uint64_t status = roster_->status_version();
  Form({Learner(0), Learner(1)});
  EXPECT_GT(roster_->command_version(), command);
  EXPECT_GT(roster_->status_version(), status);
  command = roster_->command_version();
  status = roster_->status_version();
  ASSERT_OK(Beat(Learner(0), 1));
  roster_->Tick(clock_.Now());
  EXPECT_EQ(roster_->command_version(), command);
  EXPECT_EQ(roster_->status_version(), status);
  roster_->SessionBroken("learner/0/0", 1);
  EXPECT_EQ(roster_->command_version(), command);
  EXPECT_GT(roster_->status_version(), status);
  ASSERT_OK(Fail(Learner(0), 1));
  EXPECT_GT(roster_->command_version(), command);
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
      EXPECT_TRUE(roster_->Register(me, now).ok());
      for (uint64_t after = 0; after < kGenerations; ++after) {
        v1::JoinGenerationRequest request = Request(me, after, after);
        EXPECT_TRUE(roster_->Join(request, now).ok());
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
        EXPECT_TRUE(roster_->Beat(beat, now).ok());
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
