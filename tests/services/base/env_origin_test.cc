#include "services/base/env_origin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(EnvOriginTest, NothingMeansOurOwnProgram) {
  EXPECT_EQ(ParseEnvOrigin("")->kind, EnvOrigin::Kind::kOwn);
}

TEST(EnvOriginTest, ACommandIsTakenApart) {
  const auto origin = ParseEnvOrigin("exec:python3 'my server.py' --size=8");
  ASSERT_TRUE(origin.ok()) << origin.status();
  EXPECT_EQ(origin->kind, EnvOrigin::Kind::kProgram);
  EXPECT_THAT(origin->command,
              ElementsAre("python3", "my server.py", "--size=8"));
}

TEST(EnvOriginTest, AnAddressIsKept) {
  for (const char* address : {"unix:/run/env.sock", "node7:5000", "[::1]:1"}) {
    const auto origin = ParseEnvOrigin(address);
    ASSERT_TRUE(origin.ok()) << origin.status();
    EXPECT_EQ(origin->kind, EnvOrigin::Kind::kRunning);
    EXPECT_EQ(origin->address, address);
  }
}

TEST(EnvOriginTest, AnythingElseSaysWhatCanBeThere) {
  for (const char* server :
       {"python3 server.py", "./server", "exec", "unix:", ":5000",
        "host:", "host:port", "host:-1", "http://host:80", "a b:80"}) {
    const auto origin = ParseEnvOrigin(server);
    EXPECT_EQ(origin.status().code(), absl::StatusCode::kInvalidArgument)
        << server;
    EXPECT_THAT(std::string(origin.status().message()),
                HasSubstr("unix:PATH or HOST:PORT"));
  }
}

TEST(SplitWordsTest, QuotesAndBackslashesKeepWordsTogether) {
  EXPECT_THAT(*SplitWords(R"(a  "b c"'d e' f\ g "h\"i\n" '\')"),
              ElementsAre("a", "b cd e", "f g", "h\"i\\n", "\\"));
  EXPECT_THAT(*SplitWords(" \t\n"), IsEmpty());
  EXPECT_THAT(*SplitWords("'' x"), ElementsAre("", "x"));
  EXPECT_THAT(*SplitWords("$HOME ~ *"), ElementsAre("$HOME", "~", "*"));
  EXPECT_FALSE(SplitWords("a \"b").ok());
}

}  // namespace
}  // namespace flotilla
