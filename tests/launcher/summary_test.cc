#include "launcher/summary.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSummary[] = R"({
  "status": "solved", "env_id": "CartPole-v1", "algorithm": "ppo",
  "world_size": 2, "global_steps": 212992, "updates": 52, "episodes": 1234,
  "mean_return": 441.5, "eval_mean_return": 487.25, "wall_seconds": 35.21,
  "steps_per_second": 6050.3, "restarts": {"learner": 1, "env_worker": 0},
  "parameters_sha256": ["abcdef0123456789", "abcdef0123456789"]})";

class SummaryTest : public testing::Test {
 protected:
  std::string Describe(const std::string& json) {
    WriteFile(temp_ / "summary.json", json);
    const auto summary = ReadJson(temp_ / "summary.json");
    EXPECT_TRUE(summary.ok()) << summary.status();
    return summary.ok() ? DescribeSummary(*summary) : "";
  }
  TempDir temp_;
};

TEST_F(SummaryTest, TellsTheResult) {
  EXPECT_EQ(Describe(kSummary),
            "solved: ppo on CartPole-v1\n"
            "  evaluation return 487.2\n"
            "  training return 441.5 (last 100 of 1,234 episodes)\n"
            "  212,992 steps, 52 updates, 35.2 s, 6,050 steps/s, world of 2\n"
            "  restarts: 1 learners, 0 env workers\n"
            "  parameters equal on all 2 ranks (sha256 abcdef012345)\n");
}

TEST_F(SummaryTest, SaysWhenRanksDiffer) {
  EXPECT_THAT(Describe(R"({"parameters_sha256": ["a", "b"]})"),
              HasSubstr("parameters DIFFER between the 2 ranks"));
}

TEST_F(SummaryTest, LeavesOutWhatThereIsNot) {
  const std::string text =
      Describe(R"({"status": "stopped", "eval_mean_return": null})");
  EXPECT_THAT(text, HasSubstr("stopped"));
  EXPECT_THAT(text, Not(HasSubstr("evaluation")));
  EXPECT_THAT(text, Not(HasSubstr("parameters")));
}

TEST_F(SummaryTest, AMissingOrBrokenFileIsNamed) {
  EXPECT_EQ(ReadJson("/no/file").status().code(), absl::StatusCode::kNotFound);
  WriteFile(temp_ / "broken", "{");
  const auto broken = ReadJson(temp_ / "broken");
  EXPECT_EQ(broken.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(broken.status().message()), HasSubstr("broken"));
}

}  // namespace
}  // namespace flotilla
