#include "envserver/command_line.h"

#include <gtest/gtest.h>

#include "absl/flags/flag.h"

// The parser knows flags by the folder they are declared in, and this file is
// in tests/envserver/.
ABSL_FLAG(std::string, test_text, "default", "a text");
ABSL_FLAG(int, test_number, 1, "a number");
ABSL_FLAG(bool, test_switch, false, "a switch");

namespace flotilla {
namespace {

Parsed Parse(const std::vector<std::string>& arguments) {
  return ParseCommandLine("program", "usage", arguments);
}

TEST(CommandLineTest, ValuesComeAfterEqualsOrNext) {
  EXPECT_EQ(Parse({"--test_text=a=b", "--test_number", "-7"}), Parsed::kRun);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_text), "a=b");
  EXPECT_EQ(absl::GetFlag(FLAGS_test_number), -7);
  EXPECT_EQ(Parse({"--test_text="}), Parsed::kRun);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_text), "");
}

TEST(CommandLineTest, DashesAreUnderscores) {
  EXPECT_EQ(Parse({"--test-number=3"}), Parsed::kRun);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_number), 3);
}

TEST(CommandLineTest, SwitchesNeedNoValue) {
  EXPECT_EQ(Parse({"--test_switch"}), Parsed::kRun);
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_switch));
  EXPECT_EQ(Parse({"--notest_switch"}), Parsed::kRun);
  EXPECT_FALSE(absl::GetFlag(FLAGS_test_switch));
  EXPECT_EQ(Parse({"--test_switch=true"}), Parsed::kRun);
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_switch));
}

TEST(CommandLineTest, WhatIsWrongIsBadUsage) {
  EXPECT_EQ(Parse({"--test_nothing=1"}), Parsed::kBadUsage);
  EXPECT_EQ(Parse({"--notest_number"}), Parsed::kBadUsage);
  EXPECT_EQ(Parse({"--test_number=x"}), Parsed::kBadUsage);
  EXPECT_EQ(Parse({"--test_number"}), Parsed::kBadUsage);
  EXPECT_EQ(Parse({"-t"}), Parsed::kBadUsage);
  EXPECT_EQ(Parse({"stray"}), Parsed::kBadUsage);
}

TEST(CommandLineTest, HelpAndVersionEndTheProgram) {
  EXPECT_EQ(Parse({"--help"}), Parsed::kExit);
  EXPECT_EQ(Parse({"-h"}), Parsed::kExit);
  EXPECT_EQ(Parse({"--version"}), Parsed::kExit);
}

}  // namespace
}  // namespace flotilla
