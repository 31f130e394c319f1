#include "learner/checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/base/config.h"
#include "services/base/sha256.h"
#include "services/base/steady_now.h"
#include "tests/testing/python.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_disk.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

v1::RunConfig MakeConfig(const std::string& env = "CartPole-v1") {
  v1::RunConfig config;
  config.mutable_env()->set_id(env);
  config.mutable_ppo()->set_epochs(7);
  return config;
}

// The content follows from `step`, so that a mixture of two would show.
CheckpointData MakeData(int64_t step, int64_t size = 100) {
  CheckpointData data;
  data.weights["actor.0.weight"] =
      torch::full({size}, static_cast<double>(step), torch::kFloat32);
  data.state["moment1"] =
      torch::full({size}, static_cast<double>(step), torch::kFloat64);
  data.state["generator"] = torch::arange(10).to(torch::kUInt8);
  data.progress = {{"global_step", absl::StrCat(step)},
                   {"update", absl::StrCat(step / 10)},
                   {"wall_seconds", "0.30000000000000004"}};
  data.config = MakeConfig();
  return data;
}

void ExpectIsOfStep(const absl::StatusOr<CheckpointData>& data, int64_t step) {
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->progress.at("global_step"), absl::StrCat(step));
  const torch::Tensor weight = data->weights.at("actor.0.weight");
  EXPECT_EQ(weight.min().item<float>(), step);
  EXPECT_EQ(weight.max().item<float>(), step);
  EXPECT_EQ(data->state.at("moment1").min().item<double>(), step);
  EXPECT_EQ(data->state.at("moment1").max().item<double>(), step);
}

std::set<std::string> Names(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

bool Mentions(const absl::Status& status, const std::string& text) {
  return status.ToString().find(text) != std::string::npos;
}

TEST(CheckpointTest, EverythingReadsBackBitForBit) {
  TempDir dir;
  CheckpointData data = MakeData(512);
  data.weights["random"] = torch::randn({64, 4});
  data.state["bits"] =
      torch::randint(0, 255, {999}, torch::kInt64).to(torch::kUInt8);
  CheckpointStore store(dir / "checkpoints", 3);
  const absl::Status saved = store.Save(data);
  ASSERT_TRUE(saved.ok()) << saved;
  const auto loaded =
      LoadCheckpoint(dir / "checkpoints/step_000000000512", MakeConfig());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->progress, data.progress);
  EXPECT_EQ(loaded->config.DebugString(), Resolved(data.config).DebugString());
  ASSERT_EQ(loaded->weights.size(), data.weights.size());
  ASSERT_EQ(loaded->state.size(), data.state.size());
  for (const auto& [name, tensor] : data.weights) {
    EXPECT_TRUE(torch::equal(loaded->weights.at(name), tensor)) << name;
  }
  for (const auto& [name, tensor] : data.state) {
    EXPECT_TRUE(torch::equal(loaded->state.at(name), tensor)) << name;
  }
}

// Who plays what a run has learned by now reads beside it.
TEST(CheckpointTest, LatestLoadsWhileARunMovesOn) {
  TempDir dir;
  CheckpointStore store(dir.path(), 1);
  ASSERT_TRUE(store.Save(MakeData(0)).ok());
  std::jthread run([&](std::stop_token stop) {
    for (int step = 1; !stop.stop_requested(); ++step) {
      EXPECT_TRUE(store.Save(MakeData(step)).ok());
    }
  });
  for (int i = 0; i < 300; ++i) {
    const auto data = LoadCheckpoint(dir / "latest");
    ASSERT_TRUE(data.ok()) << data.status();
    ExpectIsOfStep(data, std::stoll(data->progress.at("global_step")));
  }
}

