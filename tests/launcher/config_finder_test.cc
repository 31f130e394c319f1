#include "launcher/config_finder.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
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

TEST_F(ConfigFinderTest, APartOfSeveralNamesListsThem) {
  EXPECT_THAT(Error("cartpol"),
              HasSubstr("; did you mean \"cartpole_ppo\"? ("));
  WriteFile(temp_ / "cartpole_dqn.textproto", "dqn {}\n");
  EXPECT_THAT(
      Error("CartPole"),
      HasSubstr("; did you mean \"cartpole_dqn\", \"cartpole_ppo\"? ("));
  for (const char* name : {"1_ppo", "2_ppo", "3_ppo", "4_ppo", "5_ppo"}) {
    WriteFile(temp_ / name + ".textproto", "ppo {}\n");
  }
  EXPECT_THAT(Error("ppo"),
              HasSubstr("; did you mean \"1_ppo\", \"2_ppo\", \"3_ppo\", "
                        "\"4_ppo\", \"5_ppo\", ...? ("));
}

TEST_F(ConfigFinderTest, AnEnvironmentIsNoConfiguration) {
  WriteFile(temp_ / "maze_ppo.textproto", "ppo {} env { id: \"Maze\" }\n");
  WriteFile(temp_ / "pong_ppo.textproto",
            "ppo {} env { id: \"ALE/Pong-v5\" }\n");
  WriteFile(temp_ / "taxi_ppo.textproto",
            "ppo {} env { id: \"gym:Taxi-v4\" }\n");
  EXPECT_EQ(
      Error("CartPole-v1"),
      "there is no configuration \"CartPole-v1\"; that is an environment: "
      "`flotilla train CONFIG --env CartPole-v1`, where CONFIG may be "
      "\"a_dqn\", \"cartpole_ppo\" (`flotilla configs` lists them; a path "
      "names a file)");
  const std::pair<const char*, const char*> ids[] = {
      {"cartpole-v1", "CartPole-v1"}, {"Maze", "Maze"},
      {"ALE/Pong-v5", "ALE/Pong-v5"}, {"Pong-v5", "ALE/Pong-v5"},
      {"gym:Taxi-v4", "gym:Taxi-v4"}, {"Taxi-v4", "gym:Taxi-v4"},
  };
  for (const auto& [word, id] : ids) {
    EXPECT_THAT(Error(word),
                HasSubstr(absl::StrCat("that is an environment: `flotilla "
                                       "train CONFIG --env ",
                                       id, "`, where")))
        << word;
  }
  EXPECT_THAT(Error("maze"), HasSubstr("did you mean \"maze_ppo\"?"));
  for (const std::string word : {"Hopper-v4", "ALE/Qbert-v5"}) {
    EXPECT_THAT(Error(word),
                HasSubstr("that looks like an environment: `flotilla train "
                          "CONFIG --env " +
                          word + "`"));
  }
  EXPECT_THAT(Error(temp_ / "mine-v2"), HasSubstr("no configuration file"));
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
