#include "services/base/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>

namespace flotilla {
namespace {

using Members = std::map<std::string, std::string>;

TEST(JsonTest, StringsAreQuotedAndEscaped) {
  EXPECT_EQ(JsonString("losses/td_loss"), "\"losses/td_loss\"");
  EXPECT_EQ(JsonString("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
  EXPECT_EQ(JsonString("größe"), "\"größe\"");
}

TEST(JsonTest, NumbersAreShortAndExact) {
  EXPECT_EQ(JsonNumber(0.1), "0.1");
  EXPECT_EQ(JsonNumber(-3), "-3");
  EXPECT_EQ(JsonNumber(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(JsonNumber(std::numeric_limits<double>::infinity()), "null");
}

TEST(JsonTest, FlatObjectsReadBackDigitByDigit) {
  const Members members = {{"update", "120"},
                           {"global_step", "9223372036854775807"},
                           {"best_return", "-1.0000000000000001e+300"},
                           {"note", "not \"a\" number\n"},
                           {"leading_zero", "007"},
                           {"empty", ""}};
  const std::string json = FormatFlatJson(members);
  EXPECT_NE(json.find("\"global_step\": 9223372036854775807"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find("\"leading_zero\": \"007\""), std::string::npos) << json;
  const auto parsed = ParseFlatJson(json);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, members);
}

TEST(JsonTest, ReadsAnObjectWithoutMembers) {
  EXPECT_EQ(*ParseFlatJson(FormatFlatJson({})), Members());
  EXPECT_EQ(*ParseFlatJson(" {} "), Members());
}

TEST(JsonTest, RefusesEverythingElse) {
  for (const char* bad :
       {"", "{", "[]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{\"a\":1}x",
        "{\"a\":{}}", "{\"a\":nan}", "{\"a\":\"b}", "{a:1}", "{\"a\":\"\\q\"}",
        "{\"a\":1 \"b\":2}", "{\"a\":\"\\u1", "{\"a\":\"\\u1\"",
        "{\"a\":\"\\u0x1\"}", "{\"a\":\"\\u00"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseFlatJson(bad).status())) << bad;
  }
}

}  // namespace
}  // namespace flotilla
