#include "launcher/supervisor.h"

#include <signal.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/steady_now.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Learners are shell scripts. What they have to tell they append to
// $FOLDER/events.
class SupervisorTest : public testing::Test {
 protected:
  // Runs `count` learners of `script`, in which $I is the index, $N the
  // incarnation, $RESTARTS and $ALONE what LearnerStart says.
  SupervisorResult Run(int count, const std::string& script) {
    SupervisorOptions options;
    options.num_learners = count;
    options.command = [&](const LearnerStart& start) {
      return SubprocessOptions{
          .argv = {missing_ && missing_(start) ? "/no/such/program" : "/bin/sh",
                   "-c", script},
          .env = {{"FOLDER", temp_.path()},
                  {"I", absl::StrCat(start.index)},
                  {"N", absl::StrCat(start.incarnation)},
                  {"RESTARTS", absl::StrCat(start.restarts)},
                  {"ALONE", start.alone ? "alone" : "peers"}},
          .log_path = Log(start.index)};
    };
    options.name = [](int i) { return absl::StrCat("learner ", i); };
    options.log_path = [&](int i) { return Log(i); };
    options.error_path = [&](int i) {
      return temp_ / absl::StrCat("error", i);
    };
    options.max_restarts = max_restarts_;
    options.save_and_stop = save_and_stop_;
    options.stop_signal = [&] { return stop_signal_.load(); };
    options.stop_now = [&] { return stop_now_.load(); };
    options.notice = [&](const std::string& line) { notices_.push_back(line); };
    if (given_up_) options.given_up = given_up_;
    options.run_is_over = [&] { return run_is_over_; };
    options.tick = [&] {
      if (on_tick_) on_tick_();
      return tick_status_;
    };
    return Supervisor(std::move(options)).Run();
  }

  std::string Log(int i) const { return temp_ / absl::StrCat("log", i); }

  std::vector<std::string> Events() const {
    return absl::StrSplit(ReadFile(temp_ / "events"), '\n', absl::SkipEmpty());
  }

  // Once `lines` events are there, as if the user had pressed Ctrl-C.
  void StopAfter(size_t lines, int signal) {
    on_tick_ = [this, lines, signal] {
      if (Events().size() >= lines) stop_signal_ = signal;
    };
  }

  TempDir temp_;
  int max_restarts_ = 3;
  absl::Duration save_and_stop_ = absl::Seconds(30);
  std::atomic<int> stop_signal_ = 0;
  std::atomic<bool> stop_now_ = false;
  std::function<void()> on_tick_;
  std::function<bool(int, pid_t)> given_up_;
  // The program is not there, for that start.
  std::function<bool(const LearnerStart&)> missing_;
  bool run_is_over_ = false;
  absl::Status tick_status_;
  std::vector<std::string> notices_;
};

constexpr char kSave[] =
    "trap 'echo saved >> $FOLDER/events; exit 130' INT; "
    "trap 'exit 75' TERM USR1 USR2 HUP; "
    "echo up >> $FOLDER/events; while :; do sleep 0.01; done";

TEST_F(SupervisorTest, AllDoneIsZero) {
  const SupervisorResult result = Run(3, "exit 0");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.failure, "");
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(SupervisorTest, ADeadLearnerIsReplacedAndTheOthersAreNot) {
  const SupervisorResult result =
      Run(2,
          "echo $I $N $RESTARTS $ALONE >> $FOLDER/events; "
          "if [ $I = 1 ]; then [ $N = 2 ] && exit 0; kill -9 $$; fi; "
          "until grep -q '^1 2' $FOLDER/events; do sleep 0.01; done");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.restarts, 1);
  EXPECT_THAT(Events(), testing::UnorderedElementsAre(
                            "0 1 0 peers", "1 1 0 peers", "1 2 1 peers"));
  EXPECT_THAT(notices_,
              ElementsAre(AllOf(HasSubstr("learner 1 died (signal 9 (Killed))"),
                                HasSubstr("log1"))));
}

TEST_F(SupervisorTest, AReplacementThatCannotBeStartedIsTriedAgain) {
  missing_ = [](const LearnerStart& start) { return start.incarnation == 2; };
  const SupervisorResult result =
      Run(2,
          "echo $I $N >> $FOLDER/events; "
          "if [ $I = 1 ]; then [ $N = 3 ] && exit 0; kill -9 $$; fi; "
          "until grep -q '^1 3' $FOLDER/events; do sleep 0.01; done");
  EXPECT_EQ(result.exit_code, 0) << result.failure;
  EXPECT_EQ(result.restarts, 2);
  EXPECT_THAT(Events(), testing::UnorderedElementsAre("0 1", "1 1", "1 3"));
  EXPECT_THAT(notices_,
              ElementsAre(HasSubstr("learner 1 died"),
                          AllOf(HasSubstr("learner 1 cannot be started"),
                                HasSubstr("/no/such/program"))));
}

