#include "services/coordinator/coordinator_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "services/base/secret.h"
#include "services/base/steady_now.h"
#include "tests/services/coordinator/coordinator_fixture.h"
#include "tests/services/coordinator/tcp_relay.h"
#include "tests/services/rpc/certificates.h"
#include "tests/testing/ports.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

// The client against the real service, with heartbeats of 100 ms and death
// after two seconds.

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Minutes(1);

class CoordinatorClientTest : public ::testing::Test {
 protected:
  void Start(int min, int max) { Start(TestCoordinator::Options(min, max)); }
  void Start(const CoordinatorServiceOptions& options,
             const std::string& address = AddressToListenAt()) {
    coordinator_ = std::make_unique<TestCoordinator>(options, address);
    address_ = coordinator_->address();
  }

  // Kills the coordinator; another takes its port.
  void Restart(const CoordinatorServiceOptions& options) {
    coordinator_.reset();
    Start(options, address_);
  }

  std::unique_ptr<CoordinatorClient> Client(const v1::Member& member,
                                            const std::string& address = "") {
    auto client = JoinRun(address.empty() ? address_ : address, member, {},
                          kLong, kTestSecret);
    EXPECT_OK(client);
    return client.ok() ? *std::move(client) : nullptr;
  }

  // Clients that have joined one generation. One after the other, so that the
  // ids are the ranks.
  std::vector<std::unique_ptr<CoordinatorClient>> World(int size) {
    std::vector<std::unique_ptr<CoordinatorClient>> clients;
    for (int i = 0; i < size; ++i) clients.push_back(Client(TestLearner(i)));
    EXPECT_OK(JoinAll(clients));
    return clients;
  }

