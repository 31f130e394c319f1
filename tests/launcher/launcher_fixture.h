#ifndef FLOTILLA_TESTS_LAUNCHER_LAUNCHER_FIXTURE_H_
#define FLOTILLA_TESTS_LAUNCHER_LAUNCHER_FIXTURE_H_

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "services/base/steady_now.h"
#include "services/base/subprocess.h"
#include "tests/testing/temp_dir.h"

// The program `flotilla`, with the real coordinator and env server and learners
// that fake training.

namespace flotilla {

inline constexpr absl::Duration kPatience = absl::Seconds(40);

inline bool Eventually(const std::function<bool()>& ready) {
  const absl::Time deadline = SteadyNow() + kPatience;
  while (!ready()) {
    if (SteadyNow() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

inline bool IsGone(pid_t pid) {
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = stat.rfind(") ");
  return name_end == std::string::npos || stat[name_end + 2] == 'Z';
}

// A free port of this host, held until the object goes.
class TakenPort {
 public:
  TakenPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    listen(fd_, 5);
    socklen_t size = sizeof(address);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~TakenPort() { close(fd_); }
  const std::string& address() const { return address_; }

 private:
  const int fd_;
  std::string address_;
};

struct Ended {
  int code = -1;
  std::string output;
};

class LauncherTest : public testing::Test {
 protected:
  LauncherTest() {
    const std::string bin = std::getenv("FLOTILLA_BIN");
    std::filesystem::create_directories(temp_ / "bin");
    for (const char* name : {"flotilla-coordinator", "flotilla-envserver"}) {
      std::filesystem::create_symlink(bin + "/" + name,
                                      temp_ / (std::string("bin/") + name));
    }
    std::filesystem::create_symlink(FAKE_LEARNER_PATH,
                                    temp_ / "bin/flotilla-learner");
    flotilla_ = bin + "/flotilla";
  }

  // `flotilla train cartpole_fast --standalone --run-dir RUN ...`
  std::unique_ptr<Subprocess> Train(const std::string& mode,
                                    std::vector<std::string> more = {}) {
    more.insert(more.begin(),
                {"train", "cartpole_fast", "--standalone", "--run-dir", run()});
    return Start(mode, more);
  }

  std::unique_ptr<Subprocess> Start(const std::string& mode,
                                    std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), flotilla_);
    std::vector<std::pair<std::string, std::string>> env = {
        {"FLOTILLA_PROGRAM_FOLDER", temp_ / "bin"},
        {"FLOTILLA_CONFIG_DIR",
         std::string(std::getenv("FLOTILLA_SOURCE")) + "/deploy/configs"},
        {"FAKE_LEARNER", mode}};
    env.insert(env.end(), more_env_.begin(), more_env_.end());
    auto program = Subprocess::Start(
        {.argv = arguments, .env = env, .log_path = output_path()});
    EXPECT_TRUE(program.ok()) << program.status();
    return *std::move(program);
  }

  Ended End(std::unique_ptr<Subprocess> program) {
    const auto exit = program->Wait(kPatience);
    EXPECT_TRUE(exit.has_value()) << "it did not end\n" << output();
    return {exit ? exit->code : -1, output()};
  }

  Ended Run(const std::string& mode,
            const std::vector<std::string>& arguments) {
    std::filesystem::remove(output_path());
    return End(Start(mode, arguments));
  }

  // Waits for `count` lines of RUN/events that begin with `word`.
  bool AwaitEvents(const std::string& word, int count) {
    return Eventually([&] { return CountEvents(word) >= count; });
  }

  int CountEvents(const std::string& word) const {
    int found = 0;
    for (const std::string& line : Events()) {
      found += absl::StartsWith(line, word);
    }
    return found;
  }

  std::vector<std::string> Events() const {
    return absl::StrSplit(ReadFile(run() + "/events"), '\n', absl::SkipEmpty());
  }

  bool StatusAnswers(const std::string& address) {
    auto status = Subprocess::Start(
        {.argv = {flotilla_, "status", "--coordinator", address},
         .log_path = temp_ / "status"});
    return status.ok() && (*status)->Wait(kPatience)->code == 0;
  }

  // Kills the coordinator of `launcher`, and waits until another answers where it
  // was. `meanwhile` comes once the launcher has said so.
  void LoseCoordinator(
      pid_t launcher, const std::function<void()>& meanwhile = [] {}) {
    std::string address = ReadFile(run() + "/coordinator.address");
    address.pop_back();  // the line's end
    for (const pid_t pid : Processes(launcher)) {
      const std::string name = ReadFile(absl::StrCat("/proc/", pid, "/comm"));
      if (absl::StartsWith(name, "flotilla-coordi")) kill(pid, SIGKILL);
    }
    ASSERT_TRUE(Eventually([&] {
      return absl::StrContains(output(), "the coordinator died (signal 9");
    })) << output();
    meanwhile();
    EXPECT_TRUE(Eventually([&] { return StatusAnswers(address); })) << output();
  }

  // Every process of the run: learners, their workers, the coordinator.
  std::vector<pid_t> Processes(pid_t launcher) const {
    std::vector<pid_t> pids = {launcher};
    for (const std::string& line : Events()) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      if (words[0] == "start" || words[0] == "worker") {
        pids.push_back(atoi(words.back().c_str()));
      }
    }
    const std::string children = ReadFile(
        absl::StrCat("/proc/", launcher, "/task/", launcher, "/children"));
    for (const auto& word :
         absl::StrSplit(children, ' ', absl::SkipWhitespace())) {
      pids.push_back(atoi(std::string(word).c_str()));
    }
    return pids;
  }

  static void ExpectAllGone(const std::vector<pid_t>& pids) {
    for (const pid_t pid : pids) {
      EXPECT_TRUE(Eventually([&] { return IsGone(pid); })) << pid;
    }
  }

  std::string run() const { return temp_ / "run"; }
  std::string output_path() const { return temp_ / "output"; }
  std::string output() const { return ReadFile(output_path()); }

  TempDir temp_;
  std::string flotilla_;
  std::vector<std::pair<std::string, std::string>> more_env_;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LAUNCHER_LAUNCHER_FIXTURE_H_