TEST_F(SupervisorTest, OneThatStaysAwaySpendsTheBudget) {
  missing_ = [](const LearnerStart& start) { return start.incarnation > 1; };
  max_restarts_ = 1;
  const SupervisorResult result = Run(1, "exit 1");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.failure, AllOf(HasSubstr("learner 0 cannot be started"),
                                    HasSubstr("again, after 1 restarts")));
}

TEST_F(SupervisorTest, ARestartKnowsThatNobodyIsLeft) {
  const SupervisorResult result =
      Run(1, "echo $N $ALONE >> $FOLDER/events; [ $N = 2 ] && exit 0; exit 1");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(Events(), ElementsAre("1 peers", "2 alone"));
}

TEST_F(SupervisorTest, ASpentBudgetFailsWithTheEarliestLastWords) {
  max_restarts_ = 1;
  const SupervisorResult result =
      Run(2,
          // Whole as soon as they are there.
          "say() { echo \"$1\" > $FOLDER/part$I; "
          "  mv $FOLDER/part$I $FOLDER/error$I; }; "
          "if [ $I = 0 ]; then "
          "  until [ -e $FOLDER/error1 ]; do sleep 0.01; done; sleep 0.05; "
          "  say 'lost rank 1'; sleep 1000; "
          "else [ $N = 1 ] && exit 1; "
          "  say 'out of memory'; "
          "  until [ -e $FOLDER/error0 ]; do sleep 0.01; done; exit 1; fi");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(
      result.failure,
      AllOf(HasSubstr("learner 1 died (exit 1) again, after 1 restarts"),
            HasSubstr("\nlearner 1: out of memory\n"), HasSubstr("log1")));
}

TEST_F(SupervisorTest, WithoutLastWordsTheEndOfTheLogIsShown) {
  max_restarts_ = 0;
  const SupervisorResult result =
      Run(1, "for i in 1 2 3 4 5 6 7; do echo line $i; done; exit 1");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.failure, AllOf(HasSubstr("--max-restarts is 0"),
                                    HasSubstr("  | line 3\n  | line 4"),
                                    HasSubstr("  | line 7\nlog: ")));
  EXPECT_THAT(result.failure, testing::Not(HasSubstr("line 2")));
}

TEST_F(SupervisorTest, ABadConfigurationEndsAllAtOnceWithTwo) {
  const SupervisorResult result =
      Run(2,
          "[ $I = 1 ] && sleep 1000; echo 'no such field' > $FOLDER/error0; "
          "exit 2");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.failure, HasSubstr("learner 0: no such field"));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(SupervisorTest, AHopelessFailureIsNotTriedAgain) {
  const SupervisorResult result =
      Run(1, "echo 'loss is NaN' > $FOLDER/error0; exit 3");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.failure, HasSubstr("loss is NaN"));
  EXPECT_EQ(result.restarts, 0);
}

TEST_F(SupervisorTest, ALearnerThatCannotBeLoadedIsNotTriedAgain) {
  const SupervisorResult result =
      Run(1, "echo 'libtorch.so: cannot open shared object file'; exit 127");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.restarts, 0);
  EXPECT_THAT(result.failure,
              AllOf(HasSubstr("a library is missing; `flotilla doctor`"),
                    HasSubstr("libtorch.so")));
}

TEST_F(SupervisorTest, InterruptIsForwardedToAllAndGives130) {
  StopAfter(2, SIGINT);
  const SupervisorResult result = Run(2, kSave);
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(result.failure, "");
  EXPECT_THAT(Events(), ElementsAre("up", "up", "saved", "saved"));
  EXPECT_THAT(notices_, ElementsAre(HasSubstr("Ctrl-C again")));
}

TEST_F(SupervisorTest, EveryOtherStopSignalGives75) {
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2, SIGHUP}) {
    stop_signal_ = 0;
    WriteFile(temp_ / "events", "");
    StopAfter(1, signal);
    EXPECT_EQ(Run(1, kSave).exit_code, 75);
  }
}

TEST_F(SupervisorTest, FinishingInsteadOfSavingIsZero) {
  StopAfter(1, SIGINT);
  EXPECT_EQ(Run(1,
                "trap 'exit 0' INT; echo up >> $FOLDER/events; "
                "while :; do sleep 0.01; done")
                .exit_code,
            0);
}

TEST_F(SupervisorTest, ALearnerThatHadNotStartedYetHasNothingToSave) {
  StopAfter(1, SIGINT);
  EXPECT_EQ(Run(1, "echo up >> $FOLDER/events; exec sleep 1000").exit_code,
            130);
}

TEST_F(SupervisorTest, ACrashWhileStoppingIsNotReplaced) {
  StopAfter(2, SIGTERM);
  const SupervisorResult result =
      Run(2, absl::StrCat("[ $I = 1 ] && trap 'kill -9 $$' TERM && "
                          "echo up >> $FOLDER/events && "
                          "while :; do sleep 0.01; done; ",
                          kSave));
  EXPECT_EQ(result.exit_code, 75);  // the other one saved
  EXPECT_THAT(notices_, Contains(HasSubstr("learner 1 died (signal 9")));
}

