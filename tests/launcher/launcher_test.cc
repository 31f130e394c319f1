// The program `flotilla`, with the real coordinator and env server and learners
// that fake training.

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/config.h"
#include "services/base/subprocess.h"
#include "tests/launcher/launcher_fixture.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- A run from start to end

TEST_F(LauncherTest, AFinishedRunIsZeroAndShowsItsResult) {
  const Ended ended = End(Train("finish", {"--nproc-per-node", "2"}));
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("run folder: " + run()),
                                  HasSubstr("solved: ppo on CartPole-v1")));
  EXPECT_EQ(CountEvents("start"), 2);
  EXPECT_EQ(CountEvents("start 0 incarnation 0 resume -"), 1);
  EXPECT_EQ(CountEvents("start 1 incarnation 0 resume -"), 1);
  EXPECT_THAT(ReadFile(run() + "/coordinator.address"),
              ContainsRegex("^127.0.0.1:[0-9]+\n$"));
  EXPECT_TRUE(fs::exists(run() + "/logs/rank_1.log"));
  EXPECT_TRUE(fs::exists(run() + "/logs/coordinator.log"));
}

// Where all learners of a launcher had nothing to save, as those of a node that
// comes back too late.
TEST_F(LauncherTest, ARunThatWasPreemptedIsNotDone) {
  const Ended ended = End(Train("finish_preempted"));
  EXPECT_EQ(ended.code, 75) << ended.output;
}

TEST_F(LauncherTest, TheResolvedConfigurationIsWritten) {
  EXPECT_EQ(
      End(Train("finish", {"--set", "seed=77", "--backend", "gloo"})).code, 0);
  const auto config = LoadRunConfig(run() + "/config.textproto", {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->seed(), 77);
  EXPECT_EQ(config->distributed().backend(), v1::GLOO);
  EXPECT_TRUE(config->env().has_quorum());
}

TEST_F(LauncherTest, PlainProgressComesAsLines) {
  auto program = Train("train", {"--progress", "plain", "--nproc-per-node=2"});
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(output(), "0%  0 / 500,000 steps  waiting: ");
  })) << output();
  EXPECT_THAT(output(), Not(HasSubstr("\x1b[")));
  program->Signal(SIGINT);
  EXPECT_EQ(End(std::move(program)).code, 130);
}

TEST_F(LauncherTest, TheLastLineAndTheResultNameTheSameUpdate) {
  const Ended ended = End(Train("finish", {"--progress", "plain"}));
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output,
              ContainsRegex("50%  250,000 / 500,000 steps  .*update 61\n"
                            "(.*\n)*  250,000 steps, 61 updates"));
}

TEST_F(LauncherTest, TheProgressOfAResumedRunBeginsWhereItWas) {
  EXPECT_EQ(End(Train("finish")).code, 0);
  fs::create_directories(run() + "/checkpoints/step_5");
  fs::create_symlink("step_5", run() + "/checkpoints/latest");
  WriteFile(run() + "/checkpoints/step_5/weights.safetensors", "");
  WriteFile(run() + "/checkpoints/step_5/progress.json",
            "{\"global_step\": 400000, \"update\": 98}");
  fs::remove(output_path());
  auto program = Start("train", {"train", "--standalone", "--resume", run(),
                                 "--progress", "plain"});
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(output(), " steps  ");
  })) << output();
  EXPECT_THAT(output(), AllOf(HasSubstr(" 80%  400,000 / 500,000 steps"),
                              HasSubstr("update 98")));
  program->Signal(SIGINT);
  EXPECT_EQ(End(std::move(program)).code, 130);
}

TEST_F(LauncherTest, ARunThatNobodyBeganAgainGoesBackToItsNewestCheckpoint) {
  EXPECT_EQ(End(Train("finish")).code, 0);
  for (const char* name : {"/checkpoints/step_5", "/checkpoints/step_9"}) {
    const std::string checkpoint = run() + name;
    fs::create_directories(checkpoint);
    WriteFile(checkpoint + "/weights.safetensors", "");
    WriteFile(checkpoint + "/progress.json",
              "{\"global_step\": 400000, \"update\": 98}");
    fs::copy(run() + "/config.textproto", checkpoint + "/config.textproto");
  }
  const std::string latest = run() + "/checkpoints/latest";
  fs::create_symlink("step_9", latest);
  fs::remove(run() + "/events");
  auto program = Start("train", {"train", "--standalone", "--resume",
                                 run() + "/checkpoints/step_5/"});
  ASSERT_TRUE(AwaitEvents("start", 1)) << output();
  EXPECT_EQ(fs::read_symlink(latest), "step_5");
  program->Signal(SIGINT);
  EXPECT_EQ(End(std::move(program)).code, 130);
  EXPECT_EQ(fs::read_symlink(latest), "step_9");
}

