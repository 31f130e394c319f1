#include "services/base/status_macros.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "services/base/version.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

absl::Status ReturnsIfError(absl::Status status, bool* went_on) {
  RETURN_IF_ERROR(std::move(status));
  *went_on = true;
  return absl::OkStatus();
}

absl::StatusOr<int> AddsOne(absl::StatusOr<std::unique_ptr<int>> input) {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> value, std::move(input));
  int result;
  ASSIGN_OR_RETURN(result, absl::StatusOr<int>(*value + 1));
  return result;
}

TEST(StatusMacrosTest, ReturnIfErrorReturnsOnlyErrors) {
  bool went_on = false;
  EXPECT_THAT(ReturnsIfError(absl::AbortedError("x"), &went_on),
              StatusIs(absl::StatusCode::kAborted, "x"));
  EXPECT_FALSE(went_on);
  EXPECT_OK(ReturnsIfError(absl::OkStatus(), &went_on));
  EXPECT_TRUE(went_on);
}

TEST(StatusMacrosTest, AssignOrReturnMovesTheValueOrReturnsTheError) {
  ASSERT_OK_AND_ASSIGN(const int two, AddsOne(std::make_unique<int>(1)));
  EXPECT_EQ(two, 2);
  EXPECT_THAT(AddsOne(absl::NotFoundError("y")),
              StatusIs(absl::StatusCode::kNotFound, "y"));
}

TEST(VersionTest, IsThreeNumbers) {
  EXPECT_THAT(Version(), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+.*"));
}

}  // namespace
}  // namespace flotilla