  static absl::Status JoinAll(
      const std::vector<std::unique_ptr<CoordinatorClient>>& clients) {
    std::vector<absl::Status> statuses(clients.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < clients.size(); ++i) {
      threads.emplace_back([&, i] {
        statuses[i] = clients[i]->JoinGeneration(0, false, kLong).status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) {
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  v1::Status Status() { return coordinator_->service()->CurrentStatus(); }
  std::string StateOf(int local) {
    const v1::Status status = Status();
    for (const v1::LearnerStatus& learner : status.learner()) {
      if (learner.id() == TestLearner(local).id()) return learner.state();
    }
    return "unknown";
  }

  std::unique_ptr<TestCoordinator> coordinator_;
  std::string address_;
};

// ---- Joining

TEST_F(CoordinatorClientTest, LearnersMeetInAGeneration) {
  CoordinatorServiceOptions options = TestCoordinator::Options(3, 3);
  options.roster.run_id = "run-1";
  Start(options);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      auto client = Client(TestLearner(i));
      EXPECT_EQ(client->run_id(), "run-1");
      ASSERT_OK_AND_ASSIGN(const v1::Assignment place,
                           client->JoinGeneration(0, false, kLong));
      EXPECT_EQ(place.rank(), i);
      EXPECT_EQ(place.world_size(), 3);
      EXPECT_FALSE(client->Fence(place.generation()).stop_requested());
      // Meet before going: a client that is gone ends the generation.
      ASSERT_OK(client->Add(1, "here", 1));
      ASSERT_OK(client->Set(1, absl::StrCat("done/", i), ""));
      EXPECT_OK(client->Wait(1, {"done/0", "done/1", "done/2"}, kLong));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CoordinatorClientTest, AJoinerOfAnotherLayoutIsRefusedAtOnce) {
  Start(1, 2);
  auto first = Client(TestLearner(0));
  first->SetLayoutDigest("cart");
  ASSERT_OK(first->JoinGeneration(0, false, kLong));
  auto second = Client(TestLearner(1));
  second->SetLayoutDigest("maze");
  EXPECT_THAT(second->JoinGeneration(0, false, kLong),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("\"maze\", want \"cart\"")));
  EXPECT_OK(second->Leave("does not fit"));
  EXPECT_EQ(Status().state(), v1::ACTIVE);
  EXPECT_EQ(Status().generation(), 1u);
}

TEST_F(CoordinatorClientTest, NobodyThereIsToldAfterTheTimeoutWithTheRemedy) {
  const absl::Time start = SteadyNow();
  EXPECT_THAT(JoinRun("127.0.0.1:1", TestLearner(0), {}, absl::Seconds(1)),
              StatusIs(StatusCode::kUnavailable,
                       AllOf(HasSubstr("127.0.0.1:1"),
                             HasSubstr("flotilla coordinator --listen"))));
  EXPECT_LT(SteadyNow() - start, absl::Seconds(20));
}

// Whoever starts first: long enough for all of a connection's backoff to build
// up, and with TLS, whose handshake is several turns that somebody has to drive.
TEST_F(CoordinatorClientTest, JoinsSoonAfterACoordinatorThatComesLater) {
  Certificates certificates;
  for (const RpcCredentials& credentials :
       {RpcCredentials(), certificates.Member("member")}) {
    const auto options = TestCoordinator::Options(1, 1);
    coordinator_.reset();
    const std::string address = AddressToListenAt();
    absl::Time fresh;  // when one that begins then is in: load slows both
    std::thread late([&] {
      absl::SleepFor(absl::Seconds(4));
      coordinator_ =
          std::make_unique<TestCoordinator>(options, address, credentials);
      EXPECT_OK(JoinRun(address, TestLearner(1), credentials, kLong));
      fresh = SteadyNow();
    });
    EXPECT_OK(JoinRun(address, TestLearner(0), credentials, kLong));
    const absl::Time joined = SteadyNow();
    late.join();
    EXPECT_LT(joined - fresh, absl::Seconds(2)) << credentials.uses_tls();
  }
}

TEST_F(CoordinatorClientTest, ComesBackSoonToARestartedCoordinatorOverTls) {
  Certificates certificates;
  const RpcCredentials credentials = certificates.Member("member");
  const auto options = TestCoordinator::Options(1, 1);
  const std::string address = AddressToListenAt();
  coordinator_ =
      std::make_unique<TestCoordinator>(options, address, credentials);
  ASSERT_OK_AND_ASSIGN(auto client,
                       JoinRun(address, TestLearner(0), credentials, kLong));
  coordinator_.reset();
  absl::SleepFor(absl::Seconds(4));
  coordinator_ =
      std::make_unique<TestCoordinator>(options, address, credentials);
  // One that begins now: load slows both.
  EXPECT_OK(JoinRun(address, TestLearner(1), credentials, kLong));
  const absl::Time fresh = SteadyNow();
  EXPECT_TRUE(Eventually([&] { return StateOf(0) != "unknown"; }));
  EXPECT_LT(SteadyNow() - fresh, absl::Seconds(3));
}

TEST_F(CoordinatorClientTest, RefusalIsToldAtOnce) {
  Start(2, 2);
  auto client = Client(TestLearner(0));
  v1::Member other = TestLearner(1);
  other.set_config_digest("def");
  EXPECT_THAT(JoinRun(address_, other, {}, absl::Hours(1)),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("def")));
}

TEST_F(CoordinatorClientTest, AnotherKindOfServerIsNoCoordinator) {
  InProcessServer server({});
  EXPECT_THAT(
      JoinRun(server.address(), TestLearner(0), {}, absl::Hours(1)),
      StatusIs(StatusCode::kFailedPrecondition, HasSubstr("no coordinator")));
}

TEST_F(CoordinatorClientTest, JoinGivesUpAndSaysWhoIsMissing) {
  Start(2, 2);
  auto client = Client(TestLearner(0));
  EXPECT_THAT(
      client->JoinGeneration(0, false, absl::Milliseconds(300)),
      StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("1 of 2 learners")));
}

// As a learner joins that listens to signals in between.
TEST_F(CoordinatorClientTest, JoiningInShortTurnsEndsALastCallToo) {
  Start(1, 4);  // a last call of half a second
  auto client = Client(TestLearner(0));
  EXPECT_TRUE(Eventually([&] {
    return client->JoinGeneration(0, false, absl::Milliseconds(100)).ok();
  }));
  EXPECT_EQ(Status().generation(), 1u);
}

TEST_F(CoordinatorClientTest, TokenAndTlsAreUsed) {
  Certificates certificates;
  RpcCredentials credentials = certificates.Member("member");
  credentials.token_file = certificates.folder() / "token";
  WriteFile(credentials.token_file, "secret");
  TestCoordinator coordinator(TestCoordinator::Options(1, 1), "127.0.0.1:0",
                              credentials);
  ASSERT_OK_AND_ASSIGN(
      auto client,
      JoinRun(coordinator.address(), TestLearner(0), credentials, kLong));
  ASSERT_OK(client->JoinGeneration(0, false, kLong));
  EXPECT_TRUE(Eventually([&] { return client->Latest().generation() == 1; }));

  RpcCredentials no_token = credentials;
  no_token.token_file.clear();
  EXPECT_THAT(JoinRun(coordinator.address(), TestLearner(1), no_token, kLong),
              StatusIs(StatusCode::kUnauthenticated));
  EXPECT_THAT(
      JoinRun(coordinator.address(), TestLearner(1), {}, absl::Seconds(1)),
      StatusIs(StatusCode::kUnauthenticated,
               AllOf(HasSubstr(coordinator.address()),
                     HasSubstr("it speaks TLS: give --tls-cert"))));
}

TEST_F(CoordinatorClientTest, OnlyWhoHasTheSlotsSecretReplacesItsProcess) {
  Start(1, 1);
  auto world = World(1);
  EXPECT_THAT(JoinRun(address_, TestLearner(0, 2), {}, kLong, DrawSecret()),
              StatusIs(StatusCode::kPermissionDenied,
                       AllOf(HasSubstr(address_), HasSubstr("learner/0/0"))));
  EXPECT_EQ(Status().state(), v1::ACTIVE);
  world.clear();  // as after kill -9
  auto replacement = Client(TestLearner(0, 2));
  ASSERT_OK(replacement->JoinGeneration(0, false, kLong));
  EXPECT_OK(replacement->Set(2, "key", "v"));
}

TEST_F(CoordinatorClientTest, WhoHasLostItsPlaceToAnotherSecretIsTold) {
  Start(1, 2);
  auto client = Client(TestLearner(0));
  ASSERT_OK(client->Leave("done"));
  auto other = JoinRun(address_, TestLearner(0), {}, kLong, DrawSecret());
  ASSERT_OK(other);
  EXPECT_THAT(client->CloseRun("failed"),
              StatusIs(StatusCode::kPermissionDenied));
}

// ---- Heartbeats

TEST_F(CoordinatorClientTest, BusyCallerIsNotTakenForDead) {
  Start(1, 1);
  auto world = World(1);
  ASSERT_TRUE(Eventually([&] { return Status().uptime_seconds() > 4; }));
  EXPECT_TRUE(Eventually([&] { return StateOf(0) == "alive"; }));
  EXPECT_EQ(Status().state(), v1::ACTIVE);
}

TEST_F(CoordinatorClientTest, ProcessThatIsGoneEndsTheGeneration) {
  Start(2, 2);
  auto world = World(2);
  const std::stop_token fence = world[0]->Fence(1);
  world.pop_back();
  EXPECT_TRUE(Eventually([&] { return fence.stop_requested(); }));
  EXPECT_THAT(world[0]->Latest().fence_reason(),
              HasSubstr("rank 1 (learner/0/1) sent no heartbeat"));
}

TEST_F(CoordinatorClientTest, ReportsReachTheStatus) {
  Start(1, 1);
  auto world = World(1);
  v1::Heartbeat progress;
  progress.set_phase(v1::STEPPING);
  progress.set_update(12);
  progress.set_env_steps(4096);
  progress.set_waits_for("env worker 3");
  world[0]->Report(progress);
  EXPECT_TRUE(Eventually([&] { return Status().update() == 12; }));
  const v1::LearnerStatus learner = Status().learner(0);
  EXPECT_EQ(learner.phase(), v1::STEPPING);
  EXPECT_EQ(learner.waits_for(), "env worker 3");
  // The time in a phase goes on without another report.
  EXPECT_TRUE(
      Eventually([&] { return Status().learner(0).phase_seconds() > 0.3; }));
}

// Names of files are any bytes, and what is said of them is too.
TEST_F(CoordinatorClientTest, WordsThatAreNotUtf8AreHeard) {
  Start(2, 2);
  auto world = World(2);
  v1::Heartbeat progress;
  progress.set_update(12);
  progress.set_trouble("/caf\xe9/run is full");
  progress.set_started_over("/caf\xe9/before");
  world[0]->Report(progress);
  EXPECT_TRUE(Eventually([&] { return Status().update() == 12; }));
  EXPECT_EQ(Status().learner(0).trouble(), "/caf\\xe9/run is full");
  EXPECT_EQ(Status().started_over(), "/caf\\xe9/before");
  ASSERT_OK(world[0]->ReportFailure(1, "/caf\xe9/run is gone"));
  EXPECT_THAT(Status().fence_reason(), HasSubstr("/caf\\xe9/run is gone"));
  ASSERT_OK(world[0]->StopRun("/caf\xe9/stop is there", /*preempted=*/false));
  EXPECT_EQ(Status().stop_reason(), "/caf\\xe9/stop is there");
  ASSERT_OK(world[0]->Leave("/caf\xe9/run is gone"));
}

TEST_F(CoordinatorClientTest, FinishingIsToldAtOnceAndLeavingThenEndsNothing) {
  CoordinatorServiceOptions options = TestCoordinator::Options(2, 2);
  options.roster.heartbeat = absl::Seconds(5);
  options.roster.dead_after = absl::Seconds(30);
  Start(options);
  auto world = World(2);
  v1::Heartbeat progress;
  progress.set_phase(v1::FINISHED);
  world[1]->Report(progress);
  EXPECT_TRUE(
      Eventually([&] { return Status().learner(1).phase() == v1::FINISHED; }));
  ASSERT_OK(world[1]->Leave("done"));
  EXPECT_EQ(Status().state(), v1::ACTIVE);
  EXPECT_EQ(StateOf(1), "left");
}

TEST_F(CoordinatorClientTest, LeavingIsForGood) {
  CoordinatorServiceOptions options = TestCoordinator::Options(1, 2);
  options.roster.last_call = kLong;  // the first generation has both
  Start(options);
  auto world = World(2);
  ASSERT_OK(world[1]->Leave("enough"));
  EXPECT_TRUE(Eventually([&] { return world[0]->Fence(1).stop_requested(); }));
  EXPECT_THAT(world[0]->Latest().fence_reason(), HasSubstr("left: enough"));
  ASSERT_OK(world[0]->JoinGeneration(0, false, kLong));
  EXPECT_EQ(Status().world_size(), 1);
  EXPECT_EQ(StateOf(1), "left");
}

// ---- Fences

TEST_F(CoordinatorClientTest, FailureFencesEverybodyAndTheNextForms) {
  Start(2, 2);
  auto world = World(2);
  const std::stop_token fence = world[1]->Fence(1);
  ASSERT_OK(world[0]->ReportFailure(1, "it broke"));
  EXPECT_TRUE(Eventually([&] { return fence.stop_requested(); }));
  EXPECT_THAT(world[1]->Set(1, "key", "v"),
              StatusIs(StatusCode::kAborted, HasSubstr("it broke")));
  EXPECT_OK(world[0]->ReportFailure(1, "again"));
  ASSERT_OK(JoinAll(world));
  EXPECT_EQ(Status().generation(), 2u);
  EXPECT_FALSE(world[1]->Fence(2).stop_requested());
  EXPECT_TRUE(world[1]->Fence(1).stop_requested());  // at once, and still
}

TEST_F(CoordinatorClientTest, OneGenerationHasOneToken) {
  Start(1, 1);
  auto world = World(1);
  EXPECT_EQ(world[0]->Fence(1), world[0]->Fence(1));
}

TEST_F(CoordinatorClientTest, SlowAlarmHoldsUpNoHeartbeat) {
  CoordinatorServiceOptions options = TestCoordinator::Options(1, 2);
  options.roster.last_call = kLong;  // the first generation has both
  Start(options);
  auto world = World(2);
  std::latch release(1);
  std::latch entered(1);
  std::stop_callback slow(world[0]->Fence(1), [&] {
    entered.count_down();
    release.wait();
  });
  ASSERT_OK(world[1]->ReportFailure(1, "it broke"));
  entered.wait();
  const double start = Status().uptime_seconds();
  ASSERT_TRUE(
      Eventually([&] { return Status().uptime_seconds() > start + 4; }));
  EXPECT_TRUE(Eventually([&] { return StateOf(0) == "alive"; }));
  release.count_down();
}

TEST_F(CoordinatorClientTest, ReplacedProcessIsToldAndStops) {
  Start(1, 1);
  auto old = Client(TestLearner(0, 1));
  ASSERT_OK(old->JoinGeneration(0, false, kLong));
  const std::stop_token fence = old->Fence(1);
  auto young = Client(TestLearner(0, 2));
  EXPECT_TRUE(Eventually([&] { return fence.stop_requested(); }));
  EXPECT_THAT(old->JoinGeneration(0, false, kLong),
              StatusIs(StatusCode::kAlreadyExists));
  // Of any generation, for it has no place any more.
  EXPECT_TRUE(Eventually([&] { return old->Fence(9).stop_requested(); }));
  EXPECT_OK(young->JoinGeneration(0, false, kLong));
}

// ---- Key-value store

TEST_F(CoordinatorClientTest, EveryKeyValueCallWorks) {
  Start(1, 1);
  auto world = World(1);
  CoordinatorClient* client = world[0].get();
  ASSERT_OK(client->Set(1, "a", std::string("x\0y", 3)));
  EXPECT_EQ(*client->Get(1, "a", kLong), std::string("x\0y", 3));
  EXPECT_EQ(*client->Add(1, "n", 2), 2);
  EXPECT_EQ(*client->Add(1, "n", 3), 5);
  EXPECT_EQ(*client->CompareSet(1, "c", "", "first"), "first");
  EXPECT_EQ(*client->CompareSet(1, "c", "", "second"), "first");
  EXPECT_TRUE(*client->Check(1, {"a", "n", "c"}));
  EXPECT_EQ(*client->Count(1), 3);
  EXPECT_TRUE(*client->Delete(1, "a"));
  EXPECT_FALSE(*client->Check(1, {"a"}));
  EXPECT_OK(client->Wait(1, {"n", "c"}, kLong));
  EXPECT_OK(client->Wait(1, {}, kLong));
  EXPECT_THAT(client->Get(1, "never", absl::Milliseconds(100)),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("\"never\"")));
  EXPECT_THAT(client->Wait(1, {"n", "never"}, absl::Milliseconds(100)),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("\"never\"")));
}