// A daemon that ignores it says so to all that it starts.
TEST_F(LauncherTest, HowLearnersEndIsSeenWhereTheParentIgnoresItsChildren) {
  std::vector<std::string> words = {
      "sh",           "-c",        "trap '' CHLD; exec \"$0\" \"$@\"",
      flotilla_,      "train",     "cartpole_fast",
      "--standalone", "--run-dir", run()};
  flotilla_ = "/usr/bin/env";
  const Ended ended = End(Start("finish", words));
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("solved: ppo on CartPole-v1"));
}

TEST_F(LauncherTest, StatusAndStopFindTheRunByItsFolder) {
  auto program = Train("train");
  ASSERT_TRUE(AwaitEvents("worker", 1));
  auto status =
      Subprocess::Start({.argv = {flotilla_, "status", "--run-dir", run()},
                         .log_path = temp_ / "status"});
  ASSERT_TRUE(status.ok());
  EXPECT_EQ((*status)->Wait(kPatience)->code, 0);
  EXPECT_THAT(ReadFile(temp_ / "status"), HasSubstr("run run  gathering"));
  auto stop = Subprocess::Start(
      {.argv = {flotilla_, "stop", run()}, .log_path = temp_ / "stop"});
  ASSERT_TRUE(stop.ok());
  EXPECT_EQ((*stop)->Wait(kPatience)->code, 0) << ReadFile(temp_ / "stop");
  auto again = Subprocess::Start(
      {.argv = {flotilla_, "status", "--json", "--run-dir", run()},
       .log_path = temp_ / "json"});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->Wait(kPatience)->code, 0);
  EXPECT_THAT(ReadFile(temp_ / "json"), HasSubstr("\"stop\":true"));
  program->Signal(SIGTERM);
  End(std::move(program));
}

TEST_F(LauncherTest, StopLeavesAnotherRunOnTheSamePortAlone) {
  auto program = Train("train");
  ASSERT_TRUE(AwaitEvents("worker", 1)) << output();
  // A run that ended earlier had the port.
  fs::create_directories(temp_ / "old");
  fs::copy(run() + "/coordinator.address", temp_ / "old/coordinator.address");
  WriteFile(temp_ / "old/config.textproto", "");
  auto stop = Subprocess::Start(
      {.argv = {flotilla_, "stop", temp_ / "old"}, .log_path = temp_ / "stop"});
  ASSERT_TRUE(stop.ok());
  EXPECT_EQ((*stop)->Wait(kPatience)->code, 1);
  EXPECT_THAT(ReadFile(temp_ / "stop"),
              AllOf(HasSubstr("old is over"), HasSubstr("of the run \"run\"")));
  program->Signal(SIGINT);
  EXPECT_EQ(End(std::move(program)).code, 130);
}

TEST_F(LauncherTest, RunsOfOneNameOnTheSamePortAreToldApart) {
  EXPECT_EQ(End(Train("finish")).code, 0);
  fs::create_directories(temp_ / "old");
  const std::string old = temp_ / "old/run";
  fs::rename(run(), old);
  auto program = Train("train");
  ASSERT_TRUE(AwaitEvents("worker", 1)) << output();
  fs::copy(run() + "/coordinator.address", old + "/coordinator.address",
           fs::copy_options::overwrite_existing);
  fs::remove(old + "/token");
  const auto ask = [&](const std::string& command, const std::string& folder) {
    auto asked = Subprocess::Start(
        {.argv = {flotilla_, command, folder}, .log_path = temp_ / "asked"});
    EXPECT_TRUE(asked.ok());
    return (*asked)->Wait(kPatience)->code;
  };
  EXPECT_EQ(ask("stop", old), 1);
  EXPECT_THAT(ReadFile(temp_ / "asked"),
              AllOf(HasSubstr("old/run is over"),
                    HasSubstr("is of another run of that name")));
  fs::remove(temp_ / "asked");
  EXPECT_EQ(ask("status", old), 0);  // its summary
  EXPECT_THAT(ReadFile(temp_ / "asked"), HasSubstr("old/run is over"));
  // Each coordinator of a run is the run's.
  LoseCoordinator(program->pid());
  EXPECT_EQ(ask("stop", run()), 0) << ReadFile(temp_ / "asked");
  program->Signal(SIGINT);
  End(std::move(program));
}