TEST(CheckpointTest, LatestAndBestAreLinksThatLoad) {
  TempDir dir;
  CheckpointStore store(dir.path(), 3);
  for (const int64_t step : {10, 20, 30}) {
    ASSERT_TRUE(store.Save(MakeData(step)).ok());
  }
  ASSERT_TRUE(store.MarkBest(20).ok());
  EXPECT_EQ(fs::read_symlink(dir / "latest"), "step_000000000030");
  ExpectIsOfStep(LoadCheckpoint(dir / "latest"), 30);
  ExpectIsOfStep(LoadCheckpoint(dir / "best"), 20);
  ASSERT_TRUE(store.MarkBest(30).ok());
  ExpectIsOfStep(LoadCheckpoint(dir / "best"), 30);
  EXPECT_TRUE(absl::IsNotFound(store.MarkBest(40)));
}

TEST(CheckpointTest, KeepsTheNewestAndTheBest) {
  TempDir dir;
  CheckpointStore store(dir.path(), 2);
  ASSERT_TRUE(store.Save(MakeData(10)).ok());
  ASSERT_TRUE(store.MarkBest(10).ok());
  for (const int64_t step : {20, 30, 40, 50}) {
    ASSERT_TRUE(store.Save(MakeData(step)).ok());
  }
  EXPECT_EQ(Names(dir.path()),
            (std::set<std::string>{"best", "latest", "step_000000000010",
                                   "step_000000000040", "step_000000000050"}));
  ExpectIsOfStep(LoadCheckpoint(dir / "best"), 10);
}

// And so does who goes on with the folder, as a resumed run does.
TEST(CheckpointTest, FormerBestsPushOutNothingThatWasDue) {
  TempDir dir;
  for (const int64_t step : {10, 20, 30, 40}) {
    CheckpointStore store(dir.path(), 4);
    ASSERT_TRUE(store.Save(MakeData(step)).ok());
    ExpectIsOfStep(LoadCheckpoint(dir / "latest"), step);
    if (step == 40) break;
    ASSERT_TRUE(store.SaveBest(MakeData(step + 2)).ok());
    ExpectIsOfStep(LoadCheckpoint(dir / "latest"), step + 2);
    ExpectIsOfStep(LoadCheckpoint(dir / "best"), step + 2);
  }
  EXPECT_EQ(Names(dir.path()),
            (std::set<std::string>{"best", "latest", "step_000000000010",
                                   "step_000000000020", "step_000000000030",
                                   "step_000000000032", "step_000000000040"}));
  ExpectIsOfStep(LoadCheckpoint(dir / "best"), 32);
}

TEST(CheckpointTest, WhatWasDueStaysSoInItsTurnWhenItIsTheBest) {
  TempDir dir;
  CheckpointStore store(dir.path(), 2);
  ASSERT_TRUE(store.Save(MakeData(10)).ok());
  ASSERT_TRUE(store.Save(MakeData(20)).ok());
  ASSERT_TRUE(store.SaveBest(MakeData(10)).ok());  // older than 20 as before
  ExpectIsOfStep(LoadCheckpoint(dir / "best"), 10);
  ExpectIsOfStep(LoadCheckpoint(dir / "latest"), 20);
  ASSERT_TRUE(store.Save(MakeData(30)).ok());
  ASSERT_TRUE(store.SaveBest(MakeData(30)).ok());
  EXPECT_EQ(Names(dir.path()),
            (std::set<std::string>{"best", "latest", "step_000000000020",
                                   "step_000000000030"}));
}

TEST(CheckpointTest, WhatWasTheBestAloneMayComeToBeDue) {
  TempDir dir;
  CheckpointStore store(dir.path(), 2);
  ASSERT_TRUE(store.SaveBest(MakeData(10)).ok());
  ASSERT_TRUE(store.Save(MakeData(10)).ok());
  ASSERT_TRUE(store.SaveBest(MakeData(20)).ok());
  EXPECT_EQ(Names(dir.path()),
            (std::set<std::string>{"best", "latest", "step_000000000010",
                                   "step_000000000020"}));
}