TEST_F(CoordinatorClientTest, FenceEndsAWaitForAKey) {
  Start(2, 2);
  auto world = World(2);
  std::thread waiter([&] {
    EXPECT_THAT(world[0]->Get(1, "never", kLong),
                StatusIs(StatusCode::kAborted, HasSubstr("it broke")));
  });
  ASSERT_OK(world[1]->ReportFailure(1, "it broke"));
  waiter.join();
}

// ---- Evaluation, stop, preemption, leases

TEST_F(CoordinatorClientTest, StopReachesEveryoneAndStays) {
  Start(2, 2);
  auto world = World(2);
  const std::stop_token stopped = world[1]->RunStopped();
  EXPECT_FALSE(stopped.stop_requested());
  v1::StopRequest request;
  request.set_reason("enough");
  ASSERT_OK(Call(coordinator_->Stub().get(),
                 &v1::CoordinatorService::Stub::Stop, request));
  EXPECT_TRUE(Eventually([&] { return stopped.stop_requested(); }));
  EXPECT_TRUE(Eventually([&] { return world[0]->Latest().stop(); }));
  EXPECT_EQ(world[0]->Latest().stop_reason(), "enough");
  Restart(TestCoordinator::Options(2, 2));  // which never heard of it
  ASSERT_TRUE(Eventually([&] { return StateOf(0) == "alive"; }));
  EXPECT_TRUE(world[0]->Latest().stop());
}

