#include "learner/actor/env_pool.h"

#include <signal.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <stop_token>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/steady_now.h"
#include "services/env/env_service.h"
#include "tests/learner/actor/leases.h"
#include "tests/learner/actor/turns.h"
#include "tests/testing/in_process_server.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

EnvWorkerOptions CartPole(int num_envs, int workers, int groups) {
  EnvWorkerOptions options;
  options.env.set_id("CartPole-v1");
  options.env.set_num_envs(num_envs);
  options.env.set_num_workers(workers);
  options.env.set_groups(groups);
  options.learner_id = "learner/0/0";
  options.name = "test";
  return options;
}

std::unique_ptr<EnvPool> Start(const EnvWorkerOptions& options) {
  auto pool = EnvPool::Start(options, /*first_worker_id=*/0, /*incarnation=*/1);
  EXPECT_TRUE(pool.ok()) << pool.status();
  return std::move(pool).value();
}

void Act(EnvPool* pool, int slot, int64_t action = 1) {
  const std::vector<int64_t> actions(pool->rows_per_slot(), action);
  const std::string column(reinterpret_cast<const char*>(actions.data()),
                           actions.size() * sizeof(int64_t));
  pool->Send(slot, {&column, 1});
}

pid_t PidOf(const EnvPool& pool, int worker) {
  return static_cast<pid_t>(pool.Describe()[worker].pid());
}

// A signal arrives when the kernel gets to it: until then the worker answers.
void AwaitStopped(pid_t pid) {
  const absl::Time deadline = SteadyNow() + absl::Seconds(20);
  std::string state;
  while (state != "T" && SteadyNow() < deadline) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string ignored;
    stat >> ignored >> ignored >> state;
  }
  ASSERT_EQ(state, "T");
}

// Loses the worker of a slot that has nothing to answer; another has taken its
// place then. The first comes at once, and may be there before anybody looks;
// the one after it takes 200 ms.
void LoseAndReplace(EnvPool* pool, int slot) {
  kill(PidOf(*pool, slot), SIGKILL);
  do {
    Act(pool, slot);
  } while (pool->Receive(slot, {}).value() != EnvPool::Event::kReset);
}

TEST(EnvPoolTest, SlotsCoverTheRowsAndStartWithResets) {
  auto pool = Start(CartPole(12, /*workers=*/2, /*groups=*/3));
  EXPECT_EQ(pool->num_slots(), 6);
  EXPECT_EQ(pool->rows_per_slot(), 2);
  EXPECT_EQ(pool->first_row(5), 10);
  for (int slot = 0; slot < 6; ++slot) {
    EXPECT_EQ(pool->Receive(slot, {}).value(), EnvPool::Event::kReset);
    EXPECT_EQ(pool->Observation(slot, 0).size(), 2 * 4 * sizeof(float));
    Act(pool.get(), slot);
  }
  // In any order: a batch that came early waits for its slot.
  for (int slot : {2, 0, 1, 5, 4, 3}) {
    EXPECT_EQ(pool->Receive(slot, {}).value(), EnvPool::Event::kStep);
  }
}

TEST(EnvPoolTest, AKilledWorkerIsReplacedAndCounted) {
  auto pool = Start(CartPole(4, /*workers=*/1, /*groups=*/1));
  ASSERT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kReset);
  for (int kills = 1; kills <= 3; ++kills) {
    kill(PidOf(*pool, 0), SIGKILL);
    Act(pool.get(), 0);
    // It answers until the kernel has got to the signal.
    auto event = pool->Receive(0, {}).value();
    while (event == EnvPool::Event::kStep) {
      Act(pool.get(), 0);
      event = pool->Receive(0, {}).value();
    }
    EXPECT_EQ(event, EnvPool::Event::kReset);
    EXPECT_EQ(pool->batch(0).seq(), 0u);
    EXPECT_EQ(pool->restarts(), kills);
  }
  EXPECT_EQ(pool->last_incarnation(), 4u);
}