TEST(CheckpointTest, AnEarlierStepSavedLateDoesNotBecomeTheLatest) {
  TempDir dir;
  CheckpointStore store(dir.path(), 3);
  ASSERT_TRUE(store.Save(MakeData(30)).ok());
  ASSERT_TRUE(store.Save(MakeData(20)).ok());  // an evaluated snapshot
  ASSERT_TRUE(store.MarkBest(20).ok());
  ExpectIsOfStep(LoadCheckpoint(dir / "latest"), 30);
  ExpectIsOfStep(LoadCheckpoint(dir / "best"), 20);
}

TEST(CheckpointTest, WhoGoesOnFromALaterStateLeadsTheLatestNoFurtherBack) {
  TempDir dir;
  ASSERT_TRUE(CheckpointStore(dir.path(), 3).Save(MakeData(30)).ok());
  CheckpointStore store(dir.path(), 3);
  store.GoOnAt(40);
  ASSERT_TRUE(store.Save(MakeData(20)).ok());  // an evaluated snapshot
  ExpectIsOfStep(LoadCheckpoint(dir / "latest"), 30);
  ASSERT_TRUE(store.Save(MakeData(35)).ok());
  ExpectIsOfStep(LoadCheckpoint(dir / "latest"), 35);
  CheckpointStore back(dir.path(), 3);
  back.GoOnAt(10);
  ASSERT_TRUE(back.Save(MakeData(15)).ok());
  ExpectIsOfStep(LoadCheckpoint(dir / "latest"), 15);
}

TEST(CheckpointTest, ItsProgressIsReadAlone) {
  TempDir dir;
  ASSERT_TRUE(CheckpointStore(dir.path(), 3).Save(MakeData(30)).ok());
  const auto progress = LoadCheckpointProgress(dir / "latest");
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(*progress, MakeData(30).progress);
  EXPECT_TRUE(absl::IsNotFound(LoadCheckpointProgress(dir / "best").status()));
  WriteFile(dir / "latest/progress.json", "{}");
  EXPECT_TRUE(
      absl::IsDataLoss(LoadCheckpointProgress(dir / "latest").status()));
}

TEST(CheckpointTest, ARunThatWentBackKeepsItsNewCheckpoints) {
  TempDir dir;
  {
    CheckpointStore store(dir.path(), 2);
    for (const int64_t step : {10, 20, 30}) {
      ASSERT_TRUE(store.Save(MakeData(step)).ok());
    }
  }
  for (const char* step : {"20", "30"}) {  // by any clock of some time ago
    const std::filesystem::path sums =
        dir / absl::StrCat("step_0000000000", step, "/SHA256SUMS");
    last_write_time(sums, last_write_time(sums) - std::chrono::hours(1));
  }
  CheckpointStore resumed(dir.path(), 2);  // from step 10
  ASSERT_TRUE(resumed.Save(MakeData(15)).ok());
  ExpectIsOfStep(LoadCheckpoint(dir / "latest"), 15);
  ASSERT_TRUE(resumed.Save(MakeData(18)).ok());
  ExpectIsOfStep(LoadCheckpoint(dir / "latest"), 18);
  EXPECT_TRUE(Names(dir.path()).contains("step_000000000015"));
  EXPECT_FALSE(Names(dir.path()).contains("step_000000000030"));
}

TEST(CheckpointTest, SavingAStepAgainReplacesIt) {
  TempDir dir;
  CheckpointStore store(dir.path(), 3);
  CheckpointData data = MakeData(10);
  ASSERT_TRUE(store.Save(data).ok());
  data.weights["actor.0.weight"] = torch::full({5}, 77.f);
  ASSERT_TRUE(store.Save(data).ok());
  const auto loaded = LoadCheckpoint(dir / "latest");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->weights.at("actor.0.weight").size(0), 5);
  EXPECT_EQ(Names(dir.path()),
            (std::set<std::string>{"latest", "step_000000000010"}));
}

