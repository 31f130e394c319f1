// `flotilla train` beside other launchers, and beside a coordinator that is lost.

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/subprocess.h"
#include "tests/launcher/launcher_fixture.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_disk.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

bool CanListen(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound =
      bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return bound;
}

// Of a port below those that the kernel gives to whoever names none, so that it
// stays free until a coordinator listens there.
std::string AddressToListenAt() {
  constexpr int kFirst = 10000;
  int end = 32768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> end;
  const int count = end - kFirst;
  for (int i = 0; i < count; ++i) {
    const int port = kFirst + (getpid() + i) % count;  // others begin elsewhere
    if (CanListen(port)) return absl::StrCat("127.0.0.1:", port);
  }
  return TakenPort().address();  // the kernel gives them all out
}

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
  auto program = Train("train");
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

// Its learners take up names whose restarts the coordinator does not know: it is
// a new one.
TEST_F(LauncherTest, ANodeThatComesBackIsNewerThanItWas) {
  const std::string file = temp_ / "address";
  const auto coordinate = [&](const std::string& listen) {
    fs::remove(file);
    auto coordinator = Subprocess::Start(
        {.argv = {temp_ / "bin/flotilla-coordinator", "--listen=" + listen,
                  "--address-file=" + file, "--insecure",
                  "--journal=" + (temp_ / "journal")},
         .log_path = temp_ / "coordinator"});
    EXPECT_TRUE(coordinator.ok()) << coordinator.status();
    EXPECT_TRUE(Eventually([&] { return fs::exists(file); }));
    return *std::move(coordinator);
  };
  auto coordinator = coordinate("127.0.0.1:0");
  std::string address = ReadFile(file);
  address.pop_back();  // the line's end
  for (int start = 0; start < 3; ++start) {
    if (start == 2) {
      coordinator.reset();
      coordinator = coordinate(address);
    }
    std::vector<std::string> arguments = {
        "train", "cartpole_fast",    "--run-dir", run(),       "--coordinator",
        address, "--nproc-per-node", "1",         "--insecure"};
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
