// flotilla-envserver as a process of its own: how it is started, how it ends,
// and what a learner sees when it dies or hangs.

#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "services/base/host_name.h"
#include "services/base/steady_now.h"
#include "services/base/subprocess.h"
#include "services/base/version.h"
#include "services/coordinator/coordinator_client.h"
#include "services/env/env_stream.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(30);

class ProcessTest : public testing::Test {
 protected:
  static std::string Program(const std::string& name) {
    const char* bin = std::getenv("FLOTILLA_BIN");
    return absl::StrCat(bin == nullptr ? ProgramFolder() : bin, "/", name);
  }

  std::unique_ptr<Subprocess> Launch(std::vector<std::string> command,
                                     const std::string& log) {
    SubprocessOptions options;
    options.argv = std::move(command);
    options.log_path = dir_ / log;
    auto process = Subprocess::Start(options);
    CHECK(process.ok()) << process.status();
    return *std::move(process);
  }

  std::unique_ptr<Subprocess> Start(std::vector<std::string> flags) {
    flags.insert(flags.begin(), Program("flotilla-envserver"));
    return Launch(std::move(flags), "log");
  }

  // A server on a unix socket that is ready.
  std::unique_ptr<Subprocess> Serve(std::vector<std::string> flags = {}) {
    flags.push_back("--listen=" + address());
    flags.push_back("--address_file=" + (dir_ / "address"));
    auto process = Start(std::move(flags));
    const absl::Time deadline = SteadyNow() + kLimit;
    while (ReadFile(dir_ / "address").empty() && SteadyNow() < deadline) {
      if (process->Wait(absl::Milliseconds(5))) ADD_FAILURE() << Log();
    }
    return process;
  }

  std::string address() const { return "unix:" + (dir_ / "sock"); }
  std::string Log() const { return ReadFile(dir_ / "log"); }

  absl::StatusOr<std::unique_ptr<EnvStream>> Open(
      const std::string& env_id = "CartPole-v1", int num_envs = 4,
      const EnvStreamOptions& options = {}) {
    v1::Hello hello;
    hello.set_learner_id("test");
    hello.set_env_id(env_id);
    hello.set_num_envs(num_envs);
    hello.set_num_groups(1);
    return OpenEnvStream(address(), hello, options);
  }

  static v1::ActionBatch Actions(const v1::StepBatch& batch, int rows) {
    v1::ActionBatch actions;
    actions.set_seq(batch.seq());
    actions.add_action(std::string(rows * sizeof(int64_t), '\0'));
    return actions;
  }

  int ExitCode(std::vector<std::string> flags) {
    const auto exit = Start(std::move(flags))->Wait(kLimit);
    return exit ? exit->code : -1;
  }

  const TempDir dir_;
};

TEST_F(ProcessTest, HelpAndVersionAreNoErrors) {
  EXPECT_EQ(ExitCode({"--help"}), 0);
  EXPECT_THAT(Log(), HasSubstr("--address-file"));
  EXPECT_EQ(ExitCode({"--version"}), 0);
  EXPECT_THAT(Log(), HasSubstr("flotilla-envserver " + Version()));
}

TEST_F(ProcessTest, WrongUsageIsTwo) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--lisen=x"}, "there is no flag --lisen; did you mean --listen?"},
      {{"--threads=many"}, "--threads is \"many\""},
      {{"--threads=-1"},
       "--threads is \"-1\"; expected an integer of at least 0"},
      {{"--num_envs=0"},
       "--num-envs is \"0\"; expected an integer of at least 1"},
      {{"--listen"}, "--listen needs a value: --listen ADDRESS"},
      {{"serve"}, "unexpected argument \"serve\""},
      {{"--listen=nowhere"}, "cannot listen on \"nowhere\""},
      {{"--listen=0.0.0.0:0"}, "--insecure"},
      {{"--tls-cert=x"}, "--tls"},
  };
  for (const auto& [flags, message] : cases) {
    EXPECT_EQ(ExitCode(flags), 2);
    EXPECT_THAT(Log(), HasSubstr(message));
  }
}

TEST_F(ProcessTest, AddressInUseIsOne) {
  const auto first = Serve();
  EXPECT_EQ(ExitCode({"--listen=" + address()}), 1);
  EXPECT_THAT(Log(), HasSubstr("something listens there already"));
}

TEST_F(ProcessTest, AddressFileNamesTheFreePort) {
  const auto server =
      Start({"--listen=127.0.0.1:0", "--address_file=" + (dir_ / "address")});
  const absl::Time deadline = SteadyNow() + kLimit;
  std::string text;
  while (text.empty() && SteadyNow() < deadline) {
    ASSERT_FALSE(server->Wait(absl::Milliseconds(5))) << Log();
    text = ReadFile(dir_ / "address");
  }
  const std::vector<std::string> parts =
      absl::StrSplit(absl::StripSuffix(text, "\n"), ':');
  ASSERT_EQ(parts.size(), 2u) << text;
  EXPECT_EQ(parts[0], "127.0.0.1");
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(parts[1], &port));
  EXPECT_GT(port, 0);
}