TEST(CheckpointTest, AMissingCheckpointIsNotFound) {
  TempDir dir;
  const auto loaded = LoadCheckpoint(dir / "latest");
  EXPECT_TRUE(absl::IsNotFound(loaded.status())) << loaded.status();
  EXPECT_TRUE(Mentions(loaded.status(), dir / "latest"));
}

TEST(CheckpointTest, EveryDamagedByteIsNoticedAndItsFileNamed) {
  TempDir dir;
  CheckpointStore store(dir.path(), 3);
  for (const char* name : {"weights.safetensors", "state.safetensors",
                           "progress.json", "config.textproto"}) {
    ASSERT_TRUE(store.Save(MakeData(10)).ok());
    const std::string path =
        absl::StrCat(dir.path(), "/step_000000000010/", name);
    const std::string content = ReadFile(path);
    std::string damaged = content;
    damaged[damaged.size() / 2] ^= 1;
    for (const std::string& bad :
         {damaged, content.substr(0, content.size() - 1), content + "x",
          std::string()}) {
      WriteFile(path, bad);
      const auto loaded = LoadCheckpoint(dir / "latest");
      EXPECT_TRUE(absl::IsDataLoss(loaded.status())) << loaded.status();
      EXPECT_TRUE(Mentions(loaded.status(), name)) << loaded.status();
    }
    fs::remove(path);
    EXPECT_TRUE(Mentions(LoadCheckpoint(dir / "latest").status(), name));
  }
  ASSERT_TRUE(store.Save(MakeData(10)).ok());
  fs::remove(dir / "step_000000000010/SHA256SUMS");
  EXPECT_TRUE(absl::IsDataLoss(LoadCheckpoint(dir / "latest").status()));
}

// Writes `tensors` into file `name` of a checkpoint, and its new sum.
void Rewrite(const std::string& checkpoint, const std::string& name,
             const TensorMap& tensors) {
  std::string file;
  ASSERT_TRUE(WriteSafetensors(tensors, [&](const void* data, size_t size) {
                file.append(static_cast<const char*>(data), size);
                return absl::OkStatus();
              }).ok());
  const std::string path = absl::StrCat(checkpoint, "/", name);
  const std::string before = Sha256Hex(ReadFile(path));
  WriteFile(path, file);
  WriteFile(checkpoint + "/SHA256SUMS",
            absl::StrReplaceAll(ReadFile(checkpoint + "/SHA256SUMS"),
                                {{before, Sha256Hex(file)}}));
}

TEST(CheckpointTest, WhatIsNotFiniteIsRefusedEvenWhereTheSumsFit) {
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    TempDir dir;
    const std::string folder = dir / "checkpoints";
    CheckpointStore store(folder, 3);
    ASSERT_TRUE(store.Save(MakeData(10)).ok());
    const std::string latest = fs::canonical(folder + "/latest");
    CheckpointData data = MakeData(10);
    Rewrite(latest, "state.safetensors", data.state);
    ASSERT_TRUE(LoadCheckpoint(latest).ok()) << LoadCheckpoint(latest).status();
    data.state["moment1"][7] = bad;
    Rewrite(latest, "state.safetensors", data.state);
    const absl::Status status = LoadCheckpoint(latest).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_TRUE(Mentions(status, latest + "/state.safetensors")) << status;
    EXPECT_TRUE(Mentions(status, "tensor \"moment1\" has 1 of 100 numbers"))
        << status;
  }
}

TEST(CheckpointTest, WhatIsNotFiniteIsNotSavedAndThePreviousStands) {
  TempDir dir;
  const std::string folder = dir / "checkpoints";
  CheckpointStore store(folder, 3);
  ASSERT_TRUE(store.Save(MakeData(10)).ok());
  CheckpointData weights = MakeData(20), state = MakeData(20);
  weights.weights["actor.0.weight"][3] = std::nan("");
  state.state["moment1"][3] = HUGE_VAL;
  for (const auto& [data, name] :
       {std::pair(weights, "actor.0.weight"), std::pair(state, "moment1")}) {
    const absl::Status status = store.Save(data);
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_TRUE(Mentions(status, name)) << status;
  }
  EXPECT_EQ(Names(folder),
            (std::set<std::string>{"latest", "step_000000000010"}));
  ExpectIsOfStep(LoadCheckpoint(folder + "/latest"), 10);
}

