#include "launcher/train_place.h"

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

class TrainPlaceTest : public testing::Test {
 protected:
  TrainPlaceTest() : before_(fs::current_path()) {
    fs::current_path(temp_.path());
    unsetenv("SLURM_RESTART_COUNT");
    unsetenv("SLURM_JOB_ID");
    unsetenv("JOB_COMPLETION_INDEX");
    unsetenv("TORCHELASTIC_RUN_ID");
  }
  ~TrainPlaceTest() override {
    fs::current_path(before_);
    unsetenv("SLURM_RESTART_COUNT");
  }

  // A run that has trained: its last checkpoint is the second.
  static void MakeRun(const std::string& run) {
    for (const char* step : {"/checkpoints/step_1", "/checkpoints/step_2"}) {
      fs::create_directories(run + step);
      WriteFile(run + step + "/weights.safetensors", "");
      WriteFile(run + step + "/config.textproto", "");
    }
    fs::create_directory_symlink("step_2", run + "/checkpoints/latest");
    WriteFile(run + "/config.textproto", "");
    WriteFile(run + "/metrics.jsonl", "{}\n");
  }

  absl::StatusOr<TrainPlace> Resume(const std::string& path,
                                    const std::string& run_dir = "") {
    TrainFlags flags;
    flags.resume = path;
    if (!run_dir.empty()) flags.run_dir = run_dir;
    return FindTrainPlace(flags, topology_);
  }

  TempDir temp_;
  const fs::path before_;
  Topology topology_;
};

TEST_F(TrainPlaceTest, ACheckpointIsOfItsRunHoweverItIsWritten) {
  MakeRun("a");
  for (const std::string path :
       {"a/checkpoints/step_1", "a/checkpoints/step_1/",
        "./a/../a/checkpoints/step_1//", "a/checkpoints/step_1/."}) {
    const auto place = Resume(path);
    ASSERT_TRUE(place.ok()) << path << ": " << place.status();
    EXPECT_TRUE(fs::equivalent(place->run_dir, "a")) << place->run_dir;
    EXPECT_TRUE(place->GoesOnInPlace()) << path;
    EXPECT_TRUE(fs::equivalent(place->checkpoint(), "a/checkpoints/step_1"));
    // A folder that is named in another way is the same folder.
    const auto named = Resume(path, "a/");
    ASSERT_TRUE(named.ok()) << named.status();
    EXPECT_TRUE(named->GoesOnInPlace()) << path;
  }
  EXPECT_EQ(Resume("a/").value().checkpoint(), "a//checkpoints/latest");
  EXPECT_EQ(Resume("a/", "a").value().resume, "latest");
}

TEST_F(TrainPlaceTest, AnotherRunsFolderIsNotTakenForTheCheckpoint) {
  MakeRun("a");
  MakeRun("b");
  for (const char* path : {"a/checkpoints/step_1", "a"}) {
    EXPECT_THAT(std::string(Resume(path, "b").status().message()),
                HasSubstr("the folder b holds another run; go on with that"));
    const auto fresh = Resume(path, "a");
    EXPECT_TRUE(fresh.ok()) << fresh.status();
  }
}

TEST_F(TrainPlaceTest, ADryRunSaysWhatTheRunWouldBeRefusedFor) {
  MakeRun("a");
  TrainFlags flags;
  flags.config = "a/config.textproto";
  flags.run_dir = "a";
  for (const bool dry_run : {false, true}) {
    flags.dry_run = dry_run;
    EXPECT_THAT(
        std::string(FindTrainPlace(flags, topology_).status().message()),
        HasSubstr("the folder a holds a run already"));
  }
}

TEST_F(TrainPlaceTest, ARunWithoutACheckpointHasNothingForAnother) {
  MakeRun("a");
  fs::remove_all("a/checkpoints");
  TrainFlags flags;
  flags.config = "a/config.textproto";
  flags.resume = "a";
  flags.run_dir = "b";
  const absl::Status refused = FindTrainPlace(flags, topology_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("--resume a: that run has no checkpoint yet"));
  EXPECT_FALSE(fs::exists("b"));
  // In its own folder it begins anew, as the same command line does.
  for (const char* run_dir : {"", "a"}) {
    const auto anew = Resume("a", run_dir);
    ASSERT_TRUE(anew.ok()) << anew.status();
    EXPECT_FALSE(anew->resume.has_value());
  }
}

// The same command line, on a node that was preempted or lost.
TEST_F(TrainPlaceTest, AJobThatIsStartedAgainGoesOnWithWhatItMade) {
  MakeRun("a");
  MakeRun("b");
  setenv("SLURM_RESTART_COUNT", "1", 1);
  EXPECT_EQ(Resume("a/checkpoints/step_1", "b").value().resume, "latest");
  EXPECT_EQ(Resume("a/checkpoints/step_1", "b").value().source_run, "b");
  EXPECT_THAT(Resume("a/checkpoints/step_1", "b").value().notice,
              HasSubstr("b holds a run, which goes on from its own newest"));
  unsetenv("SLURM_RESTART_COUNT");
  topology_.max_world_size = 2;  // another launcher's
  EXPECT_EQ(Resume("a/checkpoints/step_1", "b").value().resume, "latest");
  // In its own folder the run goes back to where it is told to.
  EXPECT_NE(Resume("a/checkpoints/step_1", "a").value().resume, "latest");
}

}  // namespace
}  // namespace flotilla
