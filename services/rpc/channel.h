#ifndef FLOTILLA_SERVICES_RPC_CHANNEL_H_
#define FLOTILLA_SERVICES_RPC_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// The largest message either side takes: an env step of many large frames.
inline constexpr int kMaxMessageBytes = 64 << 20;

// A connection of its own (not shared with other channels of this process) to
// "host:port", "unix:path" or "unix-abstract:name", made on first use and made
// again when it breaks, every 0.1 to 2 s. A peer that stops answering is
// noticed within 30 s, calls or not. HTTP proxies are not used. Never blocks.
//
// Errors: kInvalidArgument, kNotFound or kPermissionDenied, naming the file, if
// `credentials` cannot be read.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const RpcCredentials& credentials);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_CHANNEL_H_
