#ifndef FLOTILLA_SERVICES_RPC_CHANNEL_H_
#define FLOTILLA_SERVICES_RPC_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// The largest message either side takes: an env step of many large frames.
inline constexpr int kMaxMessageBytes = 64 << 20;

// Names (lower case) and values of printable ASCII.
using CallMetadata = std::vector<std::pair<std::string, std::string>>;

// A connection of its own (not shared with other channels of this process) to
// "host:port", "unix:path" or "unix-abstract:name", made on first use and made
// again when it breaks, every 0.1 to 0.5 s. A peer of another host that stops
// answering is noticed within 30 s, calls or not; on a unix socket only one that
// ends is. HTTP proxies are not used. Never blocks.
//
// `metadata` goes with every call.
//
// Errors: kInvalidArgument, kNotFound or kPermissionDenied, naming the file, if
// `credentials` cannot be read.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const RpcCredentials& credentials,
    CallMetadata metadata = {});

// What MakeChannel makes its channels with.
grpc::ChannelArguments ChannelArgumentsFor(const std::string& address);

// Blocks until `channel` is connected, for `timeout` at most; returns whether it
// is. A connection is made only while somebody waits on its channel, in a call
// or here: whoever sleeps between calls that fail sees a TLS handshake time out
// again and again.
bool AwaitConnected(grpc::Channel* channel, absl::Duration timeout);

// The pause between a call that failed and the next one: `duration`, or until a
// channel that was not connected is.
void PauseBetweenCalls(grpc::Channel* channel, absl::Duration duration);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_CHANNEL_H_