TEST(CheckpointTest, ARunsFolderThatIsGoneIsNotMadeAgain) {
  TempDir dir;
  CheckpointStore store(dir / "run/checkpoints", 3);
  EXPECT_TRUE(absl::IsNotFound(store.Save(MakeData(10))));
  EXPECT_FALSE(fs::exists(dir / "run"));
}

TEST(CheckpointTest, AnotherEnvironmentOrAlgorithmIsRefusedNamingBoth) {
  TempDir dir;
  CheckpointStore store(dir.path(), 3);
  ASSERT_TRUE(store.Save(MakeData(10)).ok());
  const auto env = LoadCheckpoint(dir / "latest", MakeConfig("Pendulum-v1"));
  EXPECT_TRUE(absl::IsFailedPrecondition(env.status())) << env.status();
  EXPECT_TRUE(Mentions(env.status(), "CartPole-v1"));
  EXPECT_TRUE(Mentions(env.status(), "Pendulum-v1"));
  v1::RunConfig dqn = MakeConfig();
  dqn.mutable_dqn();
  const auto algorithm = LoadCheckpoint(dir / "latest", dqn);
  EXPECT_TRUE(absl::IsFailedPrecondition(algorithm.status()))
      << algorithm.status();
  EXPECT_TRUE(Mentions(algorithm.status(), "\"ppo\""));
  EXPECT_TRUE(Mentions(algorithm.status(), "\"dqn\""));
  EXPECT_TRUE(LoadCheckpoint(dir / "latest", MakeConfig()).ok());
}

TEST(CheckpointTest, ProgressNeedsAGlobalStep) {
  TempDir dir;
  CheckpointStore store(dir.path(), 3);
  CheckpointData data = MakeData(10);
  data.progress.erase("global_step");
  EXPECT_TRUE(absl::IsInvalidArgument(store.Save(data)));
}

