#ifndef FLOTILLA_SERVICES_COORDINATOR_MEMBER_METADATA_H_
#define FLOTILLA_SERVICES_COORDINATOR_MEMBER_METADATA_H_

#include <grpcpp/client_context.h>

#include <string>

#include "services/rpc/channel.h"

// How a call to the coordinator says in whose name it comes: by the member's id
// and the secret of its slot. See Roster for what they are checked against.

namespace flotilla {

inline constexpr char kMemberMetadata[] = "flotilla-member";
inline constexpr char kSecretMetadata[] = "flotilla-secret";

// For all calls of a channel: MakeChannel.
inline CallMetadata MemberMetadata(const std::string& id,
                                   const std::string& secret) {
  return {{kMemberMetadata, id}, {kSecretMetadata, secret}};
}

// For one call.
inline void ShowSecret(const std::string& id, const std::string& secret,
                       grpc::ClientContext* context) {
  for (const auto& [key, value] : MemberMetadata(id, secret)) {
    context->AddMetadata(key, value);
  }
}

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_MEMBER_METADATA_H_
