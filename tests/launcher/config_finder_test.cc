#include "launcher/config_finder.h"

#include <cstdlib>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::HasSubstr;

class ConfigFinderTest : public testing::Test {
 protected:
  ConfigFinderTest() {
    setenv("FLOTILLA_CONFIG_DIR", temp_.path().c_str(), 1);
    WriteFile(temp_ / "cartpole_ppo.textproto",
              "# PPO on CartPole-v1, as\n# CleanRL. And more.\n\nppo {}\n");
    WriteFile(temp_ / "a_dqn.textproto", "dqn {}\n");
    WriteFile(temp_ / "README.md", "not one");
  }
  ~ConfigFinderTest() override { unsetenv("FLOTILLA_CONFIG_DIR"); }

  std::string Error(const std::string& config) {
    const auto found = FindConfig(config);
    EXPECT_FALSE(found.ok());
    return std::string(found.status().message());
  }

  TempDir temp_;
};

TEST_F(ConfigFinderTest, ListsByNameWithTheFirstSentence) {
  const auto configs = ShippedConfigs();
  ASSERT_TRUE(configs.ok()) << configs.status();
  ASSERT_EQ(configs->size(), 2);
  EXPECT_EQ((*configs)[0].name, "a_dqn");
  EXPECT_EQ((*configs)[0].about, "");
  EXPECT_EQ((*configs)[1].name, "cartpole_ppo");
  EXPECT_EQ((*configs)[1].about, "PPO on CartPole-v1, as CleanRL");
}

TEST_F(ConfigFinderTest, FindsANameWithOrWithoutItsExtension) {
  const auto path = FindConfig("cartpole_ppo");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_TRUE(
      std::filesystem::equivalent(*path, temp_ / "cartpole_ppo.textproto"));
  EXPECT_EQ(FindConfig("cartpole_ppo.textproto").value(), *path);
}

TEST_F(ConfigFinderTest, FindsAFile) {
  EXPECT_EQ(FindConfig(temp_ / "README.md").value(), temp_ / "README.md");
}

TEST_F(ConfigFinderTest, SaysWhatIsMissingAndWhatIsNear) {
  EXPECT_THAT(Error("cartpole_pop"),
              HasSubstr("did you mean \"cartpole_ppo\""));
  EXPECT_THAT(Error("zebra"), HasSubstr("`flotilla configs` lists them"));
  EXPECT_THAT(Error("./zebra"), HasSubstr("no configuration file ./zebra"));
  EXPECT_THAT(Error(temp_.path()), HasSubstr("is a folder"));
}

TEST_F(ConfigFinderTest, ARunsFolderIsPointedToResume) {
  WriteFile(temp_ / "config.textproto", "");
  EXPECT_THAT(Error(temp_.path()), HasSubstr("--resume --run-dir"));
}

TEST_F(ConfigFinderTest, AMissingFolderIsNamed) {
  setenv("FLOTILLA_CONFIG_DIR", "/no/such/folder", 1);
  EXPECT_THAT(Error("cartpole_ppo"), HasSubstr("/no/such/folder"));
}

TEST_F(ConfigFinderTest, ARunIsNamedAfterTheFile) {
  EXPECT_EQ(ConfigName("a/b/cartpole_ppo.textproto"), "cartpole_ppo");
}

}  // namespace
}  // namespace flotilla