// As between two rollouts: one group's last step has been received, and is
// decided on when the next begins.
TEST(EnvPoolTest, WhatWasDecidedForALostWorkerIsNotSentToItsReplacement) {
  auto pool = Start(CartPole(2, /*workers=*/1, /*groups=*/2));
  for (int slot : {0, 1}) {
    ASSERT_EQ(pool->Receive(slot, {}).value(), EnvPool::Event::kReset);
    Act(pool.get(), slot);
  }
  ASSERT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kStep);
  kill(PidOf(*pool, 0), SIGKILL);
  while (pool->Receive(1, {}).value() != EnvPool::Event::kReset) {
    Act(pool.get(), 1);
  }
  Act(pool.get(), 0, /*action=*/0);
  ASSERT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kReset);
  Act(pool.get(), 0, /*action=*/1);
  ASSERT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kStep);
  EXPECT_EQ(pool->batch(0).seq(), 1u);
  float velocity;
  std::memcpy(&velocity, pool->Observation(0, 0).data() + sizeof(float),
              sizeof(float));
  EXPECT_GT(velocity, 0.1) << "the cart was pushed to the left";
}

TEST(EnvPoolTest, WhoGivesUpDoesNotWaitForAReplacement) {
  auto pool = Start(CartPole(2, /*workers=*/1, /*groups=*/1));
  ASSERT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kReset);
  LoseAndReplace(pool.get(), 0);
  Act(pool.get(), 0);
  kill(PidOf(*pool, 0), SIGKILL);
  auto event = EnvPool::Event::kLate;
  while (pool->restarts() == 1) {
    if (event == EnvPool::Event::kStep) Act(pool.get(), 0);
    event = pool->Receive(0, {}, [] { return true; }).value();
  }
  EXPECT_EQ(event, EnvPool::Event::kLate);
  EXPECT_EQ(pool->Describe()[0].state(), "restarting");
  EXPECT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kReset);
}

TEST(EnvPoolTest, OthersGoOnWhileOneIsAbsent) {
  EnvWorkerOptions options = CartPole(4, /*workers=*/2, /*groups=*/1);
  auto pool = Start(options);
  for (int slot : {0, 1}) pool->Receive(slot, {}).value();
  LoseAndReplace(pool.get(), 1);
  kill(PidOf(*pool, 1), SIGKILL);
  int absent = 0, steps = 0;
  bool back = false;
  while (!back) {
    Act(pool.get(), 0);
    ASSERT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kStep);
    Act(pool.get(), 1);
    const auto event = pool->Receive(1, {}).value();
    absent += event == EnvPool::Event::kAbsent;
    back = event == EnvPool::Event::kReset;
    ++steps;
  }
  EXPECT_GT(absent, 0) << "the other worker waited " << steps << " steps";
  EXPECT_EQ(pool->restarts(), 2);
}

TEST(EnvPoolTest, AStoppedWorkerIsReplacedAfterItsStepTimeout) {
  EnvWorkerOptions options = CartPole(2, /*workers=*/1, /*groups=*/1);
  options.env.set_step_timeout_seconds(0.3);
  auto pool = Start(options);
  pool->Receive(0, {}).value();
  kill(PidOf(*pool, 0), SIGSTOP);
  AwaitStopped(PidOf(*pool, 0));
  Act(pool.get(), 0);
  EXPECT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kReset);
  EXPECT_EQ(pool->restarts(), 1);
}

TEST(EnvPoolTest, TheRestartBudgetIsAnErrorThatNamesWorkerAndBudget) {
  EnvWorkerOptions options = CartPole(2, /*workers=*/1, /*groups=*/1);
  options.env.set_max_worker_restarts(1);
  auto pool = Start(options);
  absl::Status status;
  while (status.ok()) {
    const auto event = pool->Receive(0, {});
    status = event.status();
    if (!status.ok()) break;
    kill(PidOf(*pool, 0), SIGKILL);
    Act(pool.get(), 0);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("env worker 0"),
                             testing::HasSubstr("max_worker_restarts is 1")));
}

