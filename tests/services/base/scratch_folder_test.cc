#include "services/base/scratch_folder.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ScratchFolderTest : public testing::Test {
 protected:
  ScratchFolderTest() { SetTmpdir(temp_.path()); }
  ~ScratchFolderTest() override { unsetenv("TMPDIR"); }

  static void SetTmpdir(const std::string& path) {
    setenv("TMPDIR", path.c_str(), /*overwrite=*/1);
  }

  // What a process leaves that has a scratch folder and is killed.
  std::string Abandon() {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      const ScratchFolder folder;
      WriteFile(folder.path() + "/socket", "");
      if (write(ready[1], "", 1) == 1) {
        for (;;) pause();
      }
      _exit(1);
    }
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
    for (const auto& entry : fs::directory_iterator(temp_.path())) {
      const std::string name = entry.path().filename();
      if (name.find(absl::StrCat("_", child, "_")) != name.npos) {
        return entry.path();
      }
    }
    return "";
  }

  TempDir temp_;
};

TEST_F(ScratchFolderTest, IsThereAsLongAsItLives) {
  std::string path;
  {
    const ScratchFolder folder;
    ASSERT_TRUE(folder.status().ok()) << folder.status();
    path = folder.path();
    EXPECT_THAT(path,
                StartsWith(absl::StrCat(temp_ / "flotilla_", getpid(), "_")));
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(ScratchFolderTest, WhatKilledProcessesLeftIsRemoved) {
  const ScratchFolder alive;
  const std::string abandoned = Abandon();
  ASSERT_TRUE(fs::exists(abandoned + "/socket"));
  RemoveAbandonedScratch(temp_.path());
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_TRUE(fs::exists(alive.path()));
}

TEST_F(ScratchFolderTest, WhatMayBeSomebodysIsLetAlone) {
  const std::string kept[] = {temp_ / "flotilla_1_abcdef",  // no lock
                              temp_ / "flotilla_x_abcdef",
                              temp_ / "flotilla_1_abc",
                              temp_ / "other_1_abcdef"};
  for (const std::string& folder : kept) fs::create_directories(folder);
  for (const std::string& folder : {kept[1], kept[2], kept[3]}) {
    WriteFile(folder + "/.lock", "");
  }
  // Where TMPDIR is shared, and locks hold on their own host alone.
  fs::create_directories(temp_ / "flotilla_3_abcdef");
  WriteFile(temp_ / "flotilla_3_abcdef/.lock", "another-host\n");
  // A link that has the name leads nowhere.
  fs::create_directories(temp_ / "target");
  WriteFile(temp_ / "target/.lock", "");
  fs::create_directory_symlink(temp_ / "target", temp_ / "flotilla_2_abcdef");
  RemoveAbandonedScratch(temp_.path());
  for (const std::string& folder : kept) EXPECT_TRUE(fs::exists(folder));
  EXPECT_TRUE(fs::exists(temp_ / "flotilla_3_abcdef"));
  EXPECT_TRUE(fs::exists(temp_ / "target/.lock"));
  EXPECT_TRUE(fs::is_symlink(temp_ / "flotilla_2_abcdef"));
}

TEST_F(ScratchFolderTest,
       AFolderThatIsTooLongForSocketsIsRefusedWithTheRemedy) {
  const std::string folder = temp_ / std::string(100, 'x');
  fs::create_directories(folder);
  SetTmpdir(folder);
  const ScratchFolder scratch;
  EXPECT_EQ(scratch.path(), "");
  EXPECT_TRUE(absl::IsFailedPrecondition(scratch.status()));
  EXPECT_THAT(std::string(scratch.status().message()),
              AllOf(HasSubstr("TMPDIR is " + folder), HasSubstr("107"),
                    HasSubstr("TMPDIR=/tmp")));
}

TEST_F(ScratchFolderTest, AFolderThatIsNoneIsNamed) {
  SetTmpdir(temp_ / "missing");
  const ScratchFolder scratch;
  EXPECT_TRUE(absl::IsFailedPrecondition(scratch.status()));
  EXPECT_THAT(std::string(scratch.status().message()),
              HasSubstr("missing, which is no folder"));
}

}  // namespace
}  // namespace flotilla
