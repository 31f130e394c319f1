#include "services/rpc/grpc_status.h"

#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

TEST(GrpcStatusTest, EveryCodeSurvivesBothWays) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    const grpc::Status wire = ToGrpc(status);
    EXPECT_EQ(static_cast<int>(wire.error_code()), code);
    EXPECT_EQ(FromGrpc(wire), status);
  }
}

TEST(GrpcStatusTest, CodesMeanTheSame) {
  EXPECT_THAT(FromGrpc({grpc::StatusCode::ABORTED, "fenced"}),
              StatusIs(absl::StatusCode::kAborted, "fenced"));
  EXPECT_EQ(ToGrpc(absl::DeadlineExceededError("late")).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_OK(FromGrpc(grpc::Status::OK));
}

}  // namespace
}  // namespace flotilla
