#include "services/coordinator/coordinator_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/secret.h"
#include "services/base/steady_now.h"
#include "services/coordinator/limits.h"
#include "tests/services/coordinator/coordinator_service_fixture.h"
#include "tests/services/rpc/health_client.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_disk.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(CoordinatorServiceTest, ManyJoinOneGenerationAtOnce) {
  constexpr int kLearners = 16;
  Start(Patient(kLearners, kLearners));
  std::vector<std::thread> threads;
  for (int i = 0; i < kLearners; ++i) {
    threads.emplace_back([&, i] {
      ASSERT_OK(Register(TestLearner(i)));
      ASSERT_OK_AND_ASSIGN(const v1::Assignment place, Join(TestLearner(i)));
      EXPECT_EQ(place.generation(), 1u);
      EXPECT_EQ(place.world_size(), kLearners);
      EXPECT_EQ(place.rank(), i);
      EXPECT_EQ(place.learner(i).id(), TestLearner(i).id());
      EXPECT_EQ(place.epoch(), GetStatus().epoch());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CoordinatorServiceTest, RefusalsCarryCodeAndNames) {
  Start(Patient(1, 1));
  FormOne();
  v1::Member other = TestLearner(1);
  other.set_config_digest("def");
  EXPECT_THAT(Register(other),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("abc"), HasSubstr("def"))));
  ASSERT_OK(Register(TestLearner(1)));
  EXPECT_THAT(Join(TestLearner(1)),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("full")));
  EXPECT_THAT(Join(TestLearner(2)), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(Register(TestLearner(0, 0)),
              StatusIs(StatusCode::kAlreadyExists));
}

TEST_F(CoordinatorServiceTest, JoinGivesUpAtItsDeadlineAndSaysWhoIsMissing) {
  Start(Patient(2, 2));
  ASSERT_OK(Register(TestLearner(0)));
  ASSERT_OK(Register(TestLearner(1)));
  RawWatch watch(stub_.get());  // sees what passes while nobody looks
  v1::Status status;
  ASSERT_TRUE(watch.Read(&status));
  const double before = GetStatus().uptime_seconds();
  EXPECT_THAT(
      Join(TestLearner(0), 100),
      StatusIs(StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("1 of 2 learners have joined (learner/0/0)"),
                     HasSubstr("not joined: learner/0/1"))));
  // It may ask again for a moment, and then its wish is gone.
  do {
    ASSERT_TRUE(watch.Read(&status));
  } while (!absl::StrContains(status.waiting_for(), "0 of 2"));
  EXPECT_GT(status.uptime_seconds() - before, 1);
}

