#include "launcher/text_layout.h"

#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

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

}  // namespace
}  // namespace flotilla
