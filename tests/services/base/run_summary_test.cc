#include "services/base/run_summary.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RunSummaryTest, ReadsWhatItWrote) {
  const TempDir temp;
  v1::RunSummary summary;
  summary.set_status(v1::RunSummary::FAILED);
  summary.set_env_id("gym:\"quoted\"");
  summary.set_global_steps((int64_t{1} << 53) + 1);
  summary.set_error("line 1\nline 2");
  ASSERT_TRUE(WriteRunSummary(temp / "summary.json", summary).ok());
  const auto read = ReadRunSummary(temp / "summary.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->DebugString(), summary.DebugString());
  EXPECT_THAT(ReadFile(temp / "summary.json"),
              AllOf(HasSubstr("\n  \"status\": \"failed\",\n"),
                    HasSubstr("\"global_steps\": 9007199254740993,")));
}

// As versions before this message existed wrote it.
TEST(RunSummaryTest, ReadsOlderFiles) {
  const TempDir temp;
  WriteFile(temp / "summary.json", R"({
 "status": "solved", "env_id": "CartPole-v1", "world_size": 2,
 "eval_mean_return": null, "restarts": {"learner": 1, "env_worker": 0}})");
  const auto read = ReadRunSummary(temp / "summary.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->status(), v1::RunSummary::SOLVED);
  EXPECT_FALSE(read->has_eval_mean_return());
  EXPECT_EQ(read->restarts().learner(), 1);
}

TEST(RunSummaryTest, AMissingOrBrokenFileIsNamed) {
  const TempDir temp;
  EXPECT_EQ(ReadRunSummary("/no/file").status().code(),
            absl::StatusCode::kNotFound);
  for (const char* bad : {"", "{", "[]", "{\"updates\": \"many\"}"}) {
    WriteFile(temp / "broken", bad);
    const auto broken = ReadRunSummary(temp / "broken");
    EXPECT_EQ(broken.status().code(), absl::StatusCode::kDataLoss) << bad;
    EXPECT_THAT(std::string(broken.status().message()), HasSubstr("broken"));
  }
}

}  // namespace
}  // namespace flotilla
