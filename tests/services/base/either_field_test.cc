#include "services/base/either_field.h"

#include <google/protobuf/text_format.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/config.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kByUpdates[] = "ppo {} total_updates: 7";
constexpr char kBySteps[] = "ppo {} total_env_steps: 512";

absl::StatusOr<v1::RunConfig> Load(const std::string& text,
                                   const std::vector<std::string>& overrides) {
  const TempDir temp;
  WriteFile(temp / "config.textproto", text);
  return LoadValidRunConfig(temp / "config.textproto", overrides);
}

TEST(EitherFieldTest, SettingBothIsAnErrorThatNamesBoth) {
  const auto steps = Load("ppo {}\ntotal_env_steps: 5\ntotal_updates: 7\n", {});
  EXPECT_THAT(std::string(steps.status().message()),
              AllOf(HasSubstr("config.textproto:3:1: total_updates is set, and "
                              "so is total_env_steps"),
                    HasSubstr("set one of them")));
  const auto saves = Load(
      "ppo {} checkpoint { count: 3 every_updates: 2 every_seconds: 60 }", {});
  EXPECT_THAT(std::string(saves.status().message()),
              AllOf(HasSubstr("checkpoint.count is set, and so is "
                              "checkpoint.every_updates"),
                    HasSubstr("so is checkpoint.every_seconds")));
  const auto old_name =
      Load("ppo {} runtime { bf16: true precision: FP32 }", {});
  EXPECT_THAT(std::string(old_name.status().message()),
              HasSubstr("runtime.bf16 is set, and so is runtime.precision"));
  const auto flags = Load("ppo {}", {"total_updates=7", "total_env_steps=5"});
  EXPECT_THAT(std::string(flags.status().message()),
              HasSubstr("--set total_updates=7: total_updates is set"));
}

TEST(EitherFieldTest, OneOfThemOrNoneIsFine) {
  for (const char* text :
       {"ppo {}", kByUpdates, kBySteps, "ppo {} checkpoint { count: 3 }",
        "ppo {} checkpoint { every_updates: 3 every_seconds: 0 }"}) {
    EXPECT_TRUE(Load(text, {}).ok()) << text;
  }
}

TEST(EitherFieldTest, AFlagIsUsedInsteadOfWhatTheFileSays) {
  auto config = Load(kBySteps, {"total_updates=9"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->total_updates(), 9);
  EXPECT_FALSE(config->has_total_env_steps());
  config = Load(kByUpdates, {"total_env_steps=9"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->has_total_updates());
  config = Load("ppo {} checkpoint { every_updates: 3 keep: 9 }",
                {"checkpoint.count=2"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->checkpoint().has_every_updates());
  EXPECT_EQ(config->checkpoint().keep(), 9);
}

TEST(EitherFieldTest, ADefaultThatSaysNothingIsNotWrittenOut) {
  const auto config =
      Load("ppo {} total_updates: 7 checkpoint { count: 3 }", {});
  ASSERT_TRUE(config.ok()) << config.status();
  const std::string text = FormatResolved(*config);
  EXPECT_THAT(text,
              AllOf(HasSubstr("total_updates: 7"), HasSubstr("count: 3"),
                    HasSubstr("keep: 3"), Not(HasSubstr("total_env_steps")),
                    Not(HasSubstr("every_seconds"))));
  // The run's own file can be read again.
  EXPECT_TRUE(Load(text, {}).ok()) << Load(text, {}).status();
  EXPECT_THAT(
      FormatResolved(*Load("ppo {}", {})),
      AllOf(HasSubstr("total_env_steps: 500000"),
            HasSubstr("every_seconds: 60"), Not(HasSubstr("total_updates"))));
}

}  // namespace
}  // namespace flotilla