TEST_F(LauncherTest, AResumedRunThatDoesNotAnswerIsNotOver) {
  EXPECT_EQ(End(Train("finish")).code, 0);
  auto program = Train("train", {"--resume"});
  ASSERT_TRUE(AwaitEvents("worker", 1)) << output();
  const std::string nowhere = "127.0.0.1:1";
  WriteFile(run() + "/coordinator.address", nowhere + "\n");
  const auto ask = [&](const std::string& command) {
    const std::string log = temp_ / "asked";
    fs::remove(log);
    auto asked = Subprocess::Start(
        {.argv = {flotilla_, command, run()}, .log_path = log});
    EXPECT_TRUE(asked.ok()) << asked.status();
    const int code = (*asked)->Wait(kPatience)->code;
    return absl::StrCat(code, ": ", ReadFile(log));
  };
  for (const std::string command : {"status", "stop"}) {
    EXPECT_THAT(ask(command),
                AllOf(HasSubstr("1: flotilla " + command +
                                ": no coordinator answers at " + nowhere),
                      Not(HasSubstr("is over"))));
  }
  program->Signal(SIGINT);
  EXPECT_EQ(End(std::move(program)).code, 130);
  // Now that nobody is at work, what there is of a result is the run's.
  EXPECT_THAT(ask("status"), HasSubstr("0: the run in " + run() + " is over"));
  EXPECT_THAT(ask("stop"),
              HasSubstr("1: flotilla stop: the run in " + run() + " is over"));
}

// A side-car lives once for a moment, then until the run is over.
TEST_F(LauncherTest, ATrackerThatWaitsForItsRestartSendsTheRestAtTheEnd) {
  const std::string python = temp_ / "python";
  WriteFile(python,
            absl::StrCat("#!/bin/sh\n"
                         "case \"$*\" in *--check*) exit 0 ;; esac\n"
                         "if [ ! -e ",
                         temp_ / "lived", " ]; then echo > ", temp_ / "lived",
                         "; exit 1; fi\n"
                         "until [ -e ",
                         run(),
                         "/trackers/over ]; do sleep 0.05; done\n"
                         "echo > ",
                         temp_ / "sent", "\n"));
  fs::permissions(python, fs::perms::owner_all);
  more_env_ = {{"FLOTILLA_PYTHON", python}};
  auto program = Train("train", {"--track=tensorboard"});
  ASSERT_TRUE(AwaitEvents("worker", 1)) << output();
  ASSERT_TRUE(Eventually([&] {
    return absl::StrContains(output(), "tracker tensorboard ended (exit 1)");
  })) << output();
  program->Signal(SIGINT);
  const Ended ended = End(std::move(program));
  EXPECT_EQ(ended.code, 130);
  EXPECT_TRUE(fs::exists(temp_ / "sent")) << ended.output;
  EXPECT_THAT(ended.output, Not(HasSubstr("has not sent everything")));
}

// ---- Faults

TEST_F(LauncherTest, ADeadLearnerIsReplacedAndTheOtherStays) {
  const Ended ended = End(Train("crash_once", {"--nproc-per-node", "2"}));
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(CountEvents("start 0"), 1);
  EXPECT_EQ(CountEvents("start 1"), 2);
  // Its peer has the state: it takes none from a checkpoint.
  EXPECT_EQ(CountEvents("start 1 incarnation 1 resume -"), 1);
  EXPECT_THAT(ended.output, HasSubstr("learner 1 died (signal 9 (Killed)); "
                                      "starting it again (restart 1"));
}

TEST_F(LauncherTest, ACrashLoopEndsWithTheRootCause) {
  const Ended ended = End(Train("crash", {"--max-restarts=1"}));
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(CountEvents("start"), 2);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("the run failed"),
                                  HasSubstr("learner 0: the sky fell"),
                                  HasSubstr(run() + "/logs/rank_0.log")));
  EXPECT_THAT(ReadFile(run() + "/summary.json"),
              AllOf(HasSubstr("\"status\": \"failed\""),
                    HasSubstr("learner 0: the sky fell")));
}

TEST_F(LauncherTest, AFolderThatIsRenamedEndsTheRunAndOffersNoWayBack) {
  fs::create_directories(run() + "/checkpoints/step_5");
  fs::create_symlink("step_5", run() + "/checkpoints/latest");
  auto program = Train("train", {"--resume"});
  ASSERT_TRUE(AwaitEvents("worker", 1)) << output();
  const std::vector<pid_t> pids = Processes(program->pid());
  fs::rename(run(), temp_ / "elsewhere");
  const Ended ended = End(std::move(program));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("was removed or renamed"),
                                  Not(HasSubstr("go on with:"))));
  EXPECT_FALSE(fs::exists(run()));
  ExpectAllGone(pids);
}