// Those of an evaluation count from 2^40 on, and those of its decisions from 2^41.
TEST(EnvPoolTest, ASocketsNameIsNoLongerThanAScratchFolderHasRoomFor) {
  EnvWorkerOptions options = CartPole(2, /*workers=*/1, /*groups=*/1);
  options.name = "evaluation";
  for (const uint64_t id : {uint64_t{1} << 40, uint64_t{1} << 41}) {
    const auto pool = EnvPool::Start(options, id, /*incarnation=*/1);
    ASSERT_TRUE(pool.ok()) << pool.status();
    const std::string address = (*pool)->Describe()[0].address();
    const std::string name = address.substr(address.rfind('/'));
    EXPECT_THAT(name, testing::StartsWith("/evaluation_0_"));
    EXPECT_LE(name.size(), std::string("/evaluation_123456_123456").size());
  }
}

TEST(EnvPoolTest, AnUnknownEnvironmentIsTheServersError) {
  EnvWorkerOptions options = CartPole(2, 1, 1);
  options.env.set_id("CartPole-v7");
  const auto pool = EnvPool::Start(options, 0, 1);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(pool.status().message()),
              testing::HasSubstr("CartPole-v7"));
}

std::unique_ptr<Subprocess> StartServer(const std::string& address) {
  SubprocessOptions program;
  program.argv = {ProgramFolder() + "/flotilla-envserver",
                  "--listen=" + address};
  auto server = Subprocess::Start(program);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

void AwaitEvent(EnvPool* pool, int slot, EnvPool::Event event) {
  const absl::Time deadline = SteadyNow() + absl::Seconds(20);
  while (pool->Receive(slot, {}).value() != event) {
    ASSERT_LT(SteadyNow(), deadline);
    if (event == EnvPool::Event::kAbsent) Act(pool, slot);
  }
}

TEST(EnvPoolTest, ServersOfOtherHostsComeAndGo) {
  TempDir folder;
  Leases leases(folder.path());
  EnvWorkerOptions options = CartPole(8, /*workers=*/2, /*groups=*/1);
  options.env.set_remote_workers(1);
  options.coordinator = &leases;
  auto pool = Start(options);
  EXPECT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kReset);
  EXPECT_EQ(pool->Receive(1, {}).value(), EnvPool::Event::kAbsent);

  const std::string first = "unix:" + folder.path() + "/first";
  auto server = StartServer(first);
  leases.Offer("first", first);
  AwaitEvent(pool.get(), 1, EnvPool::Event::kReset);
  Act(pool.get(), 1);
  EXPECT_EQ(pool->Receive(1, {}).value(), EnvPool::Event::kStep);
  EXPECT_EQ(pool->Describe()[1].address(), first);
  // What a coordinator that has forgotten its leases goes by.
  EXPECT_EQ(pool->Describe()[1].id(), "env worker 1");
  EXPECT_EQ(pool->Describe()[1].server_id(), "first");
  EXPECT_EQ(pool->Describe()[0].server_id(), "");

  Act(pool.get(), 1);
  server->Signal(SIGKILL);
  AwaitEvent(pool.get(), 1, EnvPool::Event::kAbsent);
  EXPECT_EQ(pool->restarts(), 1);
  EXPECT_EQ(pool->Describe()[1].server_id(), "");
  const std::string second = "unix:" + folder.path() + "/second";
  auto replacement = StartServer(second);
  leases.Offer("second", second);
  AwaitEvent(pool.get(), 1, EnvPool::Event::kReset);
  EXPECT_EQ(pool->Describe()[1].address(), second);
  pool.reset();
  EXPECT_THAT(leases.released(), testing::IsSupersetOf({"first", "second"}));
}

// A pool of one local worker and two of other hosts, on "first" and "second".
// Then "second" dies: whichever of them played there waits for another.
class TwoRemoteWorkersTest : public testing::Test {
 protected:
  TwoRemoteWorkersTest() {
    EnvWorkerOptions options = CartPole(12, /*workers=*/3, /*groups=*/1);
    options.env.set_remote_workers(2);
    options.env.set_quorum(0.1);
    options.coordinator = &leases_;
    pool_ = Start(options);
    EXPECT_EQ(pool_->Receive(0, {}).value(), EnvPool::Event::kReset);
    leases_.Offer("first", first_);
    while (plays_ == 0) {
      for (const int slot : {1, 2}) {
        if (pool_->Receive(slot, {}).value() == EnvPool::Event::kReset) {
          plays_ = slot;
          waits_ = 3 - slot;
        }
      }
    }
    const std::string second = "unix:" + folder_.path() + "/second";
    auto server = StartServer(second);
    leases_.Offer("second", second);
    AwaitEvent(pool_.get(), waits_, EnvPool::Event::kReset);
    Act(pool_.get(), waits_);
    server->Signal(SIGKILL);
    AwaitEvent(pool_.get(), waits_, EnvPool::Event::kAbsent);
  }

