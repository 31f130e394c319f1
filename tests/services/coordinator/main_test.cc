#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "services/base/owned_fd.h"
#include "services/base/secret.h"
#include "services/coordinator/coordinator_client.h"
#include "services/coordinator/run_coordinator.h"
#include "tests/services/coordinator/coordinator_program.h"
#include "tests/services/rpc/certificates.h"
#include "tests/services/rpc/health_client.h"
#include "tests/services/rpc/page_client.h"
#include "tests/testing/ports.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

// flotilla-coordinator, the program.

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kLong = absl::Seconds(20);

TEST(CoordinatorMainTest, ServesUntilItIsToldToStop) {
  for (int signal : {SIGTERM, SIGINT}) {
    CoordinatorProgram program({"--listen=127.0.0.1:0"});
    const std::string address = program.AwaitAddress();
    ASSERT_NE(address, "") << program.Log();
    ASSERT_OK_AND_ASSIGN(
        auto client, JoinRun(address, TestLearner(0), {}, kLong, kTestSecret));
    ASSERT_OK(client->JoinGeneration(0, false, kLong));
    program.process()->Signal(signal);
    EXPECT_EQ(program.AwaitExit(), 0) << program.Log();
  }
}

TEST(CoordinatorMainTest, WrongUsageEndsWithTwoAndOneClearError) {
  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"--no_such_flag=1"}, "no_such_flag"},
      {{"surplus"}, "surplus"},
      {{"--min_learners=3", "--max_learners=2"}, "1 <= min <= max"},
      {{"--heartbeat_seconds=0"}, "--heartbeat_seconds"},
      {{"--heartbeat_seconds=3"}, "--dead_after_seconds"},
      {{"--last_call_seconds=-1"}, "--last_call_seconds"},
      {{"--listen=0.0.0.0:0"}, "--insecure"},
      {{"--listen=nonsense", "--insecure"}, "want HOST:PORT"},
      {{"--tls_cert=x"}, "--tls-key"},
  };
  for (const auto& [flags, message] : wrong) {
    CoordinatorProgram program(flags, /*open=*/false);
    EXPECT_EQ(program.AwaitExit(), 2) << message;
    EXPECT_THAT(program.Log(), HasSubstr(message));
  }
}

TEST(CoordinatorMainTest, BusyPortEndsWithOneAndNamesIt) {
  CoordinatorProgram first({"--listen=127.0.0.1:0"});
  const std::string address = first.AwaitAddress();
  TempDir folder;
  WriteFile(folder / "journal", "not even looked at");
  CoordinatorProgram second({"--listen=" + address});
  EXPECT_EQ(second.AwaitExit(), 1);
  EXPECT_THAT(second.Log(),
              AllOf(HasSubstr(address), HasSubstr("listens there already")));
  EXPECT_EQ(second.Log().find('\n'), second.Log().size() - 1) << second.Log();
}

TEST(CoordinatorMainTest, DefaultPortIsLeftToWhoHasIt) {
  // At most one of them gets the default port, and both serve.
  CoordinatorProgram first({}), second({});
  const std::string one = first.AwaitAddress(), two = second.AwaitAddress();
  EXPECT_THAT(one, StartsWith("127.0.0.1:"));
  EXPECT_THAT(two, StartsWith("127.0.0.1:"));
  EXPECT_NE(one, two);
  EXPECT_OK(CheckHealth(one, RpcCredentials()));
  EXPECT_OK(CheckHealth(two, RpcCredentials()));
}

TEST(CoordinatorMainTest, FlagsReachTheRun) {
  CoordinatorProgram program(
      {"--listen=127.0.0.1:0", "--run_id=run-1", "--min_learners=2",
       "--max_learners=3", "--heartbeat_seconds=0.25", "--dead_after_seconds=7",
       "--last_call_seconds=0.1"});
  const std::string address = program.AwaitAddress();
  ASSERT_OK_AND_ASSIGN(auto channel, MakeChannel(address, {}, TestMember()));
  auto stub = v1::CoordinatorService::NewStub(channel);
  v1::RegisterRequest request;
  *request.mutable_member() = TestLearner(0);
  ASSERT_OK_AND_ASSIGN(
      const v1::RegisterResponse registered,
      Call(stub.get(), &v1::CoordinatorService::Stub::Register, request));
  EXPECT_EQ(registered.run_id(), "run-1");
  EXPECT_EQ(registered.heartbeat_ms(), 250);
  EXPECT_EQ(registered.dead_after_ms(), 7000);
  ASSERT_OK_AND_ASSIGN(
      const v1::Status status,
      Call(stub.get(), &v1::CoordinatorService::Stub::GetStatus,
           v1::GetStatusRequest()));
  EXPECT_EQ(status.min_learners(), 2);
  EXPECT_EQ(status.max_learners(), 3);
}

