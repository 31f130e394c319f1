#include "launcher/find_coordinator.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

const absl::Status kSilent = absl::UnavailableError("no coordinator answers");

class FindCoordinatorTest : public testing::Test {
 protected:
  FindCoordinatorTest() { fs::current_path(temp_.path()); }
  ~FindCoordinatorTest() override { fs::current_path(before_); }

  const fs::path before_ = fs::current_path();
  TempDir temp_;
};

TEST_F(FindCoordinatorTest, AnAddressThatNobodyNamedIsNotAllThatIsSaid) {
  const auto run = FindCoordinator(std::nullopt, std::nullopt);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(ExplainSilence(*run, kSilent).message(),
            "there is no run in runs/, and nothing answers at 127.0.0.1:29400: "
            "name a RUN or --coordinator HOST:PORT");
  // Something is there, and says why not.
  const absl::Status refused = absl::UnauthenticatedError("refuses us");
  EXPECT_EQ(ExplainSilence(*run, refused), refused);

  const auto named = FindCoordinator("127.0.0.1", std::nullopt);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->address, "127.0.0.1:29400");
  EXPECT_EQ(ExplainSilence(*named, kSilent), kSilent);
}

TEST_F(FindCoordinatorTest, ARunWithAResultIsOver) {
  fs::create_directories("runs/first");
  WriteFile("runs/first/config.textproto", "ppo {}\n");
  WriteFile("runs/first/coordinator.address", "127.0.0.1:1\n");
  const auto run = FindCoordinator(std::nullopt, std::nullopt);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->address, "127.0.0.1:1");
  EXPECT_EQ(ExplainSilence(*run, kSilent), kSilent);

  WriteFile("runs/first/summary.json", R"({"status": "solved"})");
  EXPECT_EQ(ExplainSilence(*run, kSilent).message(),
            "the run in runs/first is over");
}

}  // namespace
}  // namespace flotilla