TEST_F(CoordinatorClientTest, APreemptionStaysUnlessTheRunIsClosedOtherwise) {
  Start(2, 2);
  auto world = World(2);
  ASSERT_OK(world[0]->StopRun("learner/0/0 got SIGTERM", /*preempted=*/true));
  EXPECT_TRUE(Eventually([&] { return world[1]->Latest().preempted(); }));
  Restart(TestCoordinator::Options(2, 2));  // which never heard of it
  ASSERT_TRUE(Eventually(
      [&] { return StateOf(0) == "alive" && StateOf(1) == "alive"; }));
  EXPECT_TRUE(world[1]->Latest().preempted());
  ASSERT_OK(world[0]->CloseRun("completed"));
  EXPECT_TRUE(Eventually([&] { return world[1]->Latest().closed(); }));
  EXPECT_FALSE(world[1]->Latest().preempted());
}

TEST_F(CoordinatorClientTest, WhoComesTooLateIsToldApartFromWhoDoesNotFit) {
  Start(1, 1);
  auto world = World(1);
  ASSERT_OK(world[0]->CloseRun("completed"));
  EXPECT_THAT(JoinRun(address_, TestLearner(1), {}, kLong),
              StatusIs(StatusCode::kAborted, HasSubstr("completed")));
}

TEST_F(CoordinatorClientTest, EvaluationReachesEveryoneAndStays) {
  Start(2, 2);
  auto world = World(2);
  v1::Evaluation evaluation;
  evaluation.set_round(4);
  evaluation.set_stop(true);
  ASSERT_OK(world[0]->ReportEvaluation(evaluation));
  EXPECT_TRUE(
      Eventually([&] { return world[1]->Latest().evaluation().round() == 4; }));
  EXPECT_TRUE(world[1]->Latest().evaluation().stop());
  // A coordinator that never heard of it is told by rank 0.
  Restart(TestCoordinator::Options(2, 2));
  EXPECT_TRUE(Eventually([&] { return Status().evaluation().round() == 4; }));
  EXPECT_EQ(world[1]->Latest().evaluation().round(), 4);
}

