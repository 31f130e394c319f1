#include "services/rpc/reachable_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::HasSubstr;

TEST(ReachableAddressTest, AddressOfOneInterfaceStays) {
  for (const std::string address :
       {"127.0.0.1:5", "10.0.0.1:7", "host:9", "unix:/tmp/sock", "[::1]:3"}) {
    ASSERT_OK_AND_ASSIGN(const std::string reachable,
                         ReachableAddress(address, "127.0.0.1:29400"));
    EXPECT_EQ(reachable, address);
  }
}

TEST(ReachableAddressTest, EveryInterfaceBecomesTheOneTowardsTheCoordinator) {
  ASSERT_OK_AND_ASSIGN(const std::string reachable,
                       ReachableAddress("0.0.0.0:123", "127.0.0.1:29400"));
  EXPECT_EQ(reachable, "127.0.0.1:123");
}

TEST(ReachableAddressTest, NoWayNamesTheCoordinator) {
  EXPECT_THAT(ReachableAddress("0.0.0.0:1", "no port"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no port")));
}

}  // namespace
}  // namespace flotilla
