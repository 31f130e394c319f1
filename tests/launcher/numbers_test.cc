#include "launcher/numbers.h"

#include "gtest/gtest.h"

namespace flotilla {
namespace {

TEST(NumbersTest, CommasSeparateThousands) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(12345678), "12,345,678");
  EXPECT_EQ(WithCommas(-123456), "-123,456");
}

TEST(NumbersTest, BriefKeepsThreeDigits) {
  EXPECT_EQ(Brief(0), "0");
  EXPECT_EQ(Brief(999), "999");
  EXPECT_EQ(Brief(3210), "3.2k");
  EXPECT_EQ(Brief(1e6), "1.00M");
  EXPECT_EQ(Brief(2.5e9), "2.50G");
}

TEST(NumbersTest, SecondsAreBrief) {
  EXPECT_EQ(BriefSeconds(0.4), "0s");
  EXPECT_EQ(BriefSeconds(-3), "0s");
  EXPECT_EQ(BriefSeconds(59.4), "59s");
  EXPECT_EQ(BriefSeconds(65), "1m05s");
  EXPECT_EQ(BriefSeconds(7380), "2h03m");
  EXPECT_EQ(BriefSeconds(273600), "3d04h");
}

}  // namespace
}  // namespace flotilla