TEST_F(CoordinatorClientTest, PreemptionReachesEveryone) {
  Start(2, 2);
  auto world = World(2);
  ASSERT_OK(world[0]->ReportCollected(1, 7, 0.5));
  EXPECT_TRUE(
      Eventually([&] { return world[1]->Latest().preempt_update() == 7; }));
  EXPECT_EQ(world[1]->Latest().preempt_generation(), 1u);
}

TEST_F(CoordinatorClientTest, ServersThatDialAreToldWhere) {
  Start(1, 1);
  auto world = World(1);
  v1::Member server;
  server.set_id("env/robot/1");
  server.set_incarnation(1);
  server.set_role(v1::ENV_SERVER);
  server.set_dials(true);
  auto env = Client(server);
  ASSERT_TRUE(Eventually([&] { return env->Latest().generation() == 1; }));
  ASSERT_OK_AND_ASSIGN(std::vector<v1::Member> leased,
                       world[0]->LeaseEnvServers("CartPole-v1", 1, "here:1",
                                                 /*lease_id=*/""));
  ASSERT_EQ(leased.size(), 1u);
  EXPECT_TRUE(leased[0].dials());
  EXPECT_TRUE(Eventually([&] { return env->Latest().dial() == "here:1"; }));
  EXPECT_EQ(env->Latest().dial_learner(), "learner/0/0");
  EXPECT_EQ(world[0]->Latest().dial(), "");
  ASSERT_OK(world[0]->ReleaseEnvServers({"env/robot/1"}));
  EXPECT_TRUE(Eventually([&] { return env->Latest().dial().empty(); }));
}