  TempDir folder_;
  Leases leases_{folder_.path()};
  const std::string first_ = "unix:" + folder_.path() + "/first";
  std::unique_ptr<Subprocess> server_ = StartServer(first_);
  std::unique_ptr<EnvPool> pool_;
  int plays_ = 0, waits_ = 0;  // slots
};

// By a coordinator that does not know yet that it is leased.
TEST_F(TwoRemoteWorkersTest, WhoLosesItsServerToAnotherDoesNotGiveItBack) {
  Act(pool_.get(), plays_);
  leases_.Offer("first", first_);
  AwaitEvent(pool_.get(), plays_, EnvPool::Event::kAbsent);
  AwaitEvent(pool_.get(), waits_, EnvPool::Event::kReset);
  EXPECT_THAT(leases_.released(), testing::ElementsAre("second"));
  EXPECT_EQ(pool_->Describe()[waits_].server_id(), "first");
  EXPECT_EQ(pool_->Describe()[plays_].server_id(), "");
}

// A server that was lost, and is leased to another before that is seen.
TEST_F(TwoRemoteWorkersTest, WhoIsLateToSeeALossDoesNotGiveBackWhatIsAnothers) {
  Act(pool_.get(), plays_);
  server_.reset();
  server_ = StartServer(first_);
  leases_.Offer("first", first_);
  AwaitEvent(pool_.get(), waits_, EnvPool::Event::kReset);
  AwaitEvent(pool_.get(), plays_, EnvPool::Event::kAbsent);
  EXPECT_THAT(leases_.released(), testing::ElementsAre("second"));
  Act(pool_.get(), waits_);
  EXPECT_EQ(pool_->Receive(waits_, {}).value(), EnvPool::Event::kStep);
}

// ---- Servers of others (env.server)

TEST(EnvPoolTest, AProgramOfOthersIsPlayedAndStartedAgain) {
  EnvWorkerOptions options = CartPole(4, /*workers=*/1, /*groups=*/1);
  options.env.set_server("exec:" + ProgramFolder() + "/flotilla-envserver");
  auto pool = Start(options);
  ASSERT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kReset);
  Act(pool.get(), 0);
  ASSERT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kStep);
  kill(PidOf(*pool, 0), SIGKILL);
  Act(pool.get(), 0);
  AwaitEvent(pool.get(), 0, EnvPool::Event::kReset);
  EXPECT_EQ(pool->restarts(), 1);
}

TEST(EnvPoolTest, AProgramOfOthersThatNeverPlaysFailsAtOnce) {
  EnvWorkerOptions options = CartPole(4, /*workers=*/1, /*groups=*/1);
  options.env.set_server("exec:" + ProgramFolder() + "/flotilla-envserver");
  auto pool = Start(options);
  ASSERT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kReset);
  kill(PidOf(*pool, 0), SIGKILL);
  const absl::Status status = pool->Receive(0, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(status.message()),
      testing::HasSubstr(options.env.server() + "\" has never played: "));
}

TEST(EnvPoolTest, AServerThatRunsIsAwaitedWhereItIsLost) {
  TempDir folder;
  const std::string address = "unix:" + folder.path() + "/server";
  auto server = StartServer(address);
  EnvWorkerOptions options = CartPole(4, /*workers=*/1, /*groups=*/1);
  options.env.set_server(address);
  auto pool = Start(options);
  ASSERT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kReset);
  Act(pool.get(), 0);
  ASSERT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kStep);
  EXPECT_EQ(pool->Describe()[0].address(), address);
  server.reset();
  std::future<void> back = std::async(std::launch::async, [&] {
    Act(pool.get(), 0);
    AwaitEvent(pool.get(), 0, EnvPool::Event::kReset);
  });
  EXPECT_EQ(back.wait_for(std::chrono::milliseconds(200)),
            std::future_status::timeout);
  server = StartServer(address);
  back.get();
  EXPECT_EQ(pool->restarts(), 1);
}

