#include "services/coordinator/session_client.h"

#include <grpcpp/channel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <utility>

#include "services/rpc/channel.h"
#include "tests/services/coordinator/coordinator_fixture.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

v1::Heartbeat Beat() {
  v1::Heartbeat beat;
  beat.set_member_id(TestLearner(0).id());
  beat.set_incarnation(1);
  return beat;
}

TEST(SessionClientTest, SendsHeartbeatsAndGetsCommands) {
  TestCoordinator coordinator(TestCoordinator::Options(1, 1));
  std::latch answered(1);
  std::atomic<bool> told = false;  // there may be older commands on the way
  const auto session = SessionClient::Start(
      coordinator.Stub(),
      {[&](const v1::Command& command) {
         if (command.register_again() && !told.exchange(true)) {
           answered.count_down();
         }
       },
       [](const absl::Status&) {}});
  session->Send(Beat());
  answered.wait();
}

// gRPC 1.51 aborts when the last reference to a channel goes on one of its own
// threads. After the destructor nobody but us has one.
TEST(SessionClientTest, LeavesNothingToGrpcsThreads) {
  TestCoordinator coordinator(TestCoordinator::Options(1, 1));
  for (int i = 0; i < 100; ++i) {
    ASSERT_OK_AND_ASSIGN(auto channel, MakeChannel(coordinator.address(), {}));
    std::atomic<bool> over = false;
    auto session = SessionClient::Start(
        v1::CoordinatorService::NewStub(channel),
        {[](const v1::Command&) {},
         [&](const absl::Status& status) {
           EXPECT_TRUE(absl::IsCancelled(status)) << status;
           over = true;
         }});
    if (i % 2 == 0) session->Send(Beat());
    const std::weak_ptr<grpc::Channel> left = std::exchange(channel, nullptr);
    session.reset();
    EXPECT_TRUE(over);
    EXPECT_TRUE(left.expired());
  }
}

}  // namespace
}  // namespace flotilla