TEST_F(CoordinatorClientTest, EnvServersAreLeasedAndReleased) {
  Start(1, 1);
  auto world = World(1);
  v1::Member server;
  server.set_id("env/far/1");
  server.set_incarnation(1);
  server.set_role(v1::ENV_SERVER);
  server.set_address("far:5000");
  auto env = Client(server);
  const auto lease = [&](const std::string& lease_id) {
    return world[0]->LeaseEnvServers("CartPole-v1", 3, "", lease_id);
  };
  for (int i = 0; i < 2; ++i) {  // as after a lost answer
    ASSERT_OK_AND_ASSIGN(const std::vector<v1::Member> leased, lease("1"));
    ASSERT_EQ(leased.size(), 1u);
    EXPECT_EQ(leased[0].address(), "far:5000");
  }
  ASSERT_OK_AND_ASSIGN(std::vector<v1::Member> leased, lease("2"));
  EXPECT_EQ(leased.size(), 0u);
  ASSERT_OK(world[0]->ReleaseEnvServers({"env/far/1"}));
  ASSERT_OK_AND_ASSIGN(leased, lease("3"));
  EXPECT_EQ(leased.size(), 1u);
  env.reset();  // its lease ends, and nothing else
  EXPECT_TRUE(
      Eventually([&] { return Status().env_server(0).state() == "dead"; }));
  EXPECT_EQ(Status().state(), v1::ACTIVE);
}