// As a server does that permits no pings, while the learner waits for others.
TEST(EnvPoolTest, AServerThatIsCutOffBeforeItsFirstStepIsJoinedAgain) {
  TempDir folder;
  const std::string address = "unix:" + folder.path() + "/server";
  auto server = StartServer(address);
  EnvWorkerOptions options = CartPole(4, /*workers=*/1, /*groups=*/1);
  options.env.set_server(address);
  options.env.set_max_worker_restarts(1);
  auto pool = Start(options);
  ASSERT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kReset);
  server.reset();
  server = StartServer(address);
  Act(pool.get(), 0);
  const auto again = pool->Receive(0, {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, EnvPool::Event::kReset);
  EXPECT_EQ(pool->restarts(), 1);
  // Not for ever.
  server.reset();
  Act(pool.get(), 0);
  const absl::Status status = pool->Receive(0, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("failed 2 times in 10 minutes"));
}

// Also where its specification has no name.
TEST(EnvPoolTest, AServerThatComesBackServesWhatItDid) {
  for (const bool unnamed : {false, true}) {
    SCOPED_TRACE(unnamed ? "unnamed" : "named");
    TempDir folder;
    const std::string address = "unix:" + folder.path() + "/server";
    const auto serve = [&](TurnsFactory* factory, EnvService* service) {
      factory->unnamed = unnamed;
      return std::make_unique<InProcessServer>(
          std::vector<RpcServerOptions::NamedService>{
              {"flotilla.v1.EnvService", service}},
          [service] { service->Shutdown(); }, address);
    };
    TurnsFactory two(2), three(3);
    EnvService of_two(&two, PlayOptions()), of_three(&three, PlayOptions());
    auto server = serve(&two, &of_two);
    EnvWorkerOptions options = CartPole(6, /*workers=*/1, /*groups=*/1);
    options.env.set_id("Turns");
    options.env.set_server(address);
    options.env.set_max_worker_restarts(1);
    auto pool = Start(options);
    ASSERT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kReset);
    Act(pool.get(), 0, 0);
    ASSERT_EQ(pool->Receive(0, {}).value(), EnvPool::Event::kStep);
    server.reset();
    server = serve(&three, &of_three);
    Act(pool.get(), 0, 0);
    absl::StatusOr<EnvPool::Event> event = EnvPool::Event::kAbsent;
    const absl::Time deadline = SteadyNow() + absl::Seconds(20);
    while (event.ok() && *event == EnvPool::Event::kAbsent) {
      ASSERT_LT(SteadyNow(), deadline);
      event = pool->Receive(0, {});
      if (event.ok()) Act(pool.get(), 0, 0);
    }
    EXPECT_THAT(std::string(event.status().message()),
                testing::HasSubstr("serves another specification"));
    pool.reset();
    server.reset();
  }
}

TEST(EnvPoolTest, AServerOfOnePlayerRefusesTheSecondWorkerWithARemedy) {
  TempDir folder;
  const std::string address = "unix:" + folder.path() + "/server";
  const auto server = StartServer(address);
  EnvWorkerOptions options = CartPole(4, /*workers=*/2, /*groups=*/1);
  options.env.set_server(address);
  const auto pool = EnvPool::Start(options, 0, 1);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(pool.status().message()),
              testing::AllOf(testing::HasSubstr(address),
                             testing::HasSubstr("has to wait"),
                             testing::HasSubstr("env.num_workers=1")));
}

TEST(DroppedServersTest, AServerIsDroppedUntilItsTime) {
  const absl::Time now = absl::UnixEpoch();
  DroppedServers dropped;
  dropped.Drop("a", now + absl::Seconds(10));
  dropped.Drop("b", now + absl::Seconds(20));
  EXPECT_THAT(dropped.At(now), testing::ElementsAre("a", "b"));
  EXPECT_THAT(dropped.At(now + absl::Seconds(10)), testing::ElementsAre("b"));
  EXPECT_THAT(dropped.At(now + absl::Seconds(20)), testing::IsEmpty());
}

