#include "services/base/secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(SecretTest, IsDrawnAnewEachTime) {
  const std::string secret = DrawSecret();
  EXPECT_THAT(secret, MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(secret.size(), 64u);
  EXPECT_NE(DrawSecret(), secret);
}

TEST(SecretTest, FileIsMadeOnceForItsOwnerAlone) {
  TempDir folder;
  const std::string path = folder / "secret";
  EXPECT_THAT(ReadSecret(path),
              StatusIs(StatusCode::kNotFound, HasSubstr(path)));
  ASSERT_OK_AND_ASSIGN(const std::string drawn, ReadOrDrawSecret(path));
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  ASSERT_OK_AND_ASSIGN(const std::string read, ReadOrDrawSecret(path));
  EXPECT_EQ(read, drawn);
  ASSERT_OK_AND_ASSIGN(const std::string again, ReadSecret(path));
  EXPECT_EQ(again, drawn);
}

TEST(SecretTest, FileOpenToOthersIsRefusedWithTheRemedy) {
  TempDir folder;
  const std::string path = folder / "secret";
  ASSERT_OK(ReadOrDrawSecret(path));
  for (const mode_t mode : {0644, 0666, 0602}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_THAT(ReadOrDrawSecret(path),
                StatusIs(StatusCode::kPermissionDenied,
                         AllOf(HasSubstr(path), HasSubstr("chmod 600"))));
    struct stat info = {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, mode);
  }
}

// As Kubernetes leaves the files of a volume with an fsGroup.
TEST(SecretTest, WhatAGroupMayDoIsTakenBack) {
  TempDir folder;
  const std::string path = folder / "secret";
  ASSERT_OK_AND_ASSIGN(const std::string drawn, ReadOrDrawSecret(path));
  ASSERT_EQ(chmod(path.c_str(), 0660), 0);
  ASSERT_OK_AND_ASSIGN(const std::string read, ReadOrDrawSecret(path));
  EXPECT_EQ(read, drawn);
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST(SecretTest, FileWithoutASecretIsRefusedAndKept) {
  TempDir folder;
  const std::string path = folder / "secret";
  for (const std::string& text : {std::string(), std::string("short"),
                                  std::string(65, 'a'), std::string(64, 'g')}) {
    WriteFile(path, text);
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    EXPECT_THAT(ReadOrDrawSecret(path),
                StatusIs(StatusCode::kDataLoss, HasSubstr("delete it")));
    EXPECT_EQ(ReadFile(path), text);
  }
}

TEST(SecretTest, EqualInConstantTimeIsEquality) {
  EXPECT_TRUE(EqualInConstantTime("", ""));
  EXPECT_TRUE(EqualInConstantTime("token", "token"));
  EXPECT_FALSE(EqualInConstantTime("token", "tokem"));
  EXPECT_FALSE(EqualInConstantTime("token", "token "));
  EXPECT_FALSE(EqualInConstantTime("token", ""));
}

}  // namespace
}  // namespace flotilla
