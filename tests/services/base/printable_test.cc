#include "services/base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace flotilla {
namespace {

TEST(PrintableTest, WordsStayAsTheyAre) {
  for (const char* text : {"", "plain words", "Größe, 漢字, 🚢"}) {
    EXPECT_EQ(PrintableLine(text), text);
    EXPECT_EQ(PrintableText(text), text);
  }
}

TEST(PrintableTest, NothingMovesTheCursorOrColoursTheTerminal) {
  EXPECT_EQ(PrintableLine("\x1b[31mred\x07\x7f"), "\\x1b[31mred\\x07\\x7f");
  EXPECT_EQ(PrintableLine(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(PrintableText("over\rwritten"), "over\\x0dwritten");
  // The one-byte escape of C1, and text that runs backwards.
  EXPECT_EQ(PrintableText("\xc2\x9b"), "\\xc2\\x9b");
  EXPECT_EQ(PrintableText("\xe2\x80\xae"), "\\xe2\\x80\\xae");
}

TEST(PrintableTest, WhatIsNoCharacterIsEscapedByteByByte) {
  EXPECT_EQ(PrintableLine("\xff"), "\\xff");
  EXPECT_EQ(PrintableLine("\xc3"), "\\xc3");           // cut off
  EXPECT_EQ(PrintableLine("\xc0\xaf"), "\\xc0\\xaf");  // longer than need be
  EXPECT_EQ(PrintableLine("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(PrintableLine("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
}

TEST(PrintableTest, ALineIsOneLineAndATextKeepsItsOwn) {
  EXPECT_EQ(PrintableLine("\n a\n\t b \r\n"), "a b");
  EXPECT_EQ(PrintableText("a\n\tb\n"), "a\n\tb\n");
}

TEST(PrintableTest, WhatIsLongIsCutBetweenCharactersAndSaysSo) {
  EXPECT_EQ(PrintableLine("12345", 5), "12345");
  EXPECT_EQ(PrintableLine("123456", 5), "12345... (6 bytes in all)");
  EXPECT_EQ(PrintableLine("123ä", 4), "123... (5 bytes in all)");
  EXPECT_EQ(PrintableText("1\x1b", 4), "1... (2 bytes in all)");
  EXPECT_LT(PrintableText(std::string(1 << 20, '\x1b')).size(), 8192u + 64);
}

}  // namespace
}  // namespace flotilla