// Incarnations, from `first` on.
std::function<uint64_t()> From(uint64_t first) {
  return [next = first]() mutable { return next++; };
}

TEST(LeaseEnvWorkerTest, ADroppedServerIsLeasedAgainAfterItsTime) {
  TempDir folder;
  Leases leases(folder.path(), /*again=*/true);
  const std::string address = "unix:" + folder.path() + "/only";
  auto server = StartServer(address);
  leases.Offer("only", address);
  EnvWorkerOptions options = CartPole(4, /*workers=*/1, /*groups=*/1);
  options.coordinator = &leases;
  DroppedServers dropped;
  const absl::Time until = SteadyNow() + absl::Milliseconds(300);
  dropped.Drop("only", until);
  const auto worker = LeaseEnvWorker(options, &dropped, /*worker_id=*/0,
                                     From(1), /*rows=*/4, /*groups=*/1, {});
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ(worker->remote_id, "only");
  EXPECT_GE(SteadyNow(), until);
}

TEST(LeaseEnvWorkerTest, AServerDroppedMeanwhileIsNotLeased) {
  TempDir folder;
  Leases leases(folder.path(), /*again=*/true);
  EnvWorkerOptions options = CartPole(4, /*workers=*/1, /*groups=*/1);
  options.coordinator = &leases;
  DroppedServers dropped;
  std::stop_source stop;
  int asked = 0;
  leases.on_lease = [&] {
    // Between two attempts of a worker that waits.
    if (++asked == 1) dropped.Drop("bad", SteadyNow() + absl::Hours(1));
    if (asked == 2) leases.Offer("bad", "unix:" + folder.path() + "/bad");
    if (asked == 4) stop.request_stop();
  };
  const auto worker =
      LeaseEnvWorker(options, &dropped, 0, From(1), 4, 1, stop.get_token());
  EXPECT_EQ(worker.status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(leases.released(), testing::ElementsAre("bad", "bad", "bad"));
}

// It may have been leased, and is nobody else's then.
TEST(LeaseEnvWorkerTest, WhatWasNotAnsweredIsAskedForAgainAndNotBeside) {
  TempDir folder;
  Leases leases(folder.path());
  leases.LoseAnswers(2);
  EnvWorkerOptions options = CartPole(4, /*workers=*/1, /*groups=*/1);
  options.coordinator = &leases;
  DroppedServers dropped;
  std::stop_source stop;
  int asked = 0;
  leases.on_lease = [&] {
    if (++asked == 5) stop.request_stop();
  };
  const auto worker =
      LeaseEnvWorker(options, &dropped, 0, From(1), 4, 1, stop.get_token());
  EXPECT_EQ(worker.status().code(), absl::StatusCode::kCancelled);
  const std::vector<std::string> ids = leases.lease_ids();
  ASSERT_EQ(ids.size(), 5u);
  EXPECT_NE(ids[0], "");
  EXPECT_EQ(ids[1], ids[0]);
  EXPECT_EQ(ids[2], ids[0]);  // the first that is answered: there is none
  EXPECT_NE(ids[3], ids[0]);
  EXPECT_NE(ids[4], ids[3]);
}

TEST(LeaseEnvWorkerTest, AServerThatRefusesDoesNotKeepAnotherOut) {
  TempDir folder;
  Leases leases(folder.path(), /*again=*/true);
  const std::string good = "unix:" + folder.path() + "/good";
  const std::string busy = "unix:" + folder.path() + "/busy";
  auto good_server = StartServer(good);
  auto busy_server = StartServer(busy);
  v1::Hello hello;
  hello.set_learner_id("another");
  hello.set_env_id("CartPole-v1");
  hello.set_num_envs(1);
  hello.set_num_groups(1);
  const auto player = OpenEnvStream(busy, hello, {});
  ASSERT_TRUE(player.ok()) << player.status();
  leases.Offer("good", good);
  leases.Offer("busy", busy);  // the newest is leased first, each time
  EnvWorkerOptions options = CartPole(4, /*workers=*/1, /*groups=*/1);
  options.coordinator = &leases;
  DroppedServers dropped;
  const auto worker = LeaseEnvWorker(options, &dropped, 0, From(1), 4, 1, {});
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ(worker->remote_id, "good");
}

// Whoever was too slow for the last attempt is still at it.
TEST(LeaseEnvWorkerTest, AServerThatStillHasTheLastAttemptTakesTheNext) {
  TempDir folder;
  Leases leases(folder.path(), /*again=*/true);
  const std::string address = "unix:" + folder.path() + "/only";
  auto server = StartServer(address);
  EnvWorkerOptions options = CartPole(4, /*workers=*/1, /*groups=*/1);
  options.coordinator = &leases;
  v1::Hello hello;
  hello.set_learner_id(options.learner_id + "/" + options.name);
  hello.set_incarnation(7);
  hello.set_env_id("CartPole-v1");
  hello.set_num_envs(4);
  hello.set_num_groups(1);
  const auto last = OpenEnvStream(address, hello, {});
  ASSERT_TRUE(last.ok()) << last.status();
  leases.Offer("only", address);
  std::stop_source stop;
  int asked = 0;
  leases.on_lease = [&] {
    if (++asked == 6) stop.request_stop();
  };
  DroppedServers dropped;
  const auto worker =
      LeaseEnvWorker(options, &dropped, 0, From(7), 4, 1, stop.get_token());
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ(worker->incarnation, 8u);
}

TEST(RetryWaitMsTest, IsWholeMillisecondsThatTheFlagTakes) {
  EXPECT_EQ(RetryWaitMs(0), 0);
  EXPECT_EQ(RetryWaitMs(1e-9), 1);
  EXPECT_EQ(RetryWaitMs(0.0004), 1);
  EXPECT_EQ(RetryWaitMs(0.1), 100);
  EXPECT_EQ(RetryWaitMs(3600), 3600000);
  for (const double huge : {2147483.648, 1e30, HUGE_VAL}) {
    EXPECT_EQ(RetryWaitMs(huge), std::numeric_limits<int>::max());
  }
}

TEST(EnvPoolTest, WithoutLocalWorkersItWaitsForAServerAndSaysWhatToStart) {
  TempDir folder;
  Leases leases(folder.path());
  EnvWorkerOptions options = CartPole(4, /*workers=*/1, /*groups=*/1);
  options.env.set_remote_workers(1);
  options.coordinator = &leases;
  options.remote_timeout = absl::Milliseconds(50);
  const auto pool = EnvPool::Start(options, 0, 1);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(pool.status().message()),
              testing::HasSubstr("flotilla serve-envs --coordinator"));
}

