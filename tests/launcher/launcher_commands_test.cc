// `flotilla` without a run: what it refuses before anything starts, and commands that
// are over at once.

#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/launcher/launcher_fixture.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// ---- Before anything starts

TEST_F(LauncherTest, ADryRunStartsNothing) {
  const Ended ended = End(Train("finish", {"--nproc-per-node=2", "--dry-run"}));
  EXPECT_EQ(ended.code, 0);
  EXPECT_FALSE(fs::exists(run()));
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("total_env_steps: 500000"),
                    HasSubstr("ranks here         0-1 of 2"),
                    HasSubstr("environments       64           128"),
                    HasSubstr("batch              2,048        4,096"),
                    HasSubstr("run folder         " + run())));
}

TEST_F(LauncherTest, SomeFieldsHaveFlagsOfTheirOwn) {
  const Ended ended =
      End(Train("finish", {"--seed", "77", "--steps=1M", "--env", "Maze",
                           "--lr", "1e-3", "--set", "seed=78", "--dry-run"}));
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(
      ended.output,
      AllOf(HasSubstr("seed: 78\n"),  // the last one counts
            HasSubstr("total_env_steps: 1000000\n"),
            HasSubstr("id: \"Maze\"\n"), HasSubstr("learning_rate: 0.001\n")));
}

TEST_F(LauncherTest, ATemporaryFolderThatIsTooLongIsNamed) {
  const std::string folder = temp_ / std::string(100, 'x');
  fs::create_directories(folder);
  more_env_ = {{"TMPDIR", folder}};
  const Ended ended = End(Train("finish"));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("flotilla train: TMPDIR is "),
                                  HasSubstr("TMPDIR=/tmp")));
  EXPECT_FALSE(fs::exists(run()));
}

struct Mistake {
  std::vector<std::string> arguments;
  std::string expected;
};

TEST_F(LauncherTest, MistakesAreTwoWithARemedyAndLeaveNothing) {
  const std::string no_game = temp_ / "no_game.textproto";
  std::ofstream(no_game) << "ppo {}\nenv {\n  id: \"ALE/Nogame-v5\"\n}\n";
  const Mistake mistakes[] = {
      {{}, "usage: flotilla COMMAND"},
      {{"trian"}, "did you mean \"train\"?"},
      {{"train"}, "name a configuration"},
      {{"train", "cartpole"}, "there is no configuration \"cartpole\""},
      {{"train", "cartpole_ppo", "--nprocs", "2"}, "--nproc-per-node"},
      {{"train", "cartpole_ppo", "--set", "ppo.epoch=1"}, "ppo.epochs"},
      {{"train", "cartpole_ppo", "--set", "optimizer.lr=1"},
       "optimizer.learning_rate"},
      {{"train", "cartpole_ppo", "--seed", "x"},
       "--seed x: expected an integer"},
      {{"train", "cartpole_ppo", "--sead", "1"}, "did you mean --seed?"},
      {{"train", "cartpole_ppo", "--set", "env.id=Cartpole-v1"},
       "did you mean \"CartPole-v1\"?"},
      {{"train", "pong_ppo", "--standalone", "--set", "env.id=ALE/Nogame-v5"},
       "--set env.id=ALE/Nogame-v5: env.id is \"ALE/Nogame-v5\""},
      {{"train", "pong_ppo", "--standalone", "--env", "ALE/Nogame-v5"},
       "train: --env ALE/Nogame-v5: env.id is \"ALE/Nogame-v5\""},
      {{"train", no_game, "--standalone"},
       no_game + ":3:3: env.id is \"ALE/Nogame-v5\""},
      {{"train", "cartpole_ppo", "--nnodes", "2"}, "--node-rank"},
      {{"train", "cartpole_ppo", "--coordinator", "192.0.2.1:5"}, "--insecure"},
      {{"train", "cartpole_ppo", "--tls-cert", "x"}, "--tls"},
      {{"train", "cartpole_ppo", "--resume", "/no/where"}, "/no/where"},
      {{"evaluate"}, "name a run's folder"},
      {{"evaluate", "/no/where"}, "neither a run's folder nor a checkpoint"},
      {{"replay"}, "name a run's folder"},
      {{"replay", "/no/where"}, "is no run's folder"},
      {{"export"}, "name a run's folder"},
      {{"export", "/no/where"}, "say where to: --onnx"},
      {{"export", "/no/where", "--onnx=x"},
       "neither a run's folder nor a checkpoint"},
      {{"push"}, "name a run's folder"},
      {{"push", "/no/where"}, "neither a run's folder nor a checkpoint"},
      {{"status", "--run-dir", "/no/where"}, "holds no run"},
      {{"serve-envs"}, "--listen"},
  };
  for (const Mistake& mistake : mistakes) {
    const Ended ended = Run("finish", mistake.arguments);
    EXPECT_EQ(ended.code, 2) << mistake.expected << "\n" << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(mistake.expected));
  }
  EXPECT_FALSE(fs::exists("runs"));
}

