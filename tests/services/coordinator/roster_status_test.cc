#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "services/coordinator/roster.h"
#include "tests/services/coordinator/roster_fixture.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

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
  ASSERT_OK(roster_->LeaseEnvServers(lease, kKey));
  ASSERT_OK(roster_->ReportEvaluation(Verdict(1, true), kKey));
  roster_->Stop("enough", /*preempted=*/true);

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
  beat.set_started_over("no checkpoint");
  ASSERT_OK(roster_->Beat(beat, kKey, clock_.Now()));
  beat.clear_started_over();  // rank 0 knows
  beat.set_member_id("learner/0/1");
  beat.set_phase(v1::STEPPING);
  beat.set_phase_seconds(11.3);
  beat.set_steps_per_second(50);
  beat.set_env_worker_restarts(2);
  beat.set_waits_for("env worker 3");
  auto* worker = beat.add_env_worker();
  worker->set_id("w0");
  worker->set_state("restarting");
  ASSERT_OK(roster_->Beat(beat, kKey, clock_.Now()));
  beat.clear_env_worker();  // unchanged
  ASSERT_OK(roster_->Beat(beat, kKey, clock_.Now()));
  clock_.Advance(absl::Seconds(1));

  const v1::Status status = roster_->GetStatus(clock_.Now());
  EXPECT_EQ(status.run_id(), "run-1");
  EXPECT_EQ(status.state(), v1::ACTIVE);
  EXPECT_EQ(status.generation(), 1u);
  EXPECT_EQ(status.world_size(), 2);
  EXPECT_EQ(status.evaluation().round(), 1);
  EXPECT_TRUE(status.stop());
  EXPECT_EQ(status.stop_reason(), "enough");
  EXPECT_TRUE(status.preempted());
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
  EXPECT_EQ(status.started_over(), "no checkpoint");
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
  EXPECT_EQ(learner.env_worker(0).host(), learner.host());
  EXPECT_EQ(learner.env_worker(0).assigned_rank(), 1);

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

TEST_F(RosterTest, WhatMembersSayHasALimitByField) {
  Make(2);
  using Set = void (*)(v1::Member*, const std::string&);
  const std::pair<const char*, Set> fields[] = {
      {"address", [](v1::Member* m, const auto& s) { m->set_address(s); }},
      {"host", [](v1::Member* m, const auto& s) { m->set_host(s); }},
      {"device", [](v1::Member* m, const auto& s) { m->set_device(s); }},
      {"version", [](v1::Member* m, const auto& s) { m->set_version(s); }},
      {"config_digest",
       [](v1::Member* m, const auto& s) { m->set_config_digest(s); }},
      {"run_id", [](v1::Member* m, const auto& s) { m->set_run_id(s); }}};
  for (const auto& [name, set] : fields) {
    v1::Member member = Learner(0);
    set(&member, std::string(257, 'x'));
    EXPECT_THAT(Register(member),
                StatusIs(StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(name), HasSubstr("257 bytes"))));
  }
}

// Whatever members say, people can be told.
TEST_F(RosterTest, StatusFitsIntoAMessage) {
  constexpr size_t kMessage = 64 << 20;
  Make(2);
  v1::Member member = EnvServer("far", 0);
  for (std::string* text :
       {member.mutable_address(), member.mutable_host(),
        member.mutable_device(), member.mutable_version()}) {
    *text = std::string(256, 'x');
  }
  absl::Status status;
  int members = 0;
  for (; members < 100'000 && status.ok(); ++members) {
    member.set_id(absl::StrCat("env/far/", members));
    status = Register(member);
  }
  EXPECT_GT(members, 7'000);
  EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted));
  EXPECT_LT(roster_->GetStatus(clock_.Now()).ByteSizeLong(), kMessage);
}

TEST_F(RosterTest, ManyFatHeartbeatsLeaveWordsOutAndRoomForMembers) {
  constexpr size_t kMessage = 64 << 20;
  Make(1, 100'000);
  for (int i = 0; i < 100; ++i) {
    ASSERT_OK(Register(Learner(i)));
    v1::Heartbeat beat;
    beat.set_member_id(Learner(i).id());
    beat.set_incarnation(1);
    beat.set_update(7);
    beat.set_trouble(std::string(1024, 'x'));
    for (int j = 0; j < 2000; ++j) {
      v1::EnvServerStatus* worker = beat.add_env_worker();
      worker->set_id(absl::StrCat(j));
      worker->set_host(std::string(1000, 'x'));
    }
    ASSERT_OK(roster_->Beat(beat, kKey, clock_.Now()));
  }
  const v1::Status status = roster_->GetStatus(clock_.Now());
  EXPECT_LT(status.ByteSizeLong(), kMessage);
  EXPECT_EQ(status.learner(0).env_worker_size(), 2000);
  EXPECT_EQ(status.learner(99).env_worker_size(), 0);
  EXPECT_EQ(status.learner(99).update(), 7);
  // Those who go give back what they took.
  Pass(absl::Minutes(2), {Learner(99)});
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).learner_size(), 1);
  for (int i = 0; i < 100; ++i) ASSERT_OK(Register(Learner(i, 2)));
}

// Status says for them that they are where their learner is.
TEST_F(RosterTest, WorkersThatNameNoHostWeighWhatStatusSaysOfThem) {
  constexpr size_t kMessage = 64 << 20;
  Make(1, 100'000);
  for (int i = 0; i < 30; ++i) {
    v1::Member learner = Learner(i);
    learner.set_host(std::string(256, 'x'));
    ASSERT_OK(Register(learner));
    v1::Heartbeat beat;
    beat.set_member_id(learner.id());
    beat.set_incarnation(1);
    for (int j = 0; j < 10'000; ++j) {
      beat.add_env_worker()->set_id(absl::StrCat(j));
    }
    ASSERT_OK(roster_->Beat(beat, kKey, clock_.Now()));
  }
  const v1::Status status = roster_->GetStatus(clock_.Now());
  EXPECT_LT(status.ByteSizeLong(), kMessage);
  EXPECT_EQ(status.learner(0).env_worker_size(), 10'000);
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
  beat.set_failed_rows(40);
  ASSERT_OK(roster_->Beat(beat, kKey, clock_.Now()));
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).learner(0).failed_rows(), 40);
  ASSERT_OK(Register(Learner(0, 2)));
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).env_worker_restarts(), 3);
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).failed_rows(), 40);
  beat.set_incarnation(2);
  beat.set_failed_rows(2);
  ASSERT_OK(roster_->Beat(beat, kKey, clock_.Now()));
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).failed_rows(), 42);
  beat.set_failed_rows(-1);
  EXPECT_THAT(roster_->Beat(beat, kKey, clock_.Now()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("heartbeat.failed_rows")));
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

}  // namespace
}  // namespace flotilla