TEST(CoordinatorMainTest, TlsAndTokenAreDemanded) {
  Certificates certificates;
  RpcCredentials credentials = certificates.Member("member");
  credentials.token_file = certificates.folder() / "token";
  WriteFile(credentials.token_file, "secret");
  CoordinatorProgram program(
      {"--listen=127.0.0.1:0", "--tls_cert=" + credentials.tls_cert,
       "--tls_key=" + credentials.tls_key, "--tls_ca=" + credentials.tls_ca,
       "--token_file=" + credentials.token_file});
  const std::string address = program.AwaitAddress();
  EXPECT_OK(CheckHealth(address, credentials));
  EXPECT_THAT(CheckHealth(address, RpcCredentials()),
              StatusIs(StatusCode::kUnavailable));
}

TEST(CoordinatorMainTest, KilledOneIsCarriedOnFromItsJournal) {
  TempDir folder;
  const std::string journal = "--journal=" + (folder / "journal");
  const std::string address = AddressToListenAt();
  CoordinatorProgram first({"--listen=" + address, journal});
  ASSERT_EQ(first.AwaitAddress(), address) << first.Log();
  ASSERT_OK_AND_ASSIGN(
      auto client, JoinRun(address, TestLearner(0), {}, kLong, kTestSecret));
  ASSERT_OK(client->JoinGeneration(0, false, kLong));
  first.process()->Signal(SIGKILL);
  ASSERT_EQ(first.AwaitExit(), 128 + SIGKILL);

  CoordinatorProgram second({"--listen=" + address, journal});
  ASSERT_EQ(second.AwaitAddress(), address) << second.Log();
  EXPECT_THAT(JoinRun(address, TestLearner(0, 2), {}, kLong, DrawSecret()),
              StatusIs(StatusCode::kPermissionDenied));
  EXPECT_OK(client->Set(1, "key", "value"));
  EXPECT_FALSE(client->Fence(1).stop_requested());
}

TEST(CoordinatorMainTest, SomebodyHasToBeKeptFromChangingTheRun) {
  for (const std::string& address :
       {std::string("127.0.0.1:0"), "unix-abstract:flotilla-" + DrawSecret()}) {
    CoordinatorProgram open({"--listen=" + address}, /*open=*/false);
    EXPECT_EQ(open.AwaitExit(), 2) << address;
    EXPECT_THAT(open.Log(),
                AllOf(HasSubstr("--run-token FILE"), HasSubstr("--insecure")));
  }
  CoordinatorProgram both({"--run_token=a", "--token_file=b"}, /*open=*/false);
  EXPECT_EQ(both.AwaitExit(), 2);
  EXPECT_THAT(both.Log(), HasSubstr("--run-token or --token-file"));
}

TEST(CoordinatorMainTest, RunTokenIsMadeAndTakenByWhatChangesTheRun) {
  TempDir folder;
  RpcCredentials credentials;
  credentials.token_file = folder / "token";
  const std::string flag = "--run_token=" + credentials.token_file;
  CoordinatorProgram program({"--listen=127.0.0.1:0", flag}, /*open=*/false);
  const std::string address = program.AwaitAddress();
  ASSERT_NE(address, "") << program.Log();
  const std::string token = ReadFile(credentials.token_file);
  EXPECT_OK(CheckHealth(address, RpcCredentials()));
  using Stub = v1::CoordinatorService::Stub;
  ASSERT_OK_AND_ASSIGN(const auto look, MakeChannel(address, {}));
  const auto stranger = v1::CoordinatorService::NewStub(look);
  EXPECT_OK(Call(stranger.get(), &Stub::GetStatus, v1::GetStatusRequest()));
  EXPECT_THAT(
      Call(stranger.get(), &Stub::Stop, v1::StopRequest()),
      StatusIs(StatusCode::kUnauthenticated, HasSubstr("--token-file")));
  EXPECT_THAT(JoinRun(address, TestLearner(0), {}, kLong),
              StatusIs(StatusCode::kUnauthenticated, HasSubstr(address)));
  EXPECT_OK(JoinRun(address, TestLearner(0), credentials, kLong));

  // Another one of the same run takes the same.
  CoordinatorProgram next({"--listen=127.0.0.1:0", flag}, /*open=*/false);
  ASSERT_NE(next.AwaitAddress(), "") << next.Log();
  EXPECT_EQ(ReadFile(credentials.token_file), token);
}