TEST_F(LauncherTest, WhenAllDiedTheNewestCheckpointIsTheStart) {
  fs::create_directories(run() + "/checkpoints/step_5");
  fs::create_symlink("step_5", run() + "/checkpoints/latest");
  EXPECT_EQ(End(Train("crash", {"--max-restarts=1", "--resume"})).code, 1);
  EXPECT_EQ(CountEvents("start 0 incarnation 1 resume latest"), 1);
}

TEST_F(LauncherTest, AnUnusableConfigurationIsTwoAtOnce) {
  const Ended ended = End(Train("unusable", {"--nproc-per-node", "2"}));
  EXPECT_EQ(ended.code, 2);
  EXPECT_LE(CountEvents("start"), 2);
  EXPECT_THAT(ended.output, HasSubstr("the model does not fit"));
}

// ---- Signals and orphans

TEST_F(LauncherTest, SignalsAreForwardedAndGiveTheirCodes) {
  const std::pair<int, int> expected[] = {
      {SIGINT, 130}, {SIGTERM, 75}, {SIGUSR1, 75}, {SIGUSR2, 75}, {SIGHUP, 75}};
  for (const auto& [signal, code] : expected) {
    fs::remove_all(run());
    auto program = Train("train", {"--nproc-per-node", "2"});
    ASSERT_TRUE(AwaitEvents("worker", 2)) << output();
    const std::vector<pid_t> pids = Processes(program->pid());
    program->Signal(signal);
    EXPECT_EQ(End(std::move(program)).code, code) << output();
    EXPECT_EQ(CountEvents("saved"), 2);
    ExpectAllGone(pids);
  }
}

// As Slurm's own does, a scontrol may be ended by what it has asked for.
TEST_F(LauncherTest, AWarnedSlurmJobIsRequeued) {
  fs::create_directories(temp_ / "slurm");
  more_env_ = {
      {"SLURM_JOB_ID", "7"},
      {"PATH", absl::StrCat(temp_ / "slurm", ":", std::getenv("PATH"))}};
  const std::pair<std::string, std::string> cases[] = {
      {"exit 0", ": requeued Slurm job 7"},
      {"kill -TERM $$", ": requeued Slurm job 7"},
      {"exit 1", ": could not requeue Slurm job 7"}};
  for (const auto& [answer, said] : cases) {
    fs::remove_all(run());
    const std::string scontrol = temp_ / "slurm/scontrol";
    std::ofstream(scontrol) << "#!/bin/sh\necho asked: \"$@\"\n"
                            << answer << "\n";
    fs::permissions(scontrol, fs::perms::owner_all);
    auto program = Train("train");
    ASSERT_TRUE(AwaitEvents("worker", 1)) << output();
    program->Signal(SIGUSR1);
    const Ended ended = End(std::move(program));
    EXPECT_EQ(ended.code, 75);
    EXPECT_THAT(ended.output,
                AllOf(HasSubstr("asked: requeue 7\n"), HasSubstr(said)));
    fs::remove(output_path());
  }
}

TEST_F(LauncherTest, ASecondCtrlCEndsAtOnceAndLeavesNobody) {
  auto program = Train("deaf", {"--nproc-per-node", "2"});
  ASSERT_TRUE(AwaitEvents("worker", 2)) << output();
  const std::vector<pid_t> pids = Processes(program->pid());
  program->Signal(SIGINT);
  ASSERT_TRUE(Eventually([&] {
    return absl::StrContains(output(), "Ctrl-C again ends at once");
  }));
  EXPECT_FALSE(program->Poll().has_value());
  program->Signal(SIGINT);
  const Ended ended = End(std::move(program));
  EXPECT_EQ(ended.code, 130);
  EXPECT_THAT(ended.output, HasSubstr("interrupted again: ending at once"));
  ExpectAllGone(pids);
}

TEST_F(LauncherTest, CtrlCIsHeardWhileTheEnvServerIsAwaited) {
  const std::string server = temp_ / "bin/flotilla-envserver";
  fs::remove(server);
  WriteFile(server,
            "#!/bin/sh\necho > " + (temp_ / "waits") + "\nexec sleep 1000\n");
  fs::permissions(server, fs::perms::owner_all);
  auto program = Train("finish");
  ASSERT_TRUE(Eventually([&] { return fs::exists(temp_ / "waits"); }));
  program->Signal(SIGINT);
  const Ended ended = End(std::move(program));
  EXPECT_EQ(ended.code, 130);
  EXPECT_THAT(ended.output, HasSubstr("told to stop before the run began"));
  EXPECT_FALSE(fs::exists(run()));
}