TEST_F(SupervisorTest, NobodySavingIsAFailure) {
  StopAfter(1, SIGTERM);
  const SupervisorResult result =
      Run(1,
          "trap 'kill -9 $$' TERM; echo up >> $FOLDER/events; "
          "while :; do sleep 0.01; done");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.failure, HasSubstr("no learner could save"));
}

TEST_F(SupervisorTest, WhoeverSavesTooSlowlyIsKilled) {
  save_and_stop_ = absl::Milliseconds(200);
  StopAfter(1, SIGTERM);
  const SupervisorResult result =
      Run(1,
          "trap '' TERM; echo up >> $FOLDER/events; "
          "while :; do sleep 0.01; done");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.failure, HasSubstr("learner 0 did not save and stop"));
}

TEST_F(SupervisorTest, ASecondInterruptEndsAtOnce) {
  on_tick_ = [this] {
    if (Events().empty()) return;
    if (stop_signal_ != 0) stop_now_ = true;
    stop_signal_ = SIGINT;
  };
  const absl::Time start = SteadyNow();
  const SupervisorResult result =
      Run(2,
          "trap '' INT TERM; echo $$ >> $FOLDER/events; "
          "while :; do sleep 0.01; done");
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(notices_, Contains(HasSubstr("interrupted again")));
  EXPECT_LT(SteadyNow() - start, absl::Seconds(15));
  for (const std::string& pid : Events()) {
    EXPECT_NE(kill(atoi(pid.c_str()), 0), 0) << "left behind: " << pid;
  }
}

TEST_F(SupervisorTest, AnErrorOfTheTickEndsTheJob) {
  tick_status_ = absl::UnavailableError("the coordinator is gone");
  const SupervisorResult result = Run(1, "sleep 1000");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.failure, "the coordinator is gone");
}

TEST_F(SupervisorTest, ACrashAfterTheRunHasEndedChangesNothing) {
  const SupervisorResult result =
      Run(2,
          "if [ $I = 0 ]; then echo $$ > $FOLDER/first; exit 0; fi; "
          "until [ -s $FOLDER/first ] && ! [ -e /proc/$(cat $FOLDER/first) ]; "
          "do sleep 0.01; done; kill -11 $$");  // it was reaped
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.failure, "");
  EXPECT_EQ(result.restarts, 0);
  EXPECT_THAT(notices_, Contains(HasSubstr("after the run had ended")));
}

bool HasEnded(const std::string& pid) {  // or waits to be reaped
  const std::string stat = ReadFile("/proc/" + pid + "/stat");
  return stat.empty() || absl::StrContains(stat, ") Z ");
}

// Learner 0 is asked first, and ends between that and learner 1's turn.
TEST_F(SupervisorTest, ACrashRightAfterTheOthersEndedChangesNothing) {
  max_restarts_ = 0;
  given_up_ = [this](int index, pid_t) {
    if (index != 0 || Events().size() < 2) return false;
    WriteFile(temp_ / "go", "");
    for (const std::string& pid : Events()) {
      while (!HasEnded(pid)) absl::SleepFor(absl::Milliseconds(1));
    }
    return false;
  };
  const SupervisorResult result =
      Run(2,
          "echo $$ >> $FOLDER/events; "
          "until [ -e $FOLDER/go ]; do sleep 0.01; done; "
          "[ $I = 0 ] && exit 0; kill -11 $$");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.failure, "");
  EXPECT_THAT(notices_, Contains(HasSubstr("after the run had ended")));
}

TEST_F(SupervisorTest, ACrashOfTheLastOneAfterTheResultChangesNothing) {
  max_restarts_ = 0;
  run_is_over_ = true;
  const SupervisorResult result = Run(1, "kill -11 $$");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.failure, "");
}

TEST_F(SupervisorTest, NobodyIsStartedAgainOnceTheOthersEnded) {
  // The others end while it waits 2 s for its third life.
  const SupervisorResult result =
      Run(2,
          "[ $I = 1 ] && echo $N >> $FOLDER/events && kill -11 $$; "
          "until grep -q 3 $FOLDER/events; do sleep 0.01; done; exit 75");
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(Events(), ElementsAre("1", "2", "3"));
}

TEST_F(SupervisorTest, WhoIsGivenUpIsKilledAndReplaced) {
  given_up_ = [this](int index, pid_t pid) {
    return index == 1 && Events() == std::vector{absl::StrCat(pid)};
  };
  const SupervisorResult result =
      Run(2,
          "if [ $I = 0 ]; then "
          "  until [ -e $FOLDER/again ]; do sleep 0.01; done; exit 0; fi; "
          "if [ $N = 2 ]; then touch $FOLDER/again; exit 0; fi; "
          "echo $$ >> $FOLDER/events; kill -STOP $$");
  EXPECT_EQ(result.exit_code, 0) << result.failure;
  EXPECT_EQ(result.restarts, 1);
  EXPECT_THAT(notices_, ElementsAre(HasSubstr("learner 1 died")));
}

}  // namespace
}  // namespace flotilla
