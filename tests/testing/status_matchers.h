#ifndef FLOTILLA_TESTS_TESTING_STATUS_MATCHERS_H_
#define FLOTILLA_TESTS_TESTING_STATUS_MATCHERS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/status_macros.h"

// Matchers for absl::Status and absl::StatusOr:
//
//   EXPECT_OK(Save());
//   ASSERT_OK_AND_ASSIGN(const int n, Count());
//   EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kNotFound,
//                                HasSubstr("no such file")));

namespace flotilla {

inline const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << "which is " << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

MATCHER_P2(StatusIs, code, message,
           std::string("has code ") + absl::StatusCodeToString(code) +
               " and a message that " +
               testing::DescribeMatcher<std::string>(message)) {
  const absl::Status& status = StatusOf(arg);
  *result_listener << "which is " << status.ToString();
  return status.code() == code &&
         testing::Matches(message)(std::string(status.message()));
}

template <typename Code>
auto StatusIs(Code code) {
  return StatusIs(code, testing::_);
}

}  // namespace flotilla

#define EXPECT_OK(expr) EXPECT_THAT(expr, ::flotilla::IsOk())
#define ASSERT_OK(expr) ASSERT_THAT(expr, ::flotilla::IsOk())
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  FLOTILLA_ASSERT_OK_AND_ASSIGN_(       \
      FLOTILLA_CONCAT_(flotilla_status_or_, __LINE__), lhs, expr)
#define FLOTILLA_ASSERT_OK_AND_ASSIGN_(result, lhs, expr) \
  auto result = (expr);                                   \
  ASSERT_OK(result);                                      \
  lhs = *std::move(result)

#endif  // FLOTILLA_TESTS_TESTING_STATUS_MATCHERS_H_
