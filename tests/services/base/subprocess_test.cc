#include "services/base/subprocess.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/lifeline.h"
#include "services/base/steady_now.h"

namespace flotilla {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Polls until `ready` holds, for as long as a loaded machine may need.
bool Eventually(const std::function<bool()>& ready) {
  const absl::Time deadline = SteadyNow() + kPatience;
  while (!ready()) {
    if (SteadyNow() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

// 'R', 'S', 'T' (stopped), 'Z' (zombie); 0 when there is no such process.
char StateIn(const std::string& folder) {
  const std::string stat = ReadFile(folder + "/stat");
  const size_t name_end = stat.rfind(") ");
  return name_end == std::string::npos ? 0 : stat[name_end + 2];
}

char State(pid_t pid) { return StateIn(absl::StrCat("/proc/", pid)); }

// All of its threads: before that its stop is not one for the kernel.
bool IsStopped(pid_t pid) {
  const std::string tasks = absl::StrCat("/proc/", pid, "/task");
  bool stopped = true;
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    stopped &= StateIn(task.path()) == 'T';
  }
  return stopped;
}

// Gone, or a zombie that its new parent has not reaped.
bool IsGone(pid_t pid) { return State(pid) == 0 || State(pid) == 'Z'; }

class SubprocessTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/subprocess_test.XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Subprocess> Shell(const std::string& script) {
    auto child = Subprocess::Start(
        {.argv = {"/bin/sh", "-c", script}, .log_path = log()});
    EXPECT_TRUE(child.ok()) << child.status();
    return *std::move(child);
  }
  std::string log() const { return folder_ + "/log"; }

  std::string folder_;
};

TEST_F(SubprocessTest, ReportsTheExitStatus) {
  auto child = Shell("exit 7");
  const auto exit = child->Wait(kPatience);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 7);
  EXPECT_EQ(exit->signal, 0);
  EXPECT_EQ(exit->ToString(), "exit 7");
  EXPECT_EQ(child->Poll()->code, 7);  // and again
}

TEST_F(SubprocessTest, AFileThatIsMadeLastIsSeen) {
  for (int i = 0; i < 200; ++i) {
    const std::string file = absl::StrCat(folder_, "/", i);
    const absl::Status seen = Shell(": > " + file)->AwaitFile(file, kPatience);
    EXPECT_TRUE(seen.ok()) << i << ": " << seen;
  }
  const absl::Status none = Shell("exit 0")->AwaitFile("/no/file", kPatience);
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("could not start"));
}

TEST_F(SubprocessTest, ReportsTheSignalThatEndedIt) {
  auto child = Shell("kill -9 $$");
  const auto exit = child->Wait(kPatience);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 137);
  EXPECT_EQ(exit->ToString(), "signal 9 (Killed)");
}

TEST_F(SubprocessTest, PollAndAShortWaitSayNothingWhileItRuns) {
  auto child = Shell("sleep 1000");
  EXPECT_FALSE(child->Poll().has_value());
  EXPECT_FALSE(child->Wait(absl::Milliseconds(20)).has_value());
}

TEST_F(SubprocessTest, AppendsBothStreamsToTheLog) {
  std::ofstream(log()) << "before\n";
  ASSERT_TRUE(Shell("echo out; echo err >&2")->Wait(kPatience).has_value());
  EXPECT_EQ(ReadFile(log()), "before\nout\nerr\n");
}

TEST_F(SubprocessTest, AddsAndReplacesVariables) {
  setenv("SUBPROCESS_TEST_KEPT", "kept", 1);
  setenv("SUBPROCESS_TEST_CHANGED", "old", 1);
  auto child = Subprocess::Start(
      {.argv = {"/bin/sh", "-c",
                "echo $SUBPROCESS_TEST_KEPT $SUBPROCESS_TEST_CHANGED $NEW"},
       .env = {{"SUBPROCESS_TEST_CHANGED", "new"}, {"NEW", "added"}},
       .log_path = log()});
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE((*child)->Wait(kPatience).has_value());
  EXPECT_EQ(ReadFile(log()), "kept new added\n");
}

TEST_F(SubprocessTest, AMissingProgramIsNamed) {
  const auto child = Subprocess::Start({.argv = {"/no/such/program"}});
  EXPECT_EQ(child.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(child.status().message()),
              HasSubstr("/no/such/program"));
}