TEST_F(CoordinatorServiceTest, JoinWhoseClientGoesAwayIsForgotten) {
  Start(Patient(2, 2));
  ASSERT_OK(Register(TestLearner(0)));
  ASSERT_OK(Register(TestLearner(1)));
  {
    v1::JoinGenerationRequest request;
    request.set_member_id(TestLearner(0).id());
    request.set_incarnation(1);
    request.set_timeout_ms(60'000);
    EXPECT_THAT(Call(stub_.get(), &Stub::JoinGeneration, request,
                     absl::Milliseconds(200)),
                StatusIs(StatusCode::kDeadlineExceeded));
  }
  EXPECT_TRUE(Eventually([&] {
    return GetStatus().waiting_for().find("0 of 2") != std::string::npos;
  }));
}

TEST_F(CoordinatorServiceTest, SilentMemberIsDeadAndItsGenerationFenced) {
  Start(2, 2);
  ASSERT_OK(Register(TestLearner(0)));
  ASSERT_OK(Register(TestLearner(1)));
  std::thread other([&] { ASSERT_OK(Join(TestLearner(1))); });
  ASSERT_OK(Join(TestLearner(0)));
  other.join();

  RawSession session(stub_.get());
  v1::Command command;
  ASSERT_TRUE(session.Send(TestLearner(0), 1));
  while (command.fenced_generation() == 0) {
    ASSERT_TRUE(session.Read(&command));
    if (command.fenced_generation() > 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ASSERT_TRUE(session.Send(TestLearner(0), 1));
  }
  EXPECT_THAT(command.fence_reason(),
              HasSubstr("rank 1 (learner/0/1) sent no heartbeat"));
  EXPECT_EQ(command.state(), v1::FENCED);
}

TEST_F(CoordinatorServiceTest, FenceIsPushedAtOnceAndAbortsEveryCall) {
  Start(Patient(1, 1));
  FormOne();
  RawSession session(stub_.get());
  v1::Command command;
  ASSERT_TRUE(session.Send(TestLearner(0), 1));
  ASSERT_TRUE(session.Read(&command));
  EXPECT_EQ(command.generation(), 1u);
  EXPECT_EQ(command.state(), v1::ACTIVE);

  std::thread waiter([&] {
    EXPECT_THAT(Get(1, "never"),
                StatusIs(StatusCode::kAborted, HasSubstr("it broke")));
  });
  ASSERT_OK(Set(1, "key", "value"));
  ASSERT_OK(Fail(TestLearner(0), 1));
  EXPECT_THAT(Set(1, "key", "value"),
              StatusIs(StatusCode::kAborted, HasSubstr("it broke")));
  EXPECT_TRUE(session.ReadUntil(  // without a heartbeat
      [](const v1::Command& c) { return c.fenced_generation() == 1; },
      &command));
  waiter.join();
  EXPECT_OK(Fail(TestLearner(0), 1));
}

TEST_F(CoordinatorServiceTest, NewerIncarnationEvictsTheOlder) {
  Start(Patient(1, 1));
  FormOne();
  RawSession old(stub_.get());
  v1::Command command;
  ASSERT_TRUE(old.Send(TestLearner(0), 1));
  ASSERT_TRUE(old.Read(&command));
  ASSERT_OK(Register(TestLearner(0, 2)));
  old.Send(TestLearner(0), 1);
  EXPECT_THAT(old.Finish(),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("incarnation 2")));
  ASSERT_OK_AND_ASSIGN(const v1::Assignment place, Join(TestLearner(0, 2)));
  EXPECT_EQ(place.generation(), 2u);
}

// ---- In whose name

TEST_F(CoordinatorServiceTest, AnotherSecretOrNoneSpeaksForNobody) {
  Start(Patient(1, 1));
  FormOne();
  for (const CallMetadata& metadata :
       {MemberMetadata("learner/0/0", DrawSecret()), CallMetadata(),
        MemberMetadata("learner/0/0", "short")}) {
    ASSERT_OK_AND_ASSIGN(
        const auto channel,
        MakeChannel(coordinator_->address(), RpcCredentials(), metadata));
    const auto stranger = v1::CoordinatorService::NewStub(channel);
    RawSession session(stranger.get());
    session.Send(TestLearner(0), 1);
    EXPECT_THAT(session.Finish(), StatusIs(StatusCode::kPermissionDenied,
                                           HasSubstr("learner/0/0")));
    v1::LeaveRequest leave;
    leave.set_member_id("learner/0/0");
    leave.set_incarnation(1);
    EXPECT_THAT(Call(stranger.get(), &Stub::Leave, leave),
                StatusIs(StatusCode::kPermissionDenied));
    v1::KvSetRequest set;
    set.set_generation(1);
    set.set_key("key");
    EXPECT_THAT(Call(stranger.get(), &Stub::KvSet, set),
                StatusIs(StatusCode::kPermissionDenied));
    v1::CloseRunRequest close;
    close.set_member_id("learner/0/0");
    EXPECT_THAT(Call(stranger.get(), &Stub::CloseRun, close),
                StatusIs(StatusCode::kPermissionDenied));
  }
  EXPECT_EQ(GetStatus().state(), v1::ACTIVE);
  EXPECT_EQ(GetStatus().learner(0).state(), "alive");
  EXPECT_OK(Set(1, "key", "v"));
}

TEST_F(CoordinatorServiceTest, StrangersSessionDoesNotTakeTheMembersPlace) {
  Start(Patient(1, 1));
  FormOne();
  RawSession own(stub_.get());
  v1::Command command;
  ASSERT_TRUE(own.Send(TestLearner(0), 1));
  ASSERT_TRUE(own.Read(&command));
  ASSERT_OK_AND_ASSIGN(
      const auto channel,
      MakeChannel(coordinator_->address(), RpcCredentials(),
                  MemberMetadata("learner/0/0", DrawSecret())));
  const auto stub = v1::CoordinatorService::NewStub(channel);
  RawSession stranger(stub.get());
  stranger.Send(TestLearner(0), 1);
  EXPECT_THAT(stranger.Finish(), StatusIs(StatusCode::kPermissionDenied));
  EXPECT_EQ(GetStatus().learner(0).state(), "alive");
  ASSERT_TRUE(own.Send(TestLearner(0), 1));
  EXPECT_TRUE(own.Read(&command));
}

// ---- Key-value store

TEST_F(CoordinatorServiceTest, WaitsForKeysUntilTheyCome) {
  Start(Patient(1, 1));
  FormOne();
  std::thread getter([&] {
    ASSERT_OK_AND_ASSIGN(const std::string value, Get(1, "b"));
    EXPECT_EQ(value, "2");
  });
  std::thread waiter([&] {
    v1::KvWaitRequest request;
    request.set_generation(1);
    request.add_key("a");
    request.add_key("b");
    request.set_timeout_ms(10'000);
    EXPECT_OK(Call(stub_.get(), &Stub::KvWait, request));
  });
  ASSERT_OK(Set(1, "a", "1"));
  ASSERT_OK(Set(1, "b", "2"));
  getter.join();
  waiter.join();
}

TEST_F(CoordinatorServiceTest, WaitForAKeyEndsAtItsDeadlineNamingIt) {
  Start(Patient(1, 1));
  FormOne();
  EXPECT_THAT(Get(1, "missing", 100), StatusIs(StatusCode::kDeadlineExceeded,
                                               HasSubstr("\"missing\"")));
  EXPECT_THAT(Get(1, "missing", 0), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_THAT(Get(1, "missing", -5), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_THAT(Get(2, "missing", 100),
              StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(Get(0, "missing", 100), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(CoordinatorServiceTest, EveryKeyValueCallWorks) {
  Start(Patient(1, 1));
  FormOne();
  v1::KvAddRequest add;
  add.set_generation(1);
  add.set_key("n");
  add.set_amount(4);
  EXPECT_EQ(Call(stub_.get(), &Stub::KvAdd, add)->value(), 4);
  v1::KvCompareSetRequest swap;
  swap.set_generation(1);
  swap.set_key("n");
  swap.set_expected("4");
  swap.set_desired("5");
  EXPECT_EQ(Call(stub_.get(), &Stub::KvCompareSet, swap)->value(), "5");
  v1::KvCheckRequest check;
  check.set_generation(1);
  check.add_key("n");
  EXPECT_TRUE(Call(stub_.get(), &Stub::KvCheck, check)->all_present());
  v1::KvCountRequest count;
  count.set_generation(1);
  EXPECT_EQ(Call(stub_.get(), &Stub::KvCount, count)->count(), 1);
  v1::KvDeleteRequest del;
  del.set_generation(1);
  del.set_key("n");
  EXPECT_TRUE(Call(stub_.get(), &Stub::KvDelete, del)->deleted());
  EXPECT_FALSE(Call(stub_.get(), &Stub::KvCheck, check)->all_present());
}

TEST_F(CoordinatorServiceTest, OversizedValueIsRefusedAndTheServerGoesOn) {
  Start(Patient(1, 1));
  FormOne();
  EXPECT_THAT(Set(1, "key", std::string(2 << 20, 'x')),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("2097152")));
  EXPECT_OK(Set(1, "key", std::string(1 << 20, 'x')));
}

TEST_F(CoordinatorServiceTest, AbandonedWaitCostsNothing) {
  Start(Patient(1, 1));
  FormOne();
  v1::KvGetRequest request;
  request.set_generation(1);
  request.set_key("key");
  request.set_timeout_ms(60'000);
  EXPECT_THAT(Call(stub_.get(), &Stub::KvGet, request, absl::Milliseconds(100)),
              StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_OK(Set(1, "key", "v"));
}

// ---- Status, evaluation, stop

TEST_F(CoordinatorServiceTest, WatchTellsChangesAndKeepsTelling) {
  Start(Patient(1, 1));
  RawWatch watch(stub_.get());
  v1::Status status;
  ASSERT_TRUE(watch.Read(&status));
  EXPECT_EQ(status.state(), v1::GATHERING);
  FormOne();
  do {
    ASSERT_TRUE(watch.Read(&status));
  } while (status.state() != v1::ACTIVE);
  watch.Cancel();
  EXPECT_THAT(watch.Finish(), StatusIs(StatusCode::kCancelled));

  // A tenth of a second is the least.
  RawWatch often(stub_.get(), /*interval_ms=*/1);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(often.Read(&status));
}

TEST_F(CoordinatorServiceTest, WhoWatchesBesidesTheMostThatMayIsRefused) {
  Start(Patient(1, 1));
  std::vector<std::unique_ptr<RawWatch>> watches;
  v1::Status status;
  while (watches.size() < kMaxWatchers) {
    watches.push_back(std::make_unique<RawWatch>(stub_.get()));
    ASSERT_TRUE(watches.back()->Read(&status)) << watches.size();
  }
  RawWatch refused(stub_.get());
  EXPECT_FALSE(refused.Read(&status));
  EXPECT_THAT(refused.Finish(),
              StatusIs(StatusCode::kResourceExhausted,
                       HasSubstr(absl::StrCat(kMaxWatchers, " watch"))));
  EXPECT_EQ(GetStatus().state(), v1::GATHERING);
  watches.back()->Cancel();  // its place is free
  EXPECT_TRUE(Eventually([&] { return RawWatch(stub_.get()).Read(&status); }));
}

TEST_F(CoordinatorServiceTest, StopAndEvaluationReachEverySession) {
  Start(Patient(1, 1));
  FormOne();
  RawSession session(stub_.get());
  v1::Command command;
  ASSERT_TRUE(session.Send(TestLearner(0), 1));
  ASSERT_TRUE(session.Read(&command));

  v1::ReportEvaluationRequest report;
  report.set_member_id("learner/0/0");
  report.mutable_evaluation()->set_round(1);
  report.mutable_evaluation()->set_stop(true);
  ASSERT_OK(Call(stub_.get(), &Stub::ReportEvaluation, report));
  EXPECT_TRUE(session.ReadUntil(
      [](const v1::Command& c) { return c.evaluation().stop(); }, &command));

  v1::StopRequest stop;
  stop.set_reason("enough");
  EXPECT_EQ(Call(stub_.get(), &Stub::Stop, stop)->state(), v1::ACTIVE);
  EXPECT_TRUE(session.ReadUntil([](const v1::Command& c) { return c.stop(); },
                                &command));
  EXPECT_EQ(command.stop_reason(), "enough");
  EXPECT_TRUE(command.evaluation().stop());  // still

  RawSession late(stub_.get());
  ASSERT_TRUE(late.Send(TestLearner(0), 1));
  ASSERT_TRUE(late.Read(&command));
  EXPECT_TRUE(command.stop());
  EXPECT_EQ(command.evaluation().round(), 1);
  EXPECT_EQ(GetStatus().stop_reason(), "enough");
}

TEST_F(CoordinatorServiceTest, StopEndsWaitingJoins) {
  Start(Patient(2, 2));
  ASSERT_OK(Register(TestLearner(0)));
  std::thread joiner([&] {
    EXPECT_THAT(Join(TestLearner(0)),
                StatusIs(StatusCode::kAborted, HasSubstr("enough")));
  });
  EXPECT_TRUE(Eventually([&] {
    return GetStatus().waiting_for().find("1 of 2") != std::string::npos;
  }));
  v1::StopRequest stop;
  stop.set_reason("enough");
  ASSERT_OK(Call(stub_.get(), &Stub::Stop, stop));
  joiner.join();
}

TEST_F(CoordinatorServiceTest, SetWaitsForWhatTheRanksAgreeOn) {
  Start(Patient(1, 1));
  FormOne();
  RawSession session(stub_.get());
  v1::Command command;
  ASSERT_TRUE(session.Send(TestLearner(0), 1));
  v1::SetRequest wanted;
  wanted.add_override("ppo.epochs=2");
  wanted.set_timeout_ms(1);
  EXPECT_THAT(Call(stub_.get(), &Stub::Set, wanted),
              StatusIs(StatusCode::kDeadlineExceeded,
                       HasSubstr("have not agreed yet")));
  std::thread patient([&] {
    v1::SetRequest refused;
    refused.add_override("dqn.huber=true");
    refused.set_timeout_ms(60'000);
    EXPECT_THAT(Call(stub_.get(), &Stub::Set, refused),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("no dqn")));
  });
  ASSERT_TRUE(session.ReadUntil(
      [](const v1::Command& c) { return c.change_size() == 2; }, &command));
  auto* changes = command.mutable_change();
  changes->Mutable(0)->set_update(31);
  changes->Mutable(1)->set_update(32);
  changes->Mutable(1)->set_refused("no dqn");
  ASSERT_TRUE(session.Send(TestLearner(0), 1, *changes));
  patient.join();
  EXPECT_EQ(GetStatus().change(0).update(), 31);
  wanted.set_override(0, "env.num_envs=2");
  EXPECT_THAT(Call(stub_.get(), &Stub::Set, wanted),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(CoordinatorServiceTest, ElasticWorldFormsAfterItsLastCall) {
  Start(Patient(1, 4));
  ASSERT_OK(Register(TestLearner(0)));
  ASSERT_OK_AND_ASSIGN(const v1::Assignment place, Join(TestLearner(0)));
  EXPECT_EQ(place.world_size(), 1);
}

// ---- Shutdown and restart

TEST_F(CoordinatorServiceTest, ShutdownLetsEverybodyGoAtOnce) {
  Start(Patient(2, 2));
  ASSERT_OK(Register(TestLearner(0)));
  const auto going = StatusIs(StatusCode::kUnavailable);
  std::thread joiner([&] { EXPECT_THAT(Join(TestLearner(0)), going); });
  RawSession session(stub_.get());
  v1::Command command;
  ASSERT_TRUE(session.Send(TestLearner(0)));
  ASSERT_TRUE(session.Read(&command));
  EXPECT_TRUE(Eventually([&] {
    return GetStatus().waiting_for().find("1 of 2") != std::string::npos;
  }));
  const absl::Time start = SteadyNow();
  std::thread reader([&] { EXPECT_THAT(session.Finish(), going); });
  coordinator_->server()->Shutdown(absl::Seconds(60));
  EXPECT_LT(SteadyNow() - start, absl::Seconds(30));
  joiner.join();
  reader.join();
}

// Its launcher ends the coordinator as soon as rank 0 has closed the run.
TEST_F(CoordinatorServiceTest, WhoHasNotHeardOfTheEndHearsOfItAtLast) {
  for (int i = 0; i < 20; ++i) {
    Start(Patient(1, 1));
    FormOne();
    RawSession session(stub_.get());
    v1::Command command;
    ASSERT_TRUE(session.Send(TestLearner(0), 1));
    ASSERT_TRUE(session.Read(&command));
    std::thread reader([&] {
      EXPECT_TRUE(session.ReadUntil(
          [](const v1::Command& told) { return told.closed(); }, &command));
    });
    v1::CloseRunRequest close;
    close.set_member_id("learner/0/0");
    close.set_status("completed");
    ASSERT_OK(Call(stub_.get(), &Stub::CloseRun, close));
    coordinator_->server()->Shutdown(absl::Seconds(60));
    reader.join();
  }
}

TEST_F(CoordinatorServiceTest, JournalCarriesNumbersOverARestart) {
  TempDir folder;
  CoordinatorServiceOptions options = Patient(1, 1);
  options.journal = folder / "journal";
  options.roster.run_id = "run-1";
  Start(options);
  FormOne();
  const std::string epoch = GetStatus().epoch();
  ASSERT_OK(Fail(TestLearner(0), 1));

  Start(options);
  EXPECT_NE(GetStatus().epoch(), epoch);
  EXPECT_EQ(GetStatus().generation(), 1u);
  EXPECT_THAT(Set(1, "key", "v"), StatusIs(StatusCode::kAborted));
  ASSERT_OK(Register(TestLearner(0, 2)));
  ASSERT_OK_AND_ASSIGN(const v1::Assignment place, Join(TestLearner(0, 2)));
  EXPECT_EQ(place.generation(), 2u);
}

TEST_F(CoordinatorServiceTest, WhatWasAnsweredBeforeItEndsIsInTheJournal) {
  for (int i = 0; i < 20; ++i) {  // it mostly has the time to write it before
    TempDir folder;
    CoordinatorServiceOptions options = Patient(1, 1);
    options.journal = folder / "journal";
    Start(options);
    v1::StopRequest request;
    request.set_reason("enough");
    request.set_preempted(true);
    ASSERT_OK(Call(stub_.get(), &Stub::Stop, request));
    coordinator_.reset();
    EXPECT_THAT(ReadFile(options.journal),
                AllOf(HasSubstr("stop: true"), HasSubstr("preempted: true")));
  }
}

TEST_F(CoordinatorServiceTest, JournalKnowsAGenerationBeforeItsMembersDo) {
  TempDir folder;
  CoordinatorServiceOptions options = Patient(1, 1);
  options.journal = folder / "journal";
  Start(options);
  FormOne();
  EXPECT_THAT(ReadFile(options.journal),
              AllOf(HasSubstr("generation: 1"), HasSubstr("learner/0/0")));
}

TEST(CoordinatorServiceMakeTest, RefusesJournalsItCannotUse) {
  TempDir folder;
  CoordinatorServiceOptions options = TestCoordinator::Options(1, 1);
  options.journal = folder / "journal";
  WriteFile(options.journal, "garbage");
  EXPECT_THAT(CoordinatorService::Make(options),
              StatusIs(StatusCode::kDataLoss, HasSubstr("journal")));
  EXPECT_EQ(ReadFile(options.journal), "garbage");

  std::filesystem::remove(options.journal);
  options.roster.run_id = "run-1";
  { TestCoordinator first(options); }
  options.roster.run_id = "run-2";
  EXPECT_THAT(CoordinatorService::Make(options),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("run-1"), HasSubstr("run-2"))));

  options.journal = folder / "no/such/folder";
  ASSERT_OK_AND_ASSIGN(auto service, CoordinatorService::Make(options));
  EXPECT_THAT(service->Start(), StatusIs(StatusCode::kNotFound));
}

TEST(CoordinatorServiceMakeTest, OneThatTakesOverGoesOnWithoutAJournal) {
  TempDir folder;
  TinyDisk disk(folder.path());
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  CoordinatorServiceOptions options = TestCoordinator::Options(1, 1);
  options.journal = folder / "journal";
  { TestCoordinator first(options); }
  const std::string journal = ReadFile(options.journal);
  disk.Fill();
  {
    ASSERT_OK_AND_ASSIGN(auto next, CoordinatorService::Make(options));
    EXPECT_TRUE(next->takes_over());
    EXPECT_OK(next->Start());
  }
  EXPECT_EQ(ReadFile(options.journal), journal);
}

TEST_F(CoordinatorServiceTest, WhatAFullDiskDidNotTakeIsJournaledLater) {
  TempDir folder;
  TinyDisk disk(folder.path());
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  CoordinatorServiceOptions options = Patient(1, 1);
  options.journal = folder / "journal";
  Start(options);
  disk.Fill();
  v1::StopRequest request;
  request.set_reason("enough");
  ASSERT_OK(Call(stub_.get(), &Stub::Stop, request));
  // The thread that writes sends two statuses: it has tried to by then.
  RawWatch watch(stub_.get(), /*interval_ms=*/1);
  v1::Status status;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(watch.Read(&status));
  EXPECT_THAT(ReadFile(options.journal), Not(HasSubstr("enough")));
  // Nothing else happens that would have it written.
  disk.Free();
  EXPECT_TRUE(Eventually([&] {
    return ReadFile(options.journal).find("enough") != std::string::npos;
  }));
}

TEST_F(CoordinatorServiceTest, HealthKnowsTheCoordinator) {
  Start(Patient(1, 1));
  ASSERT_OK_AND_ASSIGN(auto channel, MakeChannel(coordinator_->address(), {}));
  ASSERT_OK_AND_ASSIGN(const auto status,
                       CheckHealth(channel, "flotilla.v1.CoordinatorService"));
  EXPECT_EQ(status, HealthResponse::SERVING);
}

}  // namespace
}  // namespace flotilla