TEST_F(LauncherTest, APortThatSomethingElseHasIsNamed) {
  const TakenPort port;
  const Ended ended = Run("finish", {"train", "cartpole_fast", "--run-dir",
                                     run(), "--coordinator", port.address()});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr(port.address()));
  EXPECT_EQ(CountEvents("start"), 0);
  EXPECT_THAT(ReadFile(run() + "/summary.json"),
              AllOf(HasSubstr("\"status\": \"failed\""),
                    HasSubstr("\"updates\": 0"), HasSubstr(port.address())));
  // It is in nobody's way.
  EXPECT_EQ(End(Train("finish")).code, 0);
}

TEST_F(LauncherTest, AnUnreachableCoordinatorIsOneClearError) {
  std::string address;
  {
    const TakenPort port;  // free again below
    address = port.address();
  }
  const Ended ended = Run("finish", {"status", "--coordinator", address});
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.output,
            absl::StrCat("flotilla status: no coordinator answers at ", address,
                         "; is the run still going, and is the address "
                         "right?\n"));
}

// ---- The small commands

TEST_F(LauncherTest, EvaluatePlaysTheLatestCheckpoint) {
  fs::create_directories(run() + "/checkpoints/step_5");
  fs::create_symlink("step_5", run() + "/checkpoints/latest");
  const Ended text = Run("", {"evaluate", run(), "--episodes", "2"});
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(text.output,
            "CartPole-v1  mean return 12.50 over 2 episodes (10.0 to 15.0)\n");
  const Ended json = Run("", {"evaluate", run(), "--episodes=7", "--json"});
  EXPECT_EQ(json.code, 0);
  EXPECT_THAT(json.output, AllOf(HasSubstr("checkpoints/latest"),
                                 HasSubstr("\"asked\": 7")));
  EXPECT_EQ(Run("crash", {"evaluate", run()}).code, 1);
}

TEST_F(LauncherTest, EnvsConfigsVersionAndHelpAnswer) {
  EXPECT_THAT(Run("", {"envs"}).output, HasSubstr("CartPole-v1\n"));
  EXPECT_THAT(Run("", {"configs"}).output, HasSubstr("cartpole_ppo "));
  EXPECT_THAT(Run("", {"configs", "cartpole_ppo"}).output, HasSubstr("ppo {"));
  EXPECT_THAT(Run("", {"version"}).output,
              ContainsRegex("^flotilla [0-9.]+\n$"));
  EXPECT_THAT(Run("", {"--help"}).output, HasSubstr("serve-envs"));
  EXPECT_THAT(Run("", {"help", "train"}).output, HasSubstr("--max-restarts"));
  for (const char* help : {"help", "--help", "-h"}) {
    EXPECT_THAT(Run("", {help}).output, HasSubstr("serve-envs")) << help;
    EXPECT_THAT(Run("", {"help", help}).output, HasSubstr("serve-envs"))
        << help;
  }
  for (const char* command :
       {"train", "evaluate", "replay", "export", "push", "status", "stop",
        "envs", "configs", "doctor", "serve-envs", "health"}) {
    EXPECT_EQ(Run("", {command, "--help"}).code, 0) << command;
  }
}

TEST_F(LauncherTest, DoctorExaminesThisMachine) {
  const Ended ended = Run("", {"doctor", "--run-dir", run()});
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("GPUs"), HasSubstr("environments"),
                    HasSubstr("flotilla-learner"), HasSubstr("run folder")));
}

TEST_F(LauncherTest, ServeEnvsServesUntilItIsStopped) {
  auto program = Start("", {"serve-envs", "--listen",
                            "unix:" + (temp_ / "socket"), "--workers", "2"});
  EXPECT_TRUE(Eventually([&] {
    return fs::exists(temp_ / "socket") && fs::exists(temp_ / "socket.1");
  })) << output();
  EXPECT_THAT(output(), HasSubstr("no learner finds these"));
  program->Signal(SIGINT);
  EXPECT_EQ(End(std::move(program)).code, 0);
}

}  // namespace
}  // namespace flotilla
