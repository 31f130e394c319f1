#include "services/env/env_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/base/steady_now.h"
#include "services/base/text_file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(20);

// Scripts in place of servers: $1 is --listen=..., $2 --address-file=..., $3
// --env=....
class EnvProgramTest : public testing::Test {
 protected:
  absl::StatusOr<EnvProgram> Start(const std::string& script,
                                   absl::Duration timeout = kPatience,
                                   std::stop_token stop = {}) {
    EnvProgramOptions options;
    options.command = {"sh", "-c", script, "script"};
    options.called = "env.server \"exec:script\"";
    options.env_id = "Mine-v0";
    options.socket = socket();
    options.log_path = folder_ / "log";
    return StartEnvProgram(options, timeout, std::move(stop));
  }
  std::string socket() const { return folder_ / "socket"; }

  TempDir folder_;
};

TEST_F(EnvProgramTest, ItIsToldWhereToServeAndWhat) {
  auto program = Start(
      "echo \"$@\"; f=${2#--address-file=}; echo ${1#--listen=} > $f.part; "
      "mv $f.part $f; sleep 1000");
  ASSERT_OK(program);
  EXPECT_EQ(program->address, "unix:" + socket());
  EXPECT_EQ(FirstLine(folder_ / "log"),
            absl::StrCat("--listen=unix:", socket(), " --address-file=",
                         socket(), ".address --env=Mine-v0"));
}

TEST_F(EnvProgramTest, ItMayServeElsewhereOnThisHost) {
  const auto program =
      Start("echo 127.0.0.1:4567 > ${2#--address-file=}; sleep 1000");
  ASSERT_OK(program);
  EXPECT_EQ(program->address, "127.0.0.1:4567");
}

TEST_F(EnvProgramTest, AnAddressIsReadOnceItIsWhole) {
  const auto program = Start(
      "f=${2#--address-file=}; printf 127.0.0 > $f; sleep 0.2; "
      "echo .1:4567 >> $f; sleep 1000");
  ASSERT_OK(program);
  EXPECT_EQ(program->address, "127.0.0.1:4567");
}

TEST_F(EnvProgramTest, OneThatEndsIsToldWithItsLastWords) {
  std::ofstream(folder_ / "log") << "words of another\n";
  EXPECT_THAT(Start("echo before; echo no such module; exit 3"),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("env.server \"exec:script\" (pid "),
                             HasSubstr(") could not start (exit 3); its last "
                                       "words: no such module; its log is "),
                             HasSubstr(folder_ / "log"))));
  EXPECT_THAT(Start("exit 4"), StatusIs(absl::StatusCode::kUnavailable,
                                        AllOf(HasSubstr("(exit 4)"),
                                              Not(HasSubstr("last words")))));
}

TEST_F(EnvProgramTest, OneThatNeverServesIsToldInTime) {
  const absl::Time began = SteadyNow();
  EXPECT_THAT(Start("sleep 1000", absl::Milliseconds(300)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("exec:script"),
                             HasSubstr("has not started after 300ms"),
                             HasSubstr("--address-file"))));
  EXPECT_LT(SteadyNow() - began, kPatience);
}

TEST_F(EnvProgramTest, RubbishInPlaceOfAnAddressIsShown) {
  for (const char* rubbish : {"hello", "example.org:80", "\\033[31m", "unix"}) {
    EXPECT_THAT(
        Start(absl::StrCat("printf '", rubbish,
                           "\\n' > ${2#--address-file=}; sleep 1000")),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr("as its address; want unix:" + socket()),
                       Not(HasSubstr("\033")))));
  }
}

TEST_F(EnvProgramTest, AFloodOfPrintsEndsTheWait) {
  EXPECT_THAT(Start("yes"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("printed more than 16 MiB before it served")));
}

TEST_F(EnvProgramTest, AFloodInPlaceOfAnAddressEndsTheWait) {
  EXPECT_THAT(Start("tr '\\0' x < /dev/zero > ${2#--address-file=}"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("as its address; want unix:")));
}

TEST_F(EnvProgramTest, AMissingProgramIsNamed) {
  EnvProgramOptions options;
  options.called = "env.server \"exec:...\"";
  options.socket = socket();
  for (const char* name : {"./missing", "no-such-program-anywhere"}) {
    options.command = {name};
    EXPECT_THAT(
        StartEnvProgram(options, kPatience, {}),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 HasSubstr(absl::StrCat("there is no program ", name))));
  }
}

TEST_F(EnvProgramTest, AStopEndsTheWait) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(Start("sleep 1000", kPatience, stop.get_token()),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("stop")));
}

// It knows nothing of lifelines; neither does what it starts.
TEST_F(EnvProgramTest, NothingOfItIsLeft) {
  const std::string child = folder_ / "child";
  auto program = Start(absl::StrCat("sleep 1000 & echo $! > ", child,
                                    "; echo ${1#--listen=} > "
                                    "${2#--address-file=}; wait"));
  ASSERT_OK(program);
  const pid_t pid = std::stoi(FirstLine(child));
  // Readable once it has ended, whoever reaps it.
  const int ended = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  ASSERT_GE(ended, 0);
  pollfd wait{.fd = ended, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&wait, 1, 0), 0);
  program->process.reset();
  EXPECT_EQ(poll(&wait, 1, absl::ToInt64Milliseconds(kPatience)), 1);
  close(ended);
}

}  // namespace
}  // namespace flotilla
