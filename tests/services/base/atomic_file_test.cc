#include "services/base/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::HasSubstr;

int CountFiles(const std::string& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    (void)entry;
    ++count;
  }
  return count;
}

TEST(WriteFileAtomicallyTest, WritesAndReplaces) {
  TempDir folder;
  ASSERT_OK(WriteFileAtomically(folder / "file", "one"));
  EXPECT_EQ(ReadFile(folder / "file"), "one");
  ASSERT_OK(WriteFileAtomically(folder / "file", std::string(100'000, 'x')));
  EXPECT_EQ(ReadFile(folder / "file").size(), 100'000u);
  EXPECT_EQ(CountFiles(folder.path()), 1);
}

TEST(WriteFileAtomicallyTest, FailureNamesThePathAndLeavesNothing) {
  TempDir folder;
  EXPECT_THAT(WriteFileAtomically(folder / "no/such/file", "x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no/such/file")));
  std::filesystem::create_directory(folder / "taken");
  EXPECT_THAT(WriteFileAtomically(folder / "taken", "x"), testing::Not(IsOk()));
  EXPECT_EQ(CountFiles(folder.path()), 1);
}

TEST(WriteFileAtomicallyTest, FullDiskLeavesTheOldFile) {
  TempDir folder;
  // A device that is always full.
  std::error_code error;
  if (!std::filesystem::exists("/dev/full", error)) GTEST_SKIP();
  ASSERT_OK(WriteFileAtomically(folder / "file", "old"));
  std::filesystem::create_symlink(
      "/dev/full", folder / ("file." + std::to_string(getpid()) + ".tmp"));
  EXPECT_THAT(WriteFileAtomically(folder / "file", "new"),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(ReadFile(folder / "file"), "old");
}

TEST(LinkAtomicallyTest, PointsElsewhereAndLeavesNothingBeside) {
  TempDir folder;
  ASSERT_OK(LinkAtomically(folder / "link", "one"));
  ASSERT_OK(LinkAtomically(folder / "link", "/two/of"));
  EXPECT_EQ(std::filesystem::read_symlink(folder / "link"), "/two/of");
  EXPECT_EQ(CountFiles(folder.path()), 1);
  std::filesystem::create_directory(folder / "taken");
  EXPECT_THAT(LinkAtomically(folder / "taken", "one"), testing::Not(IsOk()));
  EXPECT_THAT(LinkAtomically(folder / "no/link", "one"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no/link")));
  EXPECT_EQ(CountFiles(folder.path()), 2);
}

}  // namespace
}  // namespace flotilla
