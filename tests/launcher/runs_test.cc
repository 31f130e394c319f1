#include "launcher/runs.h"

#include <filesystem>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(RunFolderTest, ANewFolderHoldsNoRun) {
  const TempDir temp;
  const RunFolder folder(temp / "run");
  EXPECT_FALSE(folder.HoldsRun());
  ASSERT_TRUE(folder.Make().ok());
  EXPECT_FALSE(folder.HoldsRun());  // logs alone are no run
  EXPECT_TRUE(fs::is_directory(folder.logs()));
}

TEST(RunFolderTest, AConfigurationOrMetricsOrCheckpointsMakeARun) {
  for (const char* name :
       {"config.textproto", "metrics.jsonl", "checkpoints"}) {
    const TempDir temp;
    WriteFile(temp / name, "");
    EXPECT_TRUE(RunFolder(temp.path()).HoldsRun()) << name;
  }
}

TEST(RunFolderTest, TheNameIsTheLastPartOfThePath) {
  EXPECT_EQ(RunFolder("runs/a").name(), "a");
  EXPECT_EQ(RunFolder("/x/runs/a/").name(), "a");
  EXPECT_EQ(RunFolder("/x/a/.").name(), "a");
  EXPECT_EQ(RunFolder(".").name(), fs::current_path().filename());
}

TEST(RunFolderTest, LatestNamesACheckpointOnlyIfThatIsThere) {
  const TempDir temp;
  const RunFolder folder(temp.path());
  fs::create_directories(temp / "checkpoints");
  fs::create_symlink("step_5", folder.latest_checkpoint());
  EXPECT_FALSE(folder.HasCheckpoint());  // it dangles
  fs::create_directories(temp / "checkpoints/step_5");
  EXPECT_TRUE(folder.HasCheckpoint());
}

TEST(RunFolderTest, AFolderThatCannotBeMadeIsNamed) {
  const TempDir temp;
  WriteFile(temp / "file", "");
  const RunFolder inside(temp / "file/run");
  for (const absl::Status& refused :
       {inside.Make(), inside.MayBeMade(), RunFolder(temp / "file").MayBeMade(),
        RunFolder(temp / std::string(300, 'x')).MayBeMade()}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(refused), HasSubstr("choose another --run-dir"));
  }
  EXPECT_THAT(Message(inside.Make()), HasSubstr("file/run: Not a directory"));
  EXPECT_TRUE(RunFolder(temp / "a/b/c").MayBeMade().ok());
  EXPECT_FALSE(fs::exists(temp / "a"));
  EXPECT_TRUE(RunFolder(temp.path()).MayBeMade().ok());
}

TEST(RunLockTest, OneLauncherHoldsAFolder) {
  const TempDir temp;
  const RunFolder folder(temp.path());
  {
    const auto first = RunLock::Take(folder);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = RunLock::Take(folder);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(second.status()),
                AllOf(HasSubstr("in use by pid "), HasSubstr(temp.path())));
  }
  EXPECT_TRUE(RunLock::Take(folder).ok());  // released
}

TEST(RunLockTest, RemovingTheFileLetsNobodyInAndKeepMakesItAgain) {
  const TempDir temp;
  const RunFolder folder(temp.path());
  auto first = RunLock::Take(folder);
  ASSERT_TRUE(first.ok()) << first.status();
  fs::remove(folder.lock());
  const auto second = RunLock::Take(folder);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(second.status()), HasSubstr("in use by another"));
  EXPECT_FALSE(fs::exists(folder.lock()));  // it left nothing
  EXPECT_TRUE(first->Keep().ok());
  EXPECT_THAT(ReadFile(folder.lock()), HasSubstr("pid "));
  EXPECT_THAT(Message(RunLock::Take(folder).status()),
              HasSubstr("in use by pid "));
}

