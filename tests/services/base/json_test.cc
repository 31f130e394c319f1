#include "services/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "flotilla/v1/summary.pb.h"

namespace flotilla {
namespace {

using Members = std::map<std::string, std::string>;

TEST(JsonTest, StringsAreEscapedAndAlwaysUtf8) {
  EXPECT_EQ(FormatJson("losses/td_loss"), "\"losses/td_loss\"");
  EXPECT_EQ(FormatJson("a\"b\\c\n"), "\"a\\\"b\\\\c\\n\"");
  EXPECT_EQ(FormatJson("größe"), "\"größe\"");
  EXPECT_EQ(FormatJson("\xff!"), "\"\xef\xbf\xbd!\"");
}

TEST(JsonTest, NumbersAreExactAndNullIfNotFinite) {
  EXPECT_EQ(FormatJson(0.1), "0.1");
  EXPECT_EQ(FormatJson(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(FormatJson(std::numeric_limits<int64_t>::min()),
            "-9223372036854775808");
  EXPECT_EQ(FormatJson(std::numeric_limits<uint64_t>::max()),
            "18446744073709551615");
  EXPECT_EQ(FormatJson(std::nan("")), "null");
  EXPECT_EQ(FormatJson(-std::numeric_limits<double>::infinity()), "null");
}

TEST(JsonTest, WhatIsNoJsonIsRefusedSayingWhere) {
  for (const char* bad : {"", "{", "{\"a\":}", "[1,]", "{} {}", "nan", "1e999",
                          "\"\\q\"", "\"\xff\""}) {
    const auto parsed = ParseJson(bad);
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << bad;
  }
  EXPECT_NE(ParseJson("{\n\"a\":}").status().ToString().find("line 2"),
            std::string::npos);
}

TEST(JsonTest, AMessageKeepsItsNamesAndLeavesOutWhatIsNotSet) {
  v1::RunSummary summary;
  summary.set_status(v1::RunSummary::SOLVED);
  summary.set_global_steps(std::numeric_limits<int64_t>::max());
  summary.set_mean_return(0);  // set: it is not nothing
  summary.set_wall_seconds(std::nan(""));
  summary.mutable_restarts()->set_learner(2);
  summary.set_seed(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(FormatJson(MessageToJson(summary)),
            "{\"status\":\"solved\",\"global_steps\":9223372036854775807,"
            "\"mean_return\":0.0,\"wall_seconds\":null,"
            "\"restarts\":{\"learner\":2},\"parameters_sha256\":[],"
            "\"seed\":18446744073709551615,\"change\":[]}");
}

TEST(JsonTest, AMessageReadsBack) {
  v1::RunSummary summary;
  summary.set_status(v1::RunSummary::PREEMPTED);
  summary.set_updates(-3);
  summary.set_mean_return(1.0 / 3);
  summary.set_seed(std::numeric_limits<uint64_t>::max());
  summary.set_world_size(7);
  summary.mutable_restarts()->set_env_worker(1);
  summary.add_parameters_sha256("a");
  summary.add_parameters_sha256("b");
  for (const bool through_text : {false, true}) {
    Json json = MessageToJson(summary);
    if (through_text) json = *ParseJson(FormatJson(json));
    v1::RunSummary read;
    ASSERT_TRUE(JsonToMessage(json, &read).ok());
    EXPECT_EQ(read.DebugString(), summary.DebugString());
  }
}

TEST(JsonTest, UnknownMembersAndNullAreSkipped) {
  v1::RunSummary read;
  ASSERT_TRUE(JsonToMessage(*ParseJson(R"({"later": {"a": [1]}, "status": null,
                                           "eval_mean_return": null,
                                           "updates": 5})"),
                            &read)
                  .ok());
  EXPECT_EQ(read.updates(), 5);
  EXPECT_FALSE(read.has_eval_mean_return());
  EXPECT_FALSE(read.has_status());
}

TEST(JsonTest, AMemberOfAnotherTypeIsNamed) {
  for (const auto& [bad, name] : std::map<std::string, std::string>{
           {R"({"updates": "5"})", "updates"},
           {R"({"updates": 5.5})", "updates"},
           {R"({"updates": 9223372036854775808})", "updates"},
           {R"({"world_size": 2147483648})", "world_size"},
           {R"({"seed": -1})", "seed"},
           {R"({"mean_return": "1"})", "mean_return"},
           {R"({"status": "sorted"})", "status"},
           {R"({"env_id": 3})", "env_id"},
           {R"({"restarts": 3})", "restarts"},
           {R"({"restarts": {"learner": []}})", "learner"},
           {R"({"parameters_sha256": "a"})", "parameters_sha256"}}) {
    v1::RunSummary read;
    const absl::Status status = JsonToMessage(*ParseJson(bad), &read);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_NE(status.ToString().find("\"" + name + "\""), std::string::npos)
        << status;
  }
  v1::RunSummary read;
  EXPECT_FALSE(JsonToMessage(*ParseJson("[]"), &read).ok());
}

TEST(JsonTest, FlatObjectsReadBack) {
  const Members members = {{"update", "120"},
                           {"global_step", "9223372036854775807"},
                           {"best_return", "-inf"},
                           {"wall_seconds", "0.30000000000000004"},
                           {"note", "not \"a\" number\n"},
                           {"leading_zero", "007"},
                           {"spaces", " 1 "},
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

TEST(JsonTest, ReadsAFlatObjectWithoutMembers) {
  EXPECT_EQ(*ParseFlatJson(FormatFlatJson({})), Members());
  EXPECT_EQ(*ParseFlatJson(" {} "), Members());
}

TEST(JsonTest, AFlatObjectHoldsNothingElse) {
  for (const char* bad :
       {"", "{", "[]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{\"a\":1}x",
        "{\"a\":{}}", "{\"a\":nan}", "{\"a\":\"b}", "{a:1}", "{\"a\":\"\\q\"}",
        "{\"a\":1 \"b\":2}", "{\"a\":\"\\u1", "{\"a\":\"\\u1\"",
        "{\"a\":\"\\u0x1\"}", "{\"a\":\"\\u00", "{\"a\":null}",
        "{\"a\":true}"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseFlatJson(bad).status())) << bad;
  }
}

}  // namespace
}  // namespace flotilla
