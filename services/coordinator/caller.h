#ifndef FLOTILLA_SERVICES_COORDINATOR_CALLER_H_
#define FLOTILLA_SERVICES_COORDINATOR_CALLER_H_

#include <grpcpp/server_context.h>

#include <string>

namespace flotilla {

// In whose name a call comes, by its metadata (member_metadata.h). Not checked:
// Roster does that.
struct Caller {
  std::string member_id;  // "" if it does not say
  std::string key;  // SHA-256 of its secret, in hex; "" without a usable one
};

Caller CallerOf(const grpc::ServerContextBase& context);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_CALLER_H_
