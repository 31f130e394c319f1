// `flotilla train` beside other launchers, and beside a coordinator that is lost.

#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/subprocess.h"
#include "tests/launcher/launcher_fixture.h"
#include "tests/testing/ports.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_disk.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(LauncherTest, ADeadCoordinatorIsReplacedOnItsPort) {
  auto program = Train("train");
  ASSERT_TRUE(AwaitEvents("worker", 1));
  LoseCoordinator(program->pid());
  program->Signal(SIGINT);
  EXPECT_EQ(End(std::move(program)).code, 130);
  EXPECT_EQ(CountEvents("start"), 1);  // the learner noticed nothing
}

TEST_F(LauncherTest, ADeadCoordinatorIsReplacedThoughTheDiskIsFull) {
  fs::create_directory(run());
  TinyDisk disk(run());
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  // On no port that the kernel may give to another program meanwhile: the next
  // coordinator would die of that.
  auto program = Start(
      "train", {"train", "cartpole_fast", "--run-dir", run(), "--nnodes", "1",
                "--node-rank", "0", "--coordinator", AddressToListenAt()});
  ASSERT_TRUE(AwaitEvents("worker", 1)) << output();
  const std::string address = ReadFile(run() + "/coordinator.address");
  disk.Fill();
  LoseCoordinator(program->pid());
  EXPECT_EQ(ReadFile(run() + "/coordinator.address"), address);
  program->Signal(SIGINT);
  const Ended ended = End(std::move(program));
  EXPECT_EQ(ended.code, 130) << ended.output;
  const std::string died = "the coordinator died";
  EXPECT_EQ(ended.output.find(died), ended.output.rfind(died)) << ended.output;
}

TEST_F(LauncherTest, ADeadCoordinatorIsReplacedOnceItsProgramIsThereAgain) {
  auto program = Train("train");
  ASSERT_TRUE(AwaitEvents("worker", 1));
  const std::string path = temp_ / "bin/flotilla-coordinator";
  fs::rename(path, path + ".away");  // as while it is installed
  LoseCoordinator(program->pid(), [&] {
    EXPECT_TRUE(Eventually([&] {
      return absl::StrContains(output(), "the coordinator cannot be started");
    })) << output();
    fs::rename(path + ".away", path);
  });
  program->Signal(SIGINT);
  EXPECT_EQ(End(std::move(program)).code, 130);
  EXPECT_EQ(CountEvents("start"), 1);  // the learner noticed nothing
}

// A coordinator that outlives launchers.
class OutlivingCoordinatorTest : public LauncherTest {
 protected:
  // Starts one there; another takes over from its journal.
  void Coordinate(const std::string& listen = AddressToListenAt()) {
    const std::string file = temp_ / "address";
    coordinator_.reset();
    fs::remove(file);
    auto coordinator = Subprocess::Start(
        {.argv = {temp_ / "bin/flotilla-coordinator", "--listen=" + listen,
                  "--address-file=" + file, "--insecure",
                  "--journal=" + journal_},
         .log_path = temp_ / "coordinator"});
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
    ASSERT_TRUE(Eventually([&] { return fs::exists(file); }));
    address_ = ReadFile(file);
    address_.pop_back();  // the line's end
  }

  // What it said of a run that is over.
  void CoordinateAfter(const std::string& command) {
    WriteFile(journal_,
              "---\n---\nstate: CLOSED closed: true " + command + "\n---\n");
    Coordinate();
  }

  const std::string journal_ = temp_ / "journal";
  std::unique_ptr<Subprocess> coordinator_;
  std::string address_;
};

// Its learners take up names whose restarts the coordinator does not know: it is
// a new one.
TEST_F(OutlivingCoordinatorTest, ANodeThatComesBackIsNewerThanItWas) {
  Coordinate();
  for (int start = 0; start < 3; ++start) {
    if (start == 2) Coordinate(address_);
    std::vector<std::string> arguments = {
        "train",  "cartpole_fast",    "--run-dir", run(),       "--coordinator",
        address_, "--nproc-per-node", "1",         "--insecure"};
    if (start > 0) arguments[1] = "--resume";
    auto node = Start("join", arguments);
    EXPECT_TRUE(AwaitEvents("trains", start + 1)) << output();
    EXPECT_EQ(CountEvents(absl::StrCat("start 0 incarnation ", start)), 1);
    const std::vector<pid_t> pids = Processes(node->pid());
    node->Signal(SIGKILL);
    node->Wait(kPatience);
    ExpectAllGone(pids);
  }
}

TEST_F(OutlivingCoordinatorTest, ARunIsNotBegunWhereAnotherIsOver) {
  for (const char* command : {"", "preempted: true"}) {
    CoordinateAfter(command);
    const Ended ended = Run("finish", {"train", "cartpole_fast", "--run-dir",
                                       run(), "--coordinator", address_,
                                       "--nproc-per-node", "1", "--insecure"});
    EXPECT_EQ(ended.code, 1) << ended.output;
    EXPECT_THAT(ended.output, AllOf(HasSubstr(address_),
                                    HasSubstr("served a run that is over")));
    EXPECT_EQ(CountEvents("start"), 0);
    fs::remove_all(run());
  }
}

