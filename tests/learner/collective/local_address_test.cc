#include "learner/collective/local_address.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/learner/collective/ranks.h"

namespace flotilla {
namespace {

TEST(LocalAddressTest, OneHostUsesLoopback) {
  const auto address = LocalAddressFor(MakeAssignment(0, 3));
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(*address, "127.0.0.1");
}

TEST(LocalAddressTest, TheRouteToLoopbackLeavesFromLoopback) {
  const auto address = LocalAddressTowards("127.0.0.1");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(*address, "127.0.0.1");
}

TEST(LocalAddressTest, AnUnknownHostIsNamed) {
  const auto address = LocalAddressTowards("no-such-host.invalid");
  EXPECT_FALSE(address.ok());
  EXPECT_NE(address.status().message().find("no-such-host.invalid"),
            absl::string_view::npos)
      << address.status();
}

// Every host takes itself for 127.0.0.1: nobody could connect to that.
TEST(LocalAddressTest, LoopbackIsNoAddressBetweenHosts) {
  v1::Assignment assignment = MakeAssignment(0, 2);
  assignment.mutable_learner(1)->set_host("localhost");
  const auto address = LocalAddressFor(assignment);
  EXPECT_TRUE(absl::IsFailedPrecondition(address.status())) << address.status();
  const std::string message(address.status().message());
  EXPECT_NE(message.find("localhost"), std::string::npos) << message;
  EXPECT_NE(message.find("GLOO_SOCKET_IFNAME"), std::string::npos) << message;
}

TEST(LocalAddressTest, AMembersOwnAddressIsBetterThanItsName) {
  v1::Assignment assignment = MakeAssignment(0, 2);
  assignment.mutable_learner(1)->set_host("no-such-host.invalid");
  assignment.mutable_learner(1)->set_address("127.0.0.1:29401");
  const auto address = LocalAddressFor(assignment);
  const std::string message(address.status().message());
  EXPECT_EQ(message.find("no-such-host"), std::string::npos) << message;
  EXPECT_NE(message.find("127.0.0.1"), std::string::npos) << message;
}

}  // namespace
}  // namespace flotilla
