#include "services/base/user_folder.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

TEST(UserFolderTest, FollowsTheDataFolderThenHomeThenTheAccount) {
  setenv("XDG_DATA_HOME", "/data", 1);
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(UserFolder(), "/data/flotilla");
  setenv("XDG_DATA_HOME", "", 1);
  EXPECT_EQ(UserFolder(), "/home/me/.local/share/flotilla");
  unsetenv("HOME");
  EXPECT_THAT(UserFolder(),
              testing::MatchesRegex("/.*/\\.local/share/flotilla"));
}

}  // namespace
}  // namespace flotilla
