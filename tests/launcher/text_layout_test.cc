#include "launcher/text_layout.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a shell makes of it.
std::string InShell(const std::string& word) {
  FILE* shell = popen(("printf '%s|' " + word).c_str(), "r");
  std::string told;
  for (int c; (c = fgetc(shell)) != EOF;) told += static_cast<char>(c);
  pclose(shell);
  return told;
}

TEST(ShellWordTest, AShellTakesItForTheOneWordThatItIs) {
  for (const std::string word :
       {"runs/cartpole_ppo-20260131-235959", "my runs/first", "it's", "$HOME",
        "a;b", "`id`", "~", "*", "a\\b", "\"x\"", "a\nb", "", "é"}) {
    EXPECT_EQ(InShell(ShellWord(word)), word + "|") << ShellWord(word);
  }
  EXPECT_EQ(ShellWord("/tmp/runs/a-1_b.c"), "/tmp/runs/a-1_b.c");
}

TEST(AppendWrappedTest, EveryWordComesOnceWhateverTheWidth) {
  const std::vector<std::string> words = {"a",       "name", "that", "goes",
                                          "further", "than", "its",  "column"};
  for (const std::string indent : {"", "  ", "          "}) {
    for (size_t width = 0; width < 60; ++width) {
      for (const size_t hang : {0, 4, 30, 134}) {
        std::string text;
        AppendWrapped(indent + absl::StrJoin(words, " "), width, hang, &text);
        const std::vector<std::string> found =
            absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
        EXPECT_EQ(found, words) << width << " " << hang;
        EXPECT_THAT(text, Not(HasSubstr("\n\n"))) << width << " " << hang;
      }
    }
  }
  std::string text;
  AppendWrapped("one two three", 8, 100, &text);
  EXPECT_EQ(text, "one two\n    three\n");
}

TEST(CutTest, CharactersStayWhole) {
  EXPECT_EQ(Cut("höst", 4), "höst");
  EXPECT_EQ(Cut("höst", 3), "hös");
  EXPECT_EQ(Cut("höst", 1), "h");
  EXPECT_EQ(Cut("höst", 0), "");
}

}  // namespace
}  // namespace flotilla