TEST_F(OutlivingCoordinatorTest, WhatARunLeftStaysWhereItIsOver) {
  CoordinateAfter("preempted: true");
  const std::vector<std::string> train = {
      "train",  "cartpole_fast",    "--run-dir", run(),       "--coordinator",
      address_, "--nproc-per-node", "1",         "--insecure"};
  ASSERT_EQ(Run("refused", train).code, 1);
  const std::string config = ReadFile(run() + "/config.textproto");
  const std::string summary = R"({"status": "preempted", "updates": 7})";
  WriteFile(run() + "/summary.json", summary);
  std::vector<std::string> resume = train;
  resume[1] = "--resume";
  resume.push_back("--set=seed=9");
  const Ended ended = Run("resume", resume);
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("served a run that is over"));
  EXPECT_EQ(ReadFile(run() + "/summary.json"), summary);
  EXPECT_EQ(ReadFile(run() + "/config.textproto"), config);
}

TEST_F(OutlivingCoordinatorTest, ANodeWaitsForTheRunAfterThePreemptedOne) {
  CoordinateAfter("preempted: true");
  auto node =
      Start("train", {"train", "cartpole_fast", "--run-dir", run(), "--nnodes",
                      "2", "--node-rank", "1", "--nproc-per-node", "1",
                      "--coordinator", address_, "--insecure"});
  ASSERT_TRUE(Eventually([&] {
    return absl::StrContains(output(), "waiting for the coordinator at");
  })) << output();
  EXPECT_EQ(CountEvents("start"), 0);
  fs::remove(journal_);
  Coordinate(address_);
  EXPECT_TRUE(AwaitEvents("worker", 1)) << output();
  node->Signal(SIGTERM);
  EXPECT_EQ(End(std::move(node)).code, 75);
}

TEST_F(LauncherTest, LaunchersOfTwoNodesShareCoordinatorAndFolder) {
  const std::string address = AddressToListenAt();
  std::vector<std::unique_ptr<Subprocess>> nodes;
  for (const char* node : {"1", "0"}) {
    nodes.push_back(
        Start("train", {"train", "cartpole_fast", "--run-dir", run(),
                        "--nnodes", "2", "--node-rank", node,
                        "--nproc-per-node", "2", "--coordinator", address}));
  }
  ASSERT_TRUE(AwaitEvents("worker", 4)) << output();
  EXPECT_EQ(CountEvents("start 3 incarnation 0"), 1);  // the ranks of node 1
  EXPECT_EQ(CountEvents("start 0 incarnation 0"), 1);
  for (auto& node : nodes) node->Signal(SIGTERM);
  for (auto& node : nodes) EXPECT_EQ(End(std::move(node)).code, 75);
  EXPECT_THAT(output(),
              HasSubstr("node 1: learners 2 to 3 ended, state saved"));
}

// Learners that meet, on one node each, of which one gives up in the middle.
class GivingUpTest : public LauncherTest {
 protected:
  // How the launchers of the nodes ended.
  std::vector<Ended> RunUntilGivenUp(int by_node) {
    const std::string address = AddressToListenAt();
    std::vector<std::unique_ptr<Subprocess>> nodes;
    for (int node = 0; node < 2; ++node) {
      nodes.push_back(
          Start(node == by_node ? "join_and_give_up" : "join",
                {"train", "cartpole_fast", "--run-dir", run(), "--nnodes", "2",
                 "--node-rank", absl::StrCat(node), "--nproc-per-node", "1",
                 "--coordinator", address}));
    }
    std::vector<Ended> ended;
    for (auto& node : nodes) ended.push_back(End(std::move(node)));
    EXPECT_EQ(CountEvents("trains"), 2) << output();
    return ended;
  }
};

TEST_F(GivingUpTest, AnotherNodesFailureFailsTheRunThatNode0Writes) {
  const std::vector<Ended> ended = RunUntilGivenUp(/*by_node=*/1);
  EXPECT_EQ(ended[0].code, 1) << output();
  EXPECT_EQ(ended[1].code, 1) << output();
  EXPECT_THAT(ReadFile(run() + "/summary.json"),
              AllOf(HasSubstr("\"status\": \"failed\""),
                    HasSubstr("the launcher of rank 1 (learner/1/0)")));
  EXPECT_THAT(output(), HasSubstr("learner 1: the loss is not finite"));
}

TEST_F(GivingUpTest, WhatNode0HostsStaysUntilTheOthersKnowOfItsFailure) {
  const std::vector<Ended> ended = RunUntilGivenUp(/*by_node=*/0);
  EXPECT_EQ(ended[0].code, 1) << output();
  EXPECT_EQ(ended[1].code, 1) << output();
  EXPECT_THAT(ReadFile(run() + "/summary.json"),
              AllOf(HasSubstr("\"status\": \"failed\""),
                    HasSubstr("learner 0: the loss is not finite")));
  EXPECT_THAT(output(), HasSubstr("the launcher of rank 0 (learner/0/0)"));
  EXPECT_EQ(CountEvents("start 1"), 1);  // for good
}

TEST_F(LauncherTest, ARankFromTheEnvironmentIsOneLearner) {
  setenv("RANK", "0", 1);
  setenv("LOCAL_RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
  const Ended ended =
      Run("finish", {"train", "cartpole_fast", "--run-dir", run()});
  const Ended refused = Run("finish", {"train", "cartpole_fast", "--dry-run",
                                       "--nproc-per-node", "2"});
  for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE"}) unsetenv(name);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(CountEvents("start"), 1);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, HasSubstr("contradicts RANK=0"));
}

TEST_F(LauncherTest, SeveralLaunchersNeedANamedFolder) {
  const Ended ended =
      Run("finish", {"train", "cartpole_fast", "--nnodes", "2", "--node-rank",
                     "0", "--coordinator", "127.0.0.1:1"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.output, HasSubstr("--run-dir"));
}

}  // namespace
}  // namespace flotilla
