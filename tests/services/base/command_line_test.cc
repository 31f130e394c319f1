#include "services/base/command_line.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CommandLineTest : public testing::Test {
 protected:
  CommandLineTest() : line_("flotilla test ARG", "Tests.") {
    line_.Text("--run-dir", "DIR", "a folder", &run_dir_);
    line_.Switch("--dry-run", "a switch", &dry_run_);
    line_.Int("--max-restarts", "N", 0, "a number", &number_);
    line_.List("--set", "PATH=VALUE", "a list", &sets_);
    line_.Choice("--progress", {"auto", "plain"}, "a choice", &progress_);
    line_.OptionalText(
        "--resume", "latest|PATH", "an optional value", "latest",
        [](const std::string& text) { return text == "x/y"; }, &resume_);
    line_.Alias("--folder", "--run-dir");
  }

  std::string Error(const std::vector<std::string>& arguments) {
    const auto parsed = line_.Parse(arguments);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(parsed.status().message());
  }

  CommandLine line_;
  std::optional<std::string> run_dir_, resume_;
  bool dry_run_ = false;
  std::optional<int> number_;
  std::vector<std::string> sets_;
  std::string progress_;
};

TEST_F(CommandLineTest, TakesBothFormsInAnyOrder) {
  const auto rest = line_.Parse(
      {"--run-dir", "a", "config", "--max-restarts=3", "--dry-run"});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_THAT(*rest, ElementsAre("config"));
  EXPECT_EQ(run_dir_, "a");
  EXPECT_EQ(number_, 3);
  EXPECT_TRUE(dry_run_);
}

TEST_F(CommandLineTest, HyphensAndUnderscoresAreAlike) {
  ASSERT_TRUE(
      line_.Parse({"--run_dir=a", "--dry_run", "--max_restarts", "0"}).ok());
  EXPECT_EQ(run_dir_, "a");
  EXPECT_TRUE(dry_run_);
  EXPECT_EQ(number_, 0);
}

TEST_F(CommandLineTest, ValuesKeepTheirEqualsSignsAndUnderscores) {
  ASSERT_TRUE(line_.Parse({"--set", "a.b_c=1=2", "--set=d=3"}).ok());
  EXPECT_THAT(sets_, ElementsAre("a.b_c=1=2", "d=3"));
}

TEST_F(CommandLineTest, AnOptionalValueIsTakenOnlyIfItIsOne) {
  const auto rest = line_.Parse({"--resume", "config"});
  ASSERT_TRUE(rest.ok());
  EXPECT_THAT(*rest, ElementsAre("config"));
  EXPECT_EQ(resume_, "latest");
  EXPECT_THAT(*line_.Parse({"--resume", "x/y"}), IsEmpty());
  EXPECT_EQ(resume_, "x/y");
  ASSERT_TRUE(line_.Parse({"--resume=z"}).ok());
  EXPECT_EQ(resume_, "z");
  ASSERT_TRUE(line_.Parse({"--resume"}).ok());
  EXPECT_EQ(resume_, "latest");
}

TEST_F(CommandLineTest, ASwitchMayBeTurnedOff) {
  ASSERT_TRUE(line_.Parse({"--dry-run", "--dry-run=false"}).ok());
  EXPECT_FALSE(dry_run_);
  EXPECT_THAT(Error({"--dry-run=perhaps"}),
              HasSubstr("expected true or false"));
}

TEST_F(CommandLineTest, AfterTwoHyphensEverythingIsAnArgument) {
  EXPECT_THAT(*line_.Parse({"a", "--", "--run-dir", "--help"}),
              ElementsAre("a", "--run-dir", "--help"));
  EXPECT_FALSE(line_.help_asked());
}

TEST_F(CommandLineTest, AnUnknownFlagNamesTheNearest) {
  EXPECT_EQ(Error({"--max-restart", "3"}),
            "there is no flag --max-restart; did you mean --max-restarts?");
  EXPECT_EQ(Error({"--foldr"}),
            "there is no flag --foldr; did you mean --run-dir?");
  EXPECT_EQ(Error({"-x"}), "there is no flag -x");
}

