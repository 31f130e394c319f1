#ifndef FLOTILLA_SERVICES_RPC_REFUSAL_H_
#define FLOTILLA_SERVICES_RPC_REFUSAL_H_

#include <string>

#include "absl/status/status.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// gRPC says "unavailable" of a server that is not there and of one that we do
// not agree with on TLS. These tell them apart, for people.

// Why the server at HOST:PORT `address` and a client with `credentials` do not
// get to talk, with the remedy: it speaks TLS and we do not, or the other way
// round; its certificate is another authority's, for another host, or too old;
// it does not take ours. "" if a look at it shows nothing of the kind, or
// nothing listens there. Connects to it; blocks for about 3 s at most.
std::string WhyRefused(const std::string& address,
                       const RpcCredentials& credentials);

// `status`, with which a call to the server at `address` ended, in words for
// the user: as kUnauthenticated, naming what was refused and the remedy, if
// that is why; as it is if not. `server` is what to call it: "the coordinator".
// Blocks as WhyRefused.
absl::Status ExplainRefusal(const absl::Status& status,
                            const std::string& server,
                            const std::string& address,
                            const RpcCredentials& credentials);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_REFUSAL_H_