TEST(EnvPoolTest, AStopIsHeardWhileTheFirstServerIsAwaited) {
  TempDir folder;
  Leases leases(folder.path());
  EnvWorkerOptions options = CartPole(4, /*workers=*/1, /*groups=*/1);
  options.env.set_remote_workers(1);
  options.coordinator = &leases;
  std::stop_source stop;
  leases.on_lease = [&] { stop.request_stop(); };
  const auto pool = EnvPool::Start(options, 0, 1, stop.get_token());
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kCancelled);
}

TEST(EnvPoolTest, AStopIsHeardWhileALocalWorkerStarts) {
  EnvWorkerOptions options = CartPole(4, /*workers=*/2, /*groups=*/1);
  std::stop_source stop;
  stop.request_stop();
  const auto pool = EnvPool::Start(options, 0, 1, stop.get_token());
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kCancelled);
}

TEST(EnvPoolTest, StatusHasEachWorkersRate) {
  auto pool = Start(CartPole(4, /*workers=*/2, /*groups=*/1));
  for (int slot : {0, 1}) pool->Receive(slot, {}).value();
  auto workers = pool->Describe();
  EXPECT_EQ(workers[0].steps_per_second(), 0);  // none yet
  const absl::Time deadline = SteadyNow() + absl::Seconds(20);
  while (workers[1].steps_per_second() == 0) {
    ASSERT_LT(SteadyNow(), deadline);
    for (int slot : {0, 1}) {
      Act(pool.get(), slot);
      pool->Receive(slot, {}).value();
    }
    workers = pool->Describe();
  }
  EXPECT_GT(workers[0].steps_per_second(), 0);
}

}  // namespace
}  // namespace flotilla
