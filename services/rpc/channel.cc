#include "services/rpc/channel.h"

#include <grpcpp/create_channel.h>

#include <chrono>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "services/base/status_macros.h"
#include "services/rpc/grpc_log.h"
#include "services/rpc/token_credentials.h"

namespace flotilla {

grpc::ChannelArguments ChannelArgumentsFor(const std::string& address) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  // The kernel closes a unix socket whose other end is gone, and a server that
  // was not told to permit pings hangs up on who sends them.
  if (!IsUnixAddress(address)) {
    args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
    args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
    args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A few compressed bytes could stand for gigabytes: nobody of ours sends any.
  args.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
              1 << GRPC_COMPRESS_NONE);
  args.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  return args;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const RpcCredentials& credentials,
    CallMetadata metadata) {
  PrepareGrpc();
  ASSIGN_OR_RETURN(auto channel_credentials,
                   MakeChannelCredentials(credentials, address));
  ASSIGN_OR_RETURN(const std::string token, ReadToken(credentials));
  std::vector<
      std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>>
      interceptors;
  if (!token.empty()) metadata.push_back(TokenMetadata(token));
  if (!metadata.empty()) {
    interceptors.push_back(MetadataSender(std::move(metadata)));
  }
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      address, channel_credentials, ChannelArgumentsFor(address),
      std::move(interceptors));
}

bool AwaitConnected(grpc::Channel* channel, absl::Duration timeout) {
  return channel->WaitForConnected(std::chrono::system_clock::now() +
                                   absl::ToChronoMilliseconds(timeout));
}

void PauseBetweenCalls(grpc::Channel* channel, absl::Duration duration) {
  if (channel->GetState(false) == GRPC_CHANNEL_READY) {
    absl::SleepFor(duration);
  } else {
    AwaitConnected(channel, duration);
  }
}

}  // namespace flotilla