TEST(CoordinatorMainTest, StaysSmall) {
#ifdef FLOTILLA_ASAN
  GTEST_SKIP() << "of what it holds, ASan's part is the larger";
#endif
  CoordinatorProgram program({"--listen=127.0.0.1:0"});
  const std::string address = program.AwaitAddress();
  ASSERT_OK_AND_ASSIGN(
      auto client, JoinRun(address, TestLearner(0), {}, kLong, kTestSecret));
  ASSERT_OK(client->JoinGeneration(0, false, kLong));
  const std::string status =
      ReadFile("/proc/" + std::to_string(program.process()->pid()) + "/status");
  const size_t at = status.find("VmRSS:");
  ASSERT_NE(at, std::string::npos);
  int kib = 0;
  const std::vector<std::string> words = absl::StrSplit(
      status.substr(at + 6, 40), absl::ByAnyChar(" \t"), absl::SkipEmpty());
  ASSERT_TRUE(absl::SimpleAtoi(words[0], &kib));
  EXPECT_LT(kib, 40 << 10);
}

TEST(RunCoordinatorTest, EndsWhenToldTo) {
  TempDir folder;
  RunCoordinatorOptions options;
  options.listen = "unix:" + (folder / "socket");
  options.address_file = folder / "address";
  std::stop_source stop;
  std::thread run(
      [&] { EXPECT_OK(RunCoordinator(options, stop.get_token())); });
  EXPECT_TRUE(
      Eventually([&] { return !ReadFile(options.address_file).empty(); }));
  EXPECT_OK(CheckHealth(options.listen, RpcCredentials()));
  stop.request_stop();
  run.join();
}

TEST(RunCoordinatorTest, MetricsWithoutAFolderGoOverTls) {
  TempDir folder;
  Certificates certificates;
  const std::string name = "flotilla-" + DrawSecret();
  RunCoordinatorOptions options;
  options.listen = "unix:" + (folder / "socket");
  options.credentials = certificates.Member("member");
  options.metrics_listen = "unix-abstract:" + name;
  options.address_file = folder / "address";
  std::stop_source stop;
  std::thread run(
      [&] { EXPECT_OK(RunCoordinator(options, stop.get_token())); });
  EXPECT_TRUE(
      Eventually([&] { return !ReadFile(options.address_file).empty(); }));
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path + 1, name.data(), name.size());
  const OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                           name.size())),
            0);
  Say(fd, kGet);
  EXPECT_THAT(Hear(fd), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("https")));
  stop.request_stop();
  run.join();
}

TEST(RunCoordinatorTest, FailsIfItCannotSayWhereItListens) {
  TempDir folder;
  RunCoordinatorOptions options;
  options.listen = "127.0.0.1:0";
  options.credentials.insecure = true;
  options.address_file = folder / "no/such/folder";
  EXPECT_THAT(RunCoordinator(options, {}),
              StatusIs(StatusCode::kNotFound, HasSubstr("no/such/folder")));
}

TEST(RunCoordinatorTest, OneThatTakesOverServesThoughItCannotSayWhere) {
  TempDir folder;
  RunCoordinatorOptions options;
  options.listen = "unix:" + (folder / "socket");
  options.service.journal = folder / "journal";
  options.metrics_listen = "unix:" + (folder / "metrics");
  for (const bool takes_over : {false, true}) {
    if (takes_over) {
      options.address_file = folder / "no/such/folder";
      options.metrics_address_file = folder / "no/such/folder";
    }
    std::stop_source stop;
    absl::Status ended;
    std::atomic<bool> over = false;
    std::thread run([&] {
      ended = RunCoordinator(options, stop.get_token());
      over = true;
    });
    EXPECT_TRUE(Eventually([&] {
      return over || CheckHealth(options.listen, RpcCredentials()).ok();
    }));
    EXPECT_FALSE(over);
    stop.request_stop();
    run.join();
    EXPECT_OK(ended);
  }
}

}  // namespace
}  // namespace flotilla