TEST_F(CoordinatorClientTest, ClosedRunIsToldToEveryone) {
  Start(2, 2);
  auto world = World(2);
  ASSERT_OK(world[0]->CloseRun("solved"));
  EXPECT_TRUE(Eventually([&] { return world[1]->Latest().closed(); }));
  EXPECT_THAT(world[1]->JoinGeneration(0, false, kLong),
              StatusIs(StatusCode::kAborted, HasSubstr("solved")));
  ASSERT_OK_AND_ASSIGN(const v1::Status status, world[1]->GetStatus());
  EXPECT_EQ(status.state(), v1::CLOSED);
}

// ---- A coordinator that is lost

TEST_F(CoordinatorClientTest, LosingTheCoordinatorFencesNothing) {
  Start(1, 1);
  auto world = World(1);
  const std::stop_token fence = world[0]->Fence(1);
  coordinator_.reset();
  const absl::Time start = SteadyNow();
  world[0]->Report(v1::Heartbeat());
  EXPECT_THAT(world[0]->ReportCollected(1, 1, 0.5),
              StatusIs(StatusCode::kUnavailable, HasSubstr(address_)));
  EXPECT_LT(SteadyNow() - start, absl::Seconds(20));
  EXPECT_THAT(world[0]->Get(1, "key", absl::Seconds(2)),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("\"key\""), HasSubstr(address_))));
  EXPECT_FALSE(fence.stop_requested());
  EXPECT_FALSE(world[0]->RunStopped().stop_requested());
}

TEST_F(CoordinatorClientTest, RestartWithAJournalDisturbsNobody) {
  TempDir folder;
  CoordinatorServiceOptions options = TestCoordinator::Options(2, 2);
  options.journal = folder / "journal";
  Start(options);
  auto world = World(2);
  const std::stop_token fences[] = {world[0]->Fence(1), world[1]->Fence(1)};
  const std::string epoch = Status().epoch();
  for (int i = 0; i < 3; ++i) {
    Restart(options);
    EXPECT_TRUE(Eventually([&] {
      return StateOf(0) == "alive" && StateOf(1) == "alive" &&
             Status().learner(1).last_heartbeat_seconds() < 0.5;
    }));
  }
  EXPECT_NE(Status().epoch(), epoch);
  EXPECT_EQ(Status().generation(), 1u);
  EXPECT_EQ(Status().world_size(), 2);
  // Longer than it takes to recover.
  ASSERT_TRUE(Eventually([&] { return Status().uptime_seconds() > 5; }));
  EXPECT_EQ(Status().state(), v1::ACTIVE);
  EXPECT_FALSE(fences[0].stop_requested());
  EXPECT_FALSE(fences[1].stop_requested());
  // The old generation's key-value store works, and so does the next.
  ASSERT_OK(world[0]->Set(1, "key", "v"));
  ASSERT_OK(world[0]->ReportFailure(1, "it broke"));
  ASSERT_OK(JoinAll(world));
  EXPECT_EQ(Status().generation(), 2u);
}