TEST(CheckpointTest, Sha256sumAndPythonAgree) {
  if (!TestPythonHas("safetensors.numpy")) {
    GTEST_SKIP() << "no safetensors in .deps/testvenv";
  }
  TempDir dir;
  CheckpointStore store(dir.path(), 3);
  ASSERT_TRUE(store.Save(MakeData(10)).ok());
  const PythonResult result = RunPython(
      "import json, subprocess, sys\n"
      "from safetensors.numpy import load_file\n"
      "d = sys.argv[1]\n"
      "subprocess.run(['sha256sum', '-c', '--strict', 'SHA256SUMS'], cwd=d,\n"
      "               check=True)\n"
      "w = load_file(d + '/weights.safetensors')\n"
      "assert (w['actor.0.weight'] == 10).all()\n"
      "p = json.load(open(d + '/progress.json'))\n"
      "assert p == {'global_step': 10, 'update': 1,\n"
      "             'wall_seconds': 0.30000000000000004}, p\n",
      dir / "latest");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(CheckpointTest, AFullDiskNamesPathAndCauseAndSparesThePrevious) {
  TempDir dir;
  const TinyDisk disk(dir.path());
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  CheckpointStore store(dir / "checkpoints", 3);
  ASSERT_TRUE(store.Save(MakeData(10)).ok());
  for (int attempt = 0; attempt < 3; ++attempt) {
    const absl::Status status = store.Save(MakeData(20, 1'000'000));
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_TRUE(Mentions(status, dir / "checkpoints")) << status;
    EXPECT_TRUE(Mentions(status, "No space left on device")) << status;
  }
  ExpectIsOfStep(LoadCheckpoint(dir / "checkpoints/latest"), 10);
  // The failed ones left nothing: there is room for a small one.
  const absl::Status small = store.Save(MakeData(30));
  EXPECT_TRUE(small.ok()) << small;
  ExpectIsOfStep(LoadCheckpoint(dir / "checkpoints/latest"), 30);
}

TEST(CheckpointTest, AFileSizeLimitIsReportedLikeAFullDisk) {
  TempDir dir;
  CheckpointStore store(dir.path(), 3);
  ASSERT_TRUE(store.Save(MakeData(10)).ok());
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {.rlim_cur = 100'000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = store.Save(MakeData(20, 1'000'000));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(Mentions(status, "weights.safetensors")) << status;
  ExpectIsOfStep(LoadCheckpoint(dir / "latest"), 10);
  EXPECT_EQ(Names(dir.path()),
            (std::set<std::string>{"latest", "step_000000000010"}));
}

TEST(CheckpointTest, NamesAFolderItCannotMake) {
  CheckpointStore store("/dev/null/checkpoints", 3);
  const absl::Status status = store.Save(MakeData(10));
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(Mentions(status, "/dev/null/checkpoints")) << status;
}

TEST(CheckpointTest, ASaveRemovesWhatCrashedOnesLeft) {
  TempDir dir;
  fs::create_directories(dir / ".aside_step_000000000005.123");
  WriteFile(dir / ".aside_step_000000000005.123/weights.safetensors", "half");
  fs::create_symlink("step_000000000005", dir / ".aside_latest.123");
  CheckpointStore store(dir.path(), 3);
  ASSERT_TRUE(store.Save(MakeData(10)).ok());
  EXPECT_EQ(Names(dir.path()),
            (std::set<std::string>{"latest", "step_000000000010"}));
}

bool CannotExchange(const std::string&, const std::string&) { return false; }

// As on NFS, which cannot let folders change places.
CheckpointStore::Exchange ExchangeOf(bool exchanges) {
  return exchanges ? CheckpointStore::ExchangeFolders : CannotExchange;
}

// This program again, saving step after step until it is killed.
TEST(SaverTest, DISABLED_SavesUntilKilled) {
  CheckpointStore store(std::getenv("SAVER_FOLDER"), 2,
                        ExchangeOf(std::getenv("SAVER_EXCHANGES") != nullptr));
  for (int64_t step = std::atoll(std::getenv("SAVER_FIRST"));; step += 10) {
    // Every other step twice, which replaces; some are the best.
    for (int i = 0; i <= step / 10 % 2; ++i) {
      ASSERT_TRUE(store.Save(MakeData(step, 200'000)).ok());
    }
    if (step % 30 == 0) {
      ASSERT_TRUE(store.MarkBest(step).ok());
    }
  }
}

class KilledSaverTest : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(FileSystem, KilledSaverTest, testing::Bool(),
                         [](const auto& info) -> std::string {
                           return info.param ? "Exchanges" : "Renames";
                         });

TEST_P(KilledSaverTest, AtAnyMomentLeavesTheLatestWhole) {
  const bool exchanges = GetParam();
  TempDir dir;
  CheckpointStore first(dir.path(), 2);
  ASSERT_TRUE(first.Save(MakeData(10, 200'000)).ok());
  int64_t step = 10;
  for (int kill = 0; kill < 12; ++kill) {
    const int64_t before = step;
    const pid_t saver = ::fork();
    ASSERT_GE(saver, 0);
    if (saver == 0) {
      ::setenv("SAVER_FOLDER", dir.path().c_str(), 1);
      if (exchanges) ::setenv("SAVER_EXCHANGES", "1", 1);
      ::setenv("SAVER_FIRST", absl::StrCat(step + 10).c_str(), 1);
      ::execl("/proc/self/exe", "saver", "--gtest_also_run_disabled_tests",
              "--gtest_filter=SaverTest.DISABLED_SavesUntilKilled", nullptr);
      ::_exit(1);
    }
    // Until it has saved something, then a little longer each time, so that the
    // kills fall on different places in a save.
    const absl::Time patience = SteadyNow() + absl::Seconds(20);
    const auto latest = [&] {
      const std::string name = fs::read_symlink(dir / "latest").string();
      return std::atoll(name.substr(name.rfind('_') + 1).c_str());
    };
    while (latest() == before && SteadyNow() < patience) {
      absl::SleepFor(absl::Microseconds(100));
    }
    absl::SleepFor(absl::Microseconds(700) * kill);
    ::kill(saver, SIGKILL);
    ASSERT_EQ(::waitpid(saver, nullptr, 0), saver);

    step = latest();
    EXPECT_GT(step, before);
    ExpectIsOfStep(LoadCheckpoint(dir / "latest"), step);
    if (fs::exists(dir / "best")) {
      EXPECT_TRUE(LoadCheckpoint(dir / "best").ok());
    }
    for (const std::string& name : Names(dir.path())) {
      // What has a checkpoint's name is whole.
      if (name.rfind("step_", 0) != 0) continue;
      EXPECT_TRUE(LoadCheckpoint(dir / name).ok()) << name;
    }
  }
  CheckpointStore last(dir.path(), 2);
  ASSERT_TRUE(last.Save(MakeData(step + 10)).ok());
  for (const std::string& name : Names(dir.path())) {
    EXPECT_NE(name.substr(0, 7), ".aside_") << name;
  }
}

// Killed at each of its steps that leaves something behind.
TEST(CheckpointTest, WhatAnInterruptedReplacementLeftIsGoneOnWith) {
  for (const bool is_there : {false, true}) {
    TempDir dir;
    CheckpointStore store(dir.path(), 3, CannotExchange);
    ASSERT_TRUE(store.Save(MakeData(10)).ok());
    ASSERT_TRUE(store.MarkBest(10).ok());
    ASSERT_TRUE(store.Save(MakeData(10)).ok());  // replaces
    EXPECT_EQ(Names(dir.path()),
              (std::set<std::string>{"best", "latest", "step_000000000010"}));
    const std::string kept = ".aside_kept_step_000000000010.123";
    fs::copy(dir / "step_000000000010", dir / kept);
    for (const char* link : {"latest", "best"}) {
      fs::remove(dir / link);
      fs::create_symlink(kept, dir / link);
    }
    if (!is_there) fs::remove_all(dir / "step_000000000010");
    CheckpointStore next(dir.path(), 3, CannotExchange);
    next.GoOnAt(40);
    ASSERT_TRUE(next.Save(MakeData(5)).ok());  // an evaluated snapshot
    ExpectIsOfStep(LoadCheckpoint(dir / "latest"), 10);
    ASSERT_TRUE(next.Save(MakeData(20)).ok());
    ExpectIsOfStep(LoadCheckpoint(dir / "latest"), 20);
    ExpectIsOfStep(LoadCheckpoint(dir / "best"), 10);
    EXPECT_EQ(fs::exists(dir / kept), !is_there);
  }
}

TEST(ParametersSha256Test, DigestsTheBytesInOrder) {
  const torch::Tensor a = torch::arange(4, torch::kFloat32);
  const torch::Tensor b = torch::arange(4, 6, torch::kFloat32);
  const std::string whole =
      ParametersSha256({torch::arange(6, torch::kFloat32)});
  EXPECT_EQ(whole.size(), 64u);
  EXPECT_EQ(ParametersSha256({a, b}), whole);
  EXPECT_NE(ParametersSha256({b, a}), whole);
  // As it looks, not as it lies in memory.
  EXPECT_EQ(
      ParametersSha256({torch::arange(6, torch::kFloat32).reshape({3, 2}).t()}),
      ParametersSha256({torch::tensor({0.f, 2.f, 4.f, 1.f, 3.f, 5.f})}));
}

}  // namespace
}  // namespace flotilla