TEST_F(SubprocessTest, AFileThatCannotRunIsPermissionDenied) {
  std::ofstream(folder_ + "/plain") << "text";
  const auto child = Subprocess::Start({.argv = {folder_ + "/plain"}});
  EXPECT_EQ(child.status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(SubprocessTest, AnUnwritableLogIsNamed) {
  const auto child = Subprocess::Start(
      {.argv = {"/bin/true"}, .log_path = folder_ + "/none/log"});
  EXPECT_EQ(child.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(child.status().message()), HasSubstr("none/log"));
}

TEST_F(SubprocessTest, HoldsOnlyTheStandardDescriptorsAndItsLifeline) {
  auto sibling = Shell("sleep 1000");  // whose lifeline must not be seen below
  const int inheritable = dup(1);      // as a careless library would leave it
  auto child = Shell("ls /proc/$$/fd");
  ASSERT_TRUE(child->Wait(kPatience).has_value());
  close(inheritable);
  EXPECT_EQ(ReadFile(log()), "0\n1\n2\n3\n");
}

TEST_F(SubprocessTest, StartsWithNoSignalBlockedOrIgnored) {
  sigset_t blocked;
  sigfillset(&blocked);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  const auto handler = signal(SIGPIPE, SIG_IGN);
  auto child =
      Shell("sed -n 's/^SigBlk:.//p; s/^SigIgn:.//p' /proc/self/status");
  signal(SIGPIPE, handler);
  pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
  ASSERT_TRUE(child->Wait(kPatience).has_value());
  std::istringstream lines(ReadFile(log()));
  uint64_t blocked_bits = ~0ULL, ignored_bits = ~0ULL;
  lines >> std::hex >> blocked_bits >> ignored_bits;
  EXPECT_EQ(blocked_bits, 0);
  // glibc keeps the two real-time signals that it uses itself ignored.
  EXPECT_EQ(ignored_bits & 0x7fffffff, 0);
}

TEST_F(SubprocessTest, SignalReachesTheProcessOrItsGroup) {
  const std::string script =
      "trap 'echo outer' TERM; "
      "sh -c 'trap \"echo inner; exit\" TERM; echo up; while :; do sleep 0.01; "
      "done' & while ! wait; do :; done";
  auto child = Shell(script);
  ASSERT_TRUE(Eventually([&] { return ReadFile(log()) == "up\n"; }));
  child->Signal(SIGTERM, /*whole_group=*/true);
  EXPECT_TRUE(Eventually([&] {
    const std::string text = ReadFile(log());
    return text.find("inner") != text.npos && text.find("outer") != text.npos;
  }));
}

TEST_F(SubprocessTest, SignalAfterTheEndIsANoOp) {
  auto child = Shell("exit 0");
  ASSERT_TRUE(child->Wait(kPatience).has_value());
  child->Signal(SIGKILL, true);
}

TEST_F(SubprocessTest, DestructionKillsTheWholeGroup) {
  auto child = Shell("sleep 1000 & echo $!; wait");
  pid_t inner = 0;
  ASSERT_TRUE(Eventually([&] {
    inner = atoi(ReadFile(log()).c_str());
    return inner > 0;
  }));
  const pid_t outer = child->pid();
  child.reset();
  EXPECT_TRUE(IsGone(outer));
  EXPECT_TRUE(Eventually([&] { return IsGone(inner); }));
}

TEST_F(SubprocessTest, WhatAnEndedChildLeftInItsGroupIsKilled) {
  auto child = Shell("sleep 1000 & echo $!");
  ASSERT_TRUE(child->Wait(kPatience).has_value());
  const pid_t inner = atoi(ReadFile(log()).c_str());
  ASSERT_GT(inner, 0);
  EXPECT_TRUE(Eventually([&] { return IsGone(inner); }));
}

TEST_F(SubprocessTest, ManyThreadsMayStartChildrenAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> succeeded = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 5; ++k) {
        auto child = Subprocess::Start({.argv = {"/bin/true"}});
        if (child.ok() && (*child)->Wait(kPatience)->code == 0) ++succeeded;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(succeeded, 20);
}

TEST_F(SubprocessTest, ProgramFolderHoldsThisProgram) {
  EXPECT_TRUE(std::filesystem::exists(ProgramFolder() + "/" +
                                      program_invocation_short_name));
}

// The lifeline: this program runs again as a chain of processes, each the
// parent of the next, and writes one line with its pid.
class LifelineTest : public SubprocessTest {
 protected:
  std::vector<pid_t> Pids() const {
    std::vector<pid_t> pids;
    std::ifstream file(log());
    for (pid_t pid; file >> pid;) pids.push_back(pid);
    return pids;
  }

  std::unique_ptr<Subprocess> StartChain(int length) {
    auto child = Subprocess::Start(
        {.argv = {"/proc/self/exe", "--chain", absl::StrCat(length)},
         .log_path = log()});
    EXPECT_TRUE(child.ok()) << child.status();
    EXPECT_TRUE(Eventually(
        [&] { return Pids().size() == static_cast<size_t>(length); }));
    return *std::move(child);
  }
};

TEST_F(LifelineTest, Kill9OfAParentEndsChildAndGrandchild) {
  auto child = StartChain(3);
  const std::vector<pid_t> pids = Pids();
  kill(child->pid(), SIGKILL);
  for (const pid_t pid : pids) {
    EXPECT_TRUE(Eventually([&] { return IsGone(pid); })) << pid;
  }
}

TEST_F(LifelineTest, AStoppedChildGoesToo) {
  auto child = StartChain(2);
  const std::vector<pid_t> pids = Pids();
  kill(pids[1], SIGSTOP);
  ASSERT_TRUE(Eventually([&] { return IsStopped(pids[1]); }));
  // The kernel continues a stopped group that the death of its parent orphans.
  kill(pids[0], SIGKILL);
  EXPECT_TRUE(Eventually([&] { return IsGone(pids[1]); }));
}

TEST_F(LifelineTest, ChildrenLiveWhileTheParentDoes) {
  auto child = StartChain(2);
  for (const pid_t pid : Pids()) EXPECT_FALSE(IsGone(pid));
  EXPECT_FALSE(child->Wait(absl::Milliseconds(50)).has_value());
}

TEST_F(LifelineTest, AVariableThatNamesNoPipeIsIgnored) {
  auto child = Subprocess::Start(
      {.argv = {"/bin/sh", "-c",
                absl::StrCat("exec 3<&-; exec /proc/", getpid(),
                             "/exe --watch-and-exit")},
       .log_path = log()});
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ((*child)->Wait(kPatience)->ToString(), "exit 0");
}

int RunChain(int length) {
  StartLifelineWatch();
  const std::string line = absl::StrCat(getpid(), "\n");
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) return 1;
  std::unique_ptr<Subprocess> next;
  if (length > 1) {
    auto started = Subprocess::Start(
        {.argv = {"/proc/self/exe", "--chain", absl::StrCat(length - 1)}});
    if (!started.ok()) return 1;
    next = *std::move(started);
  }
  for (;;) pause();
}

// A program that has never heard of lifelines, started by one that is killed.
TEST_F(SubprocessTest, AGuardedProgramCannotOutliveItsParent) {
  const std::string file = folder_ + "/pid";
  const pid_t parent = fork();
  if (parent == 0) {
    const auto child = Subprocess::Start(
        {.argv = {"/bin/sh", "-c", "echo $$ > " + file + "; exec sleep 1000"},
         .guarded = true});
    for (;;) pause();
  }
  std::string text;
  ASSERT_TRUE(Eventually([&] {
    text = ReadFile(file);
    return text.ends_with("\n");
  }));
  const pid_t program = std::stoi(text);
  EXPECT_FALSE(IsGone(program));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  EXPECT_TRUE(Eventually([&] { return IsGone(program); }));
}

TEST_F(SubprocessTest, AGuardEndsWithItsProgram) {
  auto child = Subprocess::Start(
      {.argv = {"/bin/sh", "-c",
                "g=$(ps -o pgid= $$); ps -eo pid=,pgid= | "
                "while read p q; do [ $q = $g ] && echo $p; done; exit 0"},
       .log_path = log(),
       .guarded = true});
  ASSERT_TRUE(child.ok()) << child.status();
  const auto exit = (*child)->Wait(kPatience);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->ToString(), "exit 0");
  std::istringstream pids(ReadFile(log()));
  int members = 0;
  for (pid_t pid; pids >> pid; ++members) {
    EXPECT_TRUE(Eventually([&] { return IsGone(pid); })) << pid;
  }
  EXPECT_GE(members, 2) << ReadFile(log());  // the guard, and the program
}

}  // namespace
}  // namespace flotilla

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--chain") == 0) {
    return flotilla::RunChain(atoi(argv[2]));
  }
  if (argc == 2 && strcmp(argv[1], "--watch-and-exit") == 0) {
    flotilla::StartLifelineWatch();
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
