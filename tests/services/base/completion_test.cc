#include "services/base/completion.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/manual.h"

namespace flotilla {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CompletionTest : public testing::Test {
 protected:
  CompletionTest() : line_("flotilla test CONFIG [RUN...] [flags]", "Tests.") {
    line_.Text("--run-dir", "DIR", "a folder", &text_);
    line_.Switch("--dry-run", "a switch", &dry_run_);
    line_.List("--set", "PATH=VALUE", "a list", &sets_);
    line_.Text("--learners", "N|auto|gpu", "how many", &text_);
    line_.OptionalText(
        "--resume", "latest|PATH", "an optional value", "latest",
        [](const std::string& text) { return text == "x/y"; }, &text_);
  }

  // The words alone, and what the shell adds as the last.
  std::vector<std::string> Offered(const std::vector<std::string>& words) {
    const Completion completion =
        Complete(line_, words, [](const std::string& name, const std::string&) {
          return Completion{.words = {{"some " + name}}};
        });
    std::vector<std::string> texts;
    for (const Completion::Word& word : completion.words) {
      texts.push_back(word.text);
    }
    if (completion.paths == Completion::Paths::kFolders) {
      texts.push_back("(folders)");
    } else if (completion.paths == Completion::Paths::kFiles) {
      texts.push_back("(files)");
    }
    return texts;
  }

  CommandLine line_;
  std::optional<std::string> text_;
  bool dry_run_ = false;
  std::vector<std::string> sets_;
};

TEST_F(CompletionTest, ArgumentsAreThoseOfTheUsage) {
  EXPECT_THAT(Offered({""}), ElementsAre("some CONFIG"));
  EXPECT_THAT(Offered({"a", ""}), ElementsAre("some RUN"));
  EXPECT_THAT(Offered({"a", "b", "c", ""}), ElementsAre("some RUN"));
  EXPECT_THAT(Offered({"--dry-run", ""}), ElementsAre("some CONFIG"));
  EXPECT_THAT(Offered({"--set", "a=b", ""}), ElementsAre("some CONFIG"));
  EXPECT_THAT(Offered({"--set=a=b", "x", ""}), ElementsAre("some RUN"));
}

TEST_F(CompletionTest, ValuesFollowTheirFlags) {
  EXPECT_THAT(Offered({"--set", ""}), ElementsAre("some PATH=VALUE"));
  EXPECT_THAT(Offered({"--set="}), ElementsAre("--set=some PATH=VALUE"));
  EXPECT_THAT(Offered({"--learners", "a"}),
              ElementsAre("some N", "auto", "gpu"));
  EXPECT_THAT(Offered({"--run-dir", ""}), ElementsAre("(folders)"));
  EXPECT_THAT(Offered({"--run_dir", ""}), ElementsAre("(folders)"));
  EXPECT_THAT(Offered({"--resume", ""}),
              ElementsAre("latest", "some CONFIG", "(files)"));
  EXPECT_THAT(Offered({"--nonsense", ""}), ElementsAre("some CONFIG"));
  EXPECT_THAT(Offered({"--nonsense="}), IsEmpty());
  EXPECT_THAT(Offered({}), IsEmpty());
}

TEST_F(CompletionTest, ADashAsksForFlags) {
  EXPECT_THAT(Offered({"--"}), ElementsAre("--run-dir", "--dry-run", "--set",
                                           "--learners", "--resume", "--help"));
  EXPECT_THAT(Offered({"--", "--"}), ElementsAre("some CONFIG"));
}

TEST_F(CompletionTest, ShellsGetWhatBeginsAsItWasTyped) {
  EXPECT_EQ(AnswerCompletion(line_, {"__complete", "--r"}, nullptr),
            "--run-dir\ta folder\n--resume\tan optional value\n:words\n");
  EXPECT_EQ(AnswerCompletion(line_, {"__complete", "--run-dir", "x"}, nullptr),
            ":folders\n");
  EXPECT_EQ(AnswerCompletion(line_, {"__complete"}, nullptr), ":words\n");
  EXPECT_EQ(AnswerCompletion(line_, {"--run-dir", "x"}, nullptr), std::nullopt);
}

TEST_F(CompletionTest, TheManualHasEveryFlag) {
  const std::string part =
      AnswerManual(line_, {"__manual"}).value_or("no answer");
  EXPECT_THAT(part, HasSubstr(".SS flotilla test CONFIG [RUN...] [flags]\n"));
  EXPECT_THAT(
      part, HasSubstr(".TP\n\\fB\\-\\-run\\-dir\\fR \\fIDIR\\fR\na folder\n"));
  EXPECT_EQ(Roff("a\\b\n.SH x\n'y"), "a\\eb\n\\&.SH x\n\\&'y");
}

}  // namespace
}  // namespace flotilla