TEST_F(CommandLineTest, AMissingOrWrongValueNamesTheFlag) {
  EXPECT_EQ(Error({"--run-dir"}), "--run-dir needs a value: --run-dir DIR");
  EXPECT_EQ(Error({"--run-dir", "--dry-run"}),
            "--run-dir needs a value: --run-dir DIR");
  EXPECT_THAT(Error({"--run-dir="}), HasSubstr("--run-dir is \"\""));
  EXPECT_EQ(Error({"--max-restarts", "many"}),
            "--max-restarts is \"many\"; expected an integer of at least 0");
  EXPECT_THAT(Error({"--max-restarts=-1"}), HasSubstr("at least 0"));
  EXPECT_EQ(Error({"--progress", "pain"}),
            "--progress is \"pain\"; expected one of auto, plain; did you mean "
            "\"plain\"?");
}

TEST_F(CommandLineTest, ChoicesComeInAnyCase) {
  ASSERT_TRUE(line_.Parse({"--progress", "Plain"}).ok());
  EXPECT_EQ(progress_, "plain");
}

TEST_F(CommandLineTest, AnAliasSetsTheSameValue) {
  ASSERT_TRUE(line_.Parse({"--folder", "b"}).ok());
  EXPECT_EQ(run_dir_, "b");
}

TEST_F(CommandLineTest, HelpWinsOverMistakes) {
  ASSERT_TRUE(line_.Parse({"--nonsense", "--help"}).ok());
  EXPECT_TRUE(line_.help_asked());
  EXPECT_THAT(line_.Help(), HasSubstr("usage: flotilla test ARG"));
  EXPECT_THAT(line_.Help(), HasSubstr("--progress auto|plain"));
  EXPECT_THAT(line_.Help(), HasSubstr("--resume [latest|PATH]"));
}

class ParseFlagsTest : public testing::Test {
 protected:
  std::optional<int> Parse(std::vector<const char*> words) {
    words.insert(words.begin(), "program");
    CommandLine line("program [flags]", "Does it.");
    line.Text("--text", "TEXT", "a text", &text_);
    line.Int("--count", "N", 1, "a count", &count_);
    line.Int("--total", "N", 0, "a total", &total_);
    line.Number("--seconds", "S", "a time", &seconds_);
    line.Switch("--switch", "a switch", &switch_);
    return ParseFlags("program", static_cast<int>(words.size()), words.data(),
                      &line);
  }

  std::string text_;
  int count_ = 1;
  int64_t total_ = 0;
  double seconds_ = 0;
  bool switch_ = false;
};

TEST_F(ParseFlagsTest, FillsWhatWasGivenAndGoesOn) {
  EXPECT_EQ(Parse({"--text=a=b", "--count", "7", "--total=5000000000",
                   "--seconds=-0.5", "--switch"}),
            std::nullopt);
  EXPECT_EQ(text_, "a=b");
  EXPECT_EQ(count_, 7);
  EXPECT_EQ(total_, 5'000'000'000);
  EXPECT_EQ(seconds_, -0.5);
  EXPECT_TRUE(switch_);
}

TEST_F(ParseFlagsTest, WhatIsWrongEndsWithTwoAndIsNamed) {
  const std::pair<std::vector<const char*>, std::string> wrong[] = {
      {{"--tex=x"}, "there is no flag --tex; did you mean --text?"},
      {{"--count=0"}, "--count is \"0\"; expected an integer of at least 1"},
      {{"--count=x"}, "--count is \"x\""},
      {{"--total=9223372036854775808"}, "--total is"},
      {{"--seconds=nan"}, "--seconds is \"nan\"; expected a number"},
      {{"--text"}, "--text needs a value: --text TEXT"},
      {{"stray"}, "unexpected argument \"stray\""},
  };
  for (const auto& [words, message] : wrong) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(Parse(words), 2);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("program: " + message));
  }
}

TEST_F(ParseFlagsTest, HelpAndVersionEndTheProgram) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(Parse({"--help"}), 0);
  EXPECT_EQ(Parse({"--count=wrong", "-h"}), 0);
  EXPECT_EQ(Parse({"--version"}), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              testing::AllOf(HasSubstr("--seconds S"), HasSubstr("program ")));
}

}  // namespace
}  // namespace flotilla
