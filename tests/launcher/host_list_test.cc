#include "launcher/host_list.h"

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

std::string Parsed(const std::string& list) {
  const auto hosts = ParseHostList(list);
  return hosts.ok() ? absl::StrJoin(*hosts, " ")
                    : std::string(hosts.status().message());
}

TEST(HostListTest, TakesPlainNames) {
  EXPECT_EQ(Parsed("n1"), "n1");
  EXPECT_EQ(Parsed("n1,login.example.org"), "n1 login.example.org");
}

TEST(HostListTest, ExpandsRangesAndKeepsLeadingZeros) {
  EXPECT_EQ(Parsed("n[1-3]"), "n1 n2 n3");
  EXPECT_EQ(Parsed("gpu[01-03,7],login"), "gpu01 gpu02 gpu03 gpu7 login");
  EXPECT_EQ(Parsed("n[098-101]"), "n098 n099 n100 n101");
  EXPECT_EQ(Parsed("n[5]x"), "n5x");
}

TEST(HostListTest, CombinesSeveralRanges) {
  EXPECT_EQ(Parsed("rack[0-1]n[1-2]"), "rack0n1 rack0n2 rack1n1 rack1n2");
}

TEST(HostListTest, QuotesAMalformedList) {
  for (const char* list : {"", "n[1-3", "n1]", "n[3-1]", "n[a-b]", "n[]",
                           "n[1-]", "n1,,n2", "n[1[2]]", "n[1-99999999]"}) {
    const auto hosts = ParseHostList(list);
    EXPECT_EQ(hosts.status().code(), absl::StatusCode::kInvalidArgument)
        << list;
    EXPECT_THAT(std::string(hosts.status().message()),
                testing::HasSubstr(std::string("\"") + list + "\""));
  }
}

TEST(HostListTest, RefusesMoreHostsThanMemoryHolds) {
  EXPECT_FALSE(ParseHostList("a[1-9999]b[1-9999]").ok());
  EXPECT_FALSE(ParseHostList("a[1-60000,1-60000]").ok());
  EXPECT_FALSE(ParseHostList("a[1-60000],b[1-60000]").ok());
  EXPECT_FALSE(ParseHostList(std::string(300, 'n') + "[1-60000]").ok());
  EXPECT_FALSE(ParseHostList("n[" + std::string(300, '0') + "1]").ok());
}

TEST(HostListTest, CountsToTheLastNumberThereIs) {
  EXPECT_EQ(Parsed("n[18446744073709551614-18446744073709551615]"),
            "n18446744073709551614 n18446744073709551615");
}

}  // namespace
}  // namespace flotilla