TEST(RunLockTest, AFolderThatIsRemovedOrRenamedIsNoticed) {
  const TempDir temp;
  const RunFolder folder(temp / "run");
  ASSERT_TRUE(folder.Make().ok());
  auto lock = RunLock::Take(folder);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_TRUE(lock->Keep().ok());
  fs::rename(folder.path(), temp / "elsewhere");
  EXPECT_EQ(lock->Keep().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(folder.Make().ok());  // another one in its place
  EXPECT_EQ(lock->Keep().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(lock->Keep()), HasSubstr("removed or renamed"));
}

// As a file system does whose server is away for a moment: here a name that leads
// through itself.
TEST(RunLockTest, AFileSystemThatCannotSayHasNotSaidThatTheFolderIsGone) {
  const TempDir temp;
  fs::create_directories(temp / "parent/run");
  const RunFolder folder(temp / "parent/run");
  auto lock = RunLock::Take(folder);
  ASSERT_TRUE(lock.ok()) << lock.status();
  fs::rename(temp / "parent", temp / "away");
  fs::create_symlink("parent", temp / "parent");
  EXPECT_TRUE(lock->Keep().ok()) << lock->Keep();
  fs::remove(temp / "parent");
  EXPECT_EQ(lock->Keep().code(), absl::StatusCode::kNotFound);
  fs::rename(temp / "away", temp / "parent");
  EXPECT_TRUE(lock->Keep().ok());
}

TEST(RunLockTest, ALockThatCannotBeMadeAgainNowIsMadeLater) {
  const TempDir temp;
  const RunFolder folder(temp.path());
  auto lock = RunLock::Take(folder);
  ASSERT_TRUE(lock.ok()) << lock.status();
  fs::remove(folder.lock());
  fs::create_directory(folder.lock());  // cannot be opened to write
  EXPECT_TRUE(lock->Keep().ok());
  fs::remove(folder.lock());
  EXPECT_TRUE(lock->Keep().ok());
  EXPECT_THAT(ReadFile(folder.lock()), HasSubstr("pid "));
}

class RunPathTest : public testing::Test {
 protected:
  RunPathTest() : before_(fs::current_path()) {
    fs::current_path(temp_.path());
  }
  ~RunPathTest() override { fs::current_path(before_); }

  void MakeRun(const std::string& name, int age_seconds) {
    fs::create_directories("runs/" + name);
    const std::string config = "runs/" + name + "/config.textproto";
    WriteFile(config, "");
    fs::last_write_time(config, fs::file_time_type::clock::now() -
                                    std::chrono::seconds(age_seconds));
  }

  TempDir temp_;
  const fs::path before_;
};

TEST_F(RunPathTest, ANewPathIsNamedAfterConfigurationAndTime) {
  const absl::Time now = absl::FromCivil(
      absl::CivilSecond(2026, 1, 31, 23, 59, 58), absl::LocalTimeZone());
  EXPECT_EQ(NewRunPath("ppo", now), "runs/ppo-20260131-235958");
  fs::create_directories("runs/ppo-20260131-235958");
  EXPECT_EQ(NewRunPath("ppo", now), "runs/ppo-20260131-235958-2");
}

TEST_F(RunPathTest, APathIsClaimedOnce) {
  EXPECT_TRUE(ClaimRunPath("runs/ppo-1"));
  EXPECT_TRUE(fs::is_directory("runs/ppo-1"));
  EXPECT_FALSE(ClaimRunPath("runs/ppo-1"));
  // What cannot be made is not somebody else's.
  WriteFile("file", "");
  EXPECT_TRUE(ClaimRunPath("file/ppo-1"));
}

TEST_F(RunPathTest, TheNewestRunIsOfThatConfiguration) {
  EXPECT_EQ(NewestRunPath(""), "");
  MakeRun("a-20260131-235958", 30);
  MakeRun("a-20260131-235958-2", 20);
  MakeRun("a-large-20260131-235959", 15);  // of "a-large"
  MakeRun("a-best", 12);                   // somebody's own name
  MakeRun("b-slurm17", 10);
  fs::create_directories("runs/a-20260201-000000");  // empty
  EXPECT_EQ(NewestRunPath("a"), "runs/a-20260131-235958-2");
  EXPECT_EQ(NewestRunPath("a-large"), "runs/a-large-20260131-235959");
  EXPECT_EQ(NewestRunPath("b"), "runs/b-slurm17");
  EXPECT_EQ(NewestRunPath(""), "runs/b-slurm17");
  EXPECT_EQ(NewestRunPath("c"), "");
  // What is claimed is found again.
  const std::string path = NewRunPath("c", absl::Now());
  MakeRun(path.substr(sizeof("runs/") - 1), 0);
  EXPECT_EQ(NewestRunPath("c"), path);
}

}  // namespace
}  // namespace flotilla
