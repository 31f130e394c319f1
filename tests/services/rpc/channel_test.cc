#include "services/rpc/channel.h"

#include <grpc/grpc.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

namespace flotilla {
namespace {

std::optional<int> ChannelArgument(const std::string& address,
                                   std::string_view key) {
  const grpc::ChannelArguments made = ChannelArgumentsFor(address);
  const grpc_channel_args args = made.c_channel_args();
  for (size_t i = 0; i < args.num_args; ++i) {
    if (args.args[i].key == key) return args.args[i].value.integer;
  }
  return std::nullopt;
}

// A server with gRPC's own settings ends a connection that pings it, and nothing
// else, after a minute.
TEST(ChannelTest, NobodyIsPingedOnAUnixSocket) {
  for (const char* address : {"unix:/tmp/socket", "unix-abstract:name"}) {
    EXPECT_EQ(ChannelArgument(address, GRPC_ARG_KEEPALIVE_TIME_MS),
              std::nullopt)
        << address;
  }
}

// What env.proto says that a server has to permit.
TEST(ChannelTest, APeerThatMayVanishIsPingedEvery20Seconds) {
  for (const char* address : {"127.0.0.1:5", "host:9", "[::1]:3"}) {
    EXPECT_EQ(ChannelArgument(address, GRPC_ARG_KEEPALIVE_TIME_MS), 20000)
        << address;
    EXPECT_EQ(ChannelArgument(address, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS),
              1);
    EXPECT_EQ(ChannelArgument(address, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA),
              0);
  }
}

TEST(ChannelTest, AMessageMayBeLargeEverywhere) {
  for (const char* address : {"unix:/tmp/socket", "127.0.0.1:5"}) {
    EXPECT_EQ(ChannelArgument(address, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH),
              kMaxMessageBytes);
  }
}

}  // namespace
}  // namespace flotilla
