#include "services/base/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TextFileTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& text) {
    std::ofstream(folder_ / "file") << text;
    return folder_ / "file";
  }

  TempDir folder_;
};

TEST_F(TextFileTest, GivesLinesFromBothEnds) {
  const std::string path = Write("one\ntwo\nthree\n");
  EXPECT_EQ(FirstLine(path), "one");
  EXPECT_THAT(LastLines(path, 2), ElementsAre("two", "three"));
  EXPECT_THAT(LastLines(path, 9), ElementsAre("one", "two", "three"));
  EXPECT_EQ(LastLine(path), "three");
}

TEST_F(TextFileTest, LastLineIsNotEmpty) {
  EXPECT_EQ(LastLine(Write("one\ntwo\n\n\n")), "two");
  EXPECT_EQ(LastLine(Write("\n\n")), "");
  EXPECT_EQ(LastLine(Write("no end")), "no end");
}

TEST_F(TextFileTest, LooksAtTheEndOfAHugeFileOnly) {
  const std::string path = Write(std::string(1 << 20, 'x') + "\nlast\n");
  EXPECT_EQ(LastLine(path), "last");
  EXPECT_LE(LastLines(path, 5).front().size(), 8192u);
}

// A program may print faster than its log is read.
TEST_F(TextFileTest, LooksNoFurtherThanTheEndAsItWas) {
  EXPECT_THAT(LastLines("/dev/zero", 5), IsEmpty());
  EXPECT_EQ(FirstBytes("/dev/zero", 9).size(), 9u);
  EXPECT_EQ(FirstBytes(Write("one\n"), 9), "one\n");
}

TEST_F(TextFileTest, IsEmptyWhereThereIsNothing) {
  EXPECT_EQ(FirstLine("/no/such/file"), "");
  EXPECT_EQ(LastLine("/no/such/file"), "");
  EXPECT_THAT(LastLines("/no/such/file", 3), IsEmpty());
  EXPECT_EQ(FirstLine(Write("")), "");
}

}  // namespace
}  // namespace flotilla