TEST_F(LauncherTest, WhoeverDoesNotSaveInTimeIsKilled) {
  auto program = Train("deaf", {"--set", "runtime.save_and_stop_seconds=0.5"});
  ASSERT_TRUE(AwaitEvents("worker", 1)) << output();
  const std::vector<pid_t> pids = Processes(program->pid());
  program->Signal(SIGTERM);
  const Ended ended = End(std::move(program));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("did not save and stop within 500ms"));
  ExpectAllGone(pids);
}

TEST_F(LauncherTest, Kill9OfTheLauncherLeavesNobody) {
  auto program = Train("deaf", {"--nproc-per-node", "2"});
  ASSERT_TRUE(AwaitEvents("worker", 2)) << output();
  const std::vector<pid_t> pids = Processes(program->pid());
  // The launcher, a coordinator, two learners, each counted as the launcher's
  // child and by its own word, and two workers.
  ASSERT_GE(pids.size(), 6);
  kill(program->pid(), SIGKILL);
  ExpectAllGone(pids);
}

// ---- The run's folder

TEST_F(LauncherTest, AFolderThatHoldsARunNeedsResume) {
  EXPECT_EQ(End(Train("finish")).code, 0);
  const Ended refused =
      Run("finish", {"train", "cartpole_fast", "--run-dir", run()});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, HasSubstr("--resume"));
  EXPECT_EQ(CountEvents("start"), 1);
  // The run's own configuration is used; without a checkpoint it begins anew.
  const Ended resumed =
      Run("finish", {"train", "--resume", "--standalone", "--run-dir", run()});
  EXPECT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_EQ(CountEvents("start 0 incarnation 0 resume -"), 2);
}

TEST_F(LauncherTest, ResumeGoesOnFromTheNewestCheckpoint) {
  EXPECT_EQ(End(Train("finish")).code, 0);
  fs::create_directories(run() + "/checkpoints/step_5");
  fs::create_symlink("step_5", run() + "/checkpoints/latest");
  WriteFile(run() + "/checkpoints/step_5/weights.safetensors", "");
  EXPECT_EQ(Run("finish", {"train", "--standalone", "--resume", run()}).code,
            0);
  EXPECT_EQ(CountEvents("start 0 incarnation 0 resume latest"), 1);
  const std::string checkpoint = run() + "/checkpoints/step_5";
  EXPECT_EQ(
      Run("finish", {"train", "--standalone", "--resume", checkpoint}).code, 0);
  EXPECT_EQ(CountEvents("start 0 incarnation 0 resume " + checkpoint), 1);
}

TEST_F(LauncherTest, AResumedRunHasAsManyLearnersAsItHad) {
  EXPECT_EQ(End(Train("finish", {"--nproc-per-node", "2"})).code, 0);
  const Ended kept =
      Run("finish", {"train", "--standalone", "--resume", run()});
  EXPECT_EQ(kept.code, 0) << kept.output;
  EXPECT_EQ(CountEvents("start 1"), 2);
  EXPECT_THAT(kept.output, Not(HasSubstr("resume: ")));
  const Ended told = Run("finish", {"train", "--standalone", "--resume", run(),
                                    "--nproc-per-node", "1"});
  EXPECT_EQ(told.code, 0) << told.output;
  EXPECT_EQ(CountEvents("start 1"), 2);
  EXPECT_THAT(told.output,
              HasSubstr("resume: the run had 2 learners and goes on with 1 "
                        "learner: an update is of 2,048 steps, not 4,096"));
  // Told so once, it is the run's own topology from then on.
  Run("finish", {"train", "--standalone", "--resume", run()});
  EXPECT_EQ(CountEvents("start 1"), 2);
}

TEST_F(LauncherTest, ResumingWithAnotherModelIsRefused) {
  EXPECT_EQ(End(Train("finish")).code, 0);
  const Ended ended =
      Run("finish", {"train", "--resume", run(), "--set", "model.hidden=[8]"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.output, HasSubstr("cannot resume: model"));
}

TEST_F(LauncherTest, AFolderInUseIsRefused) {
  auto program = Train("train");
  ASSERT_TRUE(AwaitEvents("worker", 1)) << output();
  const Ended second =
      Run("finish", {"train", "--standalone", "--resume", run()});
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.output, HasSubstr("is in use by pid"));
  program->Signal(SIGINT);
  EXPECT_EQ(End(std::move(program)).code, 130);
}

}  // namespace
}  // namespace flotilla