TEST_F(CoordinatorClientTest, RestartWithoutAJournalDisturbsNobodyEither) {
  Start(2, 2);
  auto world = World(2);
  ASSERT_OK(world[0]->ReportFailure(1, "it broke"));
  ASSERT_OK(JoinAll(world));
  const std::stop_token fence = world[1]->Fence(2);
  Restart(TestCoordinator::Options(2, 2));
  EXPECT_TRUE(Eventually([&] {
    return Status().generation() == 2 && Status().world_size() == 2;
  }));
  ASSERT_TRUE(Eventually([&] { return Status().uptime_seconds() > 5; }));
  EXPECT_FALSE(fence.stop_requested());
  ASSERT_OK(world[1]->Set(2, "key", "v"));
  ASSERT_OK(world[0]->ReportFailure(2, "it broke"));
  ASSERT_OK(JoinAll(world));
  EXPECT_EQ(Status().generation(), 3u);
}

TEST_F(CoordinatorClientTest, WaitingToJoinOutlivesARestart) {
  Start(2, 2);
  std::vector<std::unique_ptr<CoordinatorClient>> clients;
  clients.push_back(Client(TestLearner(0)));
  std::thread joiner([&] {
    ASSERT_OK_AND_ASSIGN(const v1::Assignment place,
                         clients[0]->JoinGeneration(0, false, kLong));
    EXPECT_EQ(place.world_size(), 2);
  });
  ASSERT_TRUE(Eventually([&] { return StateOf(0) == "joining"; }));
  Restart(TestCoordinator::Options(2, 2));
  auto other = Client(TestLearner(1));
  EXPECT_OK(other->JoinGeneration(0, false, kLong));
  joiner.join();
}

TEST_F(CoordinatorClientTest, WhoDiesWithTheCoordinatorIsMissedByTheNext) {
  TempDir folder;
  CoordinatorServiceOptions options = TestCoordinator::Options(2, 2);
  options.journal = folder / "journal";
  Start(options);
  auto world = World(2);
  const std::stop_token fence = world[0]->Fence(1);
  coordinator_.reset();
  world.pop_back();
  Start(options, address_);
  EXPECT_TRUE(Eventually([&] { return fence.stop_requested(); }));
}

// ---- The network

TEST_F(CoordinatorClientTest, ConnectionThatOnlySeemsAliveIsReplacedInTime) {
  CoordinatorServiceOptions options = TestCoordinator::Options(1, 1);
  // Half of it is patience with the connection, the rest is for the next.
  options.roster.dead_after = absl::Seconds(8);
  Start(options);
  TcpRelay relay(address_);
  auto client = Client(TestLearner(0), relay.address());
  ASSERT_OK(client->JoinGeneration(0, false, kLong));
  const int before = relay.connections();
  relay.FreezeConnections();
  ASSERT_TRUE(Eventually([&] { return relay.connections() > before; }));
  ASSERT_TRUE(Eventually(
      [&] { return Status().learner(0).last_heartbeat_seconds() < 0.3; }));
  const double start = Status().uptime_seconds();
  ASSERT_TRUE(
      Eventually([&] { return Status().uptime_seconds() > start + 9; }));
  EXPECT_EQ(Status().state(), v1::ACTIVE);  // never taken for dead
  EXPECT_OK(client->Set(1, "key", "v"));
}

TEST_F(CoordinatorClientTest, PartitionedMemberIsFencedAndComesBack) {
  Start(2, 2);
  TcpRelay relay(address_);
  std::vector<std::unique_ptr<CoordinatorClient>> world;
  world.push_back(Client(TestLearner(0)));
  world.push_back(Client(TestLearner(1), relay.address()));
  ASSERT_OK(JoinAll(world));
  const std::stop_token near = world[0]->Fence(1), far = world[1]->Fence(1);
  relay.Cut();
  EXPECT_TRUE(Eventually([&] { return near.stop_requested(); }));
  EXPECT_FALSE(far.stop_requested());  // nobody could tell it
  relay.Mend();
  EXPECT_TRUE(Eventually([&] { return far.stop_requested(); }));
  ASSERT_OK(JoinAll(world));
  EXPECT_EQ(Status().generation(), 2u);
}

}  // namespace
}  // namespace flotilla