// As in a container that is started again, where host and pid are the same.
TEST_F(ProcessTest, APlaceIsAwaitedUntilWhoHadItIsDead) {
  const std::string at = "unix:" + (dir_ / "coordinator");
  const auto coordinator =
      Launch({Program("flotilla-coordinator"), "--listen=" + at,
              "--heartbeat-seconds=0.1", "--dead-after-seconds=3"},
             "coordinator.log");
  // Its pid is known before it is one.
  ASSERT_EQ(mkfifo((dir_ / "go").c_str(), 0600), 0);
  const auto server =
      Launch({"/bin/sh", "-c", "read go < \"$1\"; shift; exec \"$@\"", "sh",
              dir_ / "go", Program("flotilla-envserver"),
              "--listen=" + address(), "--coordinator=" + at, "--num-envs=7"},
             "log");
  v1::Member before;
  before.set_id(absl::StrCat("env/", HostName(), "/", server->pid()));
  before.set_incarnation(1);
  before.set_role(v1::ENV_SERVER);
  v1::Member other = before;
  other.set_id("env/other/1");
  ASSERT_OK_AND_ASSIGN(auto place, JoinRun(at, before, {}, kLimit));
  ASSERT_OK_AND_ASSIGN(const auto observer, JoinRun(at, other, {}, kLimit));
  WriteFile(dir_ / "go", "now\n");
  absl::Time deadline = SteadyNow() + kLimit;
  while (!absl::StrContains(Log(), "is another's") && SteadyNow() < deadline) {
    ASSERT_FALSE(server->Wait(absl::Milliseconds(5))) << Log();
  }
  place.reset();
  deadline = SteadyNow() + kLimit;
  bool joined = false;
  while (!joined && SteadyNow() < deadline) {
    ASSERT_FALSE(server->Wait(absl::Milliseconds(5))) << Log();
    ASSERT_OK_AND_ASSIGN(const v1::Status status, observer->GetStatus());
    for (const v1::EnvServerStatus& joiner : status.env_server()) {
      joined |= joiner.id() == before.id() && joiner.num_envs() == 7;
    }
  }
  EXPECT_TRUE(joined) << Log();
}

TEST_F(ProcessTest, TermEndsItGracefullyWhileALearnerPlays) {
  const auto server = Serve();
  ASSERT_OK_AND_ASSIGN(const auto stream, Open());
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  server->Signal(SIGTERM);
  // Although the learner, busy learning, does not look.
  const auto exit = server->Wait(absl::Seconds(4));
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 0) << Log();
  // Sent before or after the end, the answer is the same.
  absl::Status status = stream->Send(Actions(batch, 4));
  if (status.ok()) status = stream->Receive(&batch);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(ProcessTest, KilledServerIsUnavailableAtOnce) {
  const auto server = Serve();
  ASSERT_OK_AND_ASSIGN(const auto stream, Open("Sleep"));
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  const absl::Time begin = SteadyNow();
  server->Signal(SIGKILL);
  absl::Status status;
  while (status.ok()) {
    status = stream->Send(Actions(batch, 4));
    if (status.ok()) status = stream->Receive(&batch);
  }
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(address())));
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(10));
}

TEST_F(ProcessTest, StoppedServerIsNoticedByTheStepTimeout) {
  const auto server = Serve();
  EnvStreamOptions options;
  options.step_timeout = absl::Milliseconds(300);
  ASSERT_OK_AND_ASSIGN(auto stream, Open("CartPole-v1", 4, options));
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  server->Signal(SIGSTOP);
  const absl::Time begin = SteadyNow();
  absl::Status status;
  while (status.ok()) {
    status = stream->Send(Actions(batch, 4));
    if (status.ok()) status = stream->Receive(&batch);
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded));
  stream.reset();  // does not wait for the server either
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(10));
  server->Signal(SIGCONT);
}

TEST_F(ProcessTest, NumEnvsIsTheMostALearnerGets) {
  const auto server = Serve({"--num-envs=4"});
  EXPECT_OK(Open("CartPole-v1", 4));
  EXPECT_THAT(Open("CartPole-v1", 5),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("hello.num_envs is 5, want 1 to 4")));
}

double ResidentMegabytes(pid_t pid) {
  for (absl::string_view line :
       absl::StrSplit(ReadFile(absl::StrCat("/proc/", pid, "/status")), '\n')) {
    double kilobytes = 0;
    if (absl::ConsumePrefix(&line, "VmRSS:") &&
        absl::ConsumeSuffix(&line, "kB") &&
        absl::SimpleAtod(line, &kilobytes)) {
      return kilobytes / 1024;
    }
  }
  return -1;
}

TEST_F(ProcessTest, CartPoleServerIsSmall) {
  const auto server = Serve();
  ASSERT_OK_AND_ASSIGN(const auto stream, Open("CartPole-v1", 64));
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  for (int i = 0; i < 200; ++i) {
    ASSERT_OK(stream->Send(Actions(batch, 64)));
    ASSERT_OK(stream->Receive(&batch));
  }
  EXPECT_GT(ResidentMegabytes(server->pid()), 1);
#ifndef FLOTILLA_ASAN
  EXPECT_LT(ResidentMegabytes(server->pid()), 40);
#endif
}

TEST_F(ProcessTest, SixteenAtariGamesFitInMemory) {
  const auto server = Serve();
  auto stream = Open("ALE/Pong-v5", 16);
  if (!stream.ok()) GTEST_SKIP() << stream.status();
  v1::StepBatch batch;
  ASSERT_OK((*stream)->Receive(&batch));
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK((*stream)->Send(Actions(batch, 16)));
    ASSERT_OK((*stream)->Receive(&batch));
  }
#ifndef FLOTILLA_ASAN
  EXPECT_LT(ResidentMegabytes(server->pid()), 250);
#endif
}

}  // namespace
}  // namespace flotilla
