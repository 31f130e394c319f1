#ifndef FLOTILLA_SERVICES_RPC_ROLES_H_
#define FLOTILLA_SERVICES_RPC_ROLES_H_

#include <grpcpp/security/auth_context.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace flotilla {

// What a certificate lets its holder do: the URIs "flotilla:role:ROLE" among
// its subject alternative names. It may have several, or none and then do
// little. deploy/certs.sh makes such certificates.
inline constexpr char kLearnerRole[] = "learner";      // and its launcher
inline constexpr char kEnvServerRole[] = "envserver";  // offers environments
inline constexpr char kClientRole[] = "client";        // people: status, stop

struct MethodAccess {
  std::vector<std::string> roles;  // of those who come with a certificate
  bool only_reads = false;         // changes nothing: see RpcCredentials
};

// Who may call which method: "/flotilla.v1.EnvService/Play" -> {{"learner"}}.
// Methods that are not named, such as health and reflection, only read and are
// open to every certificate.
using MethodRoles = std::map<std::string, MethodAccess>;

// The roles among the URIs of a certificate.
std::vector<std::string> RolesAmong(const std::vector<std::string>& uris);

// Whether one of `roles`, which `what` takes, is among those `shown`.
// Errors: kPermissionDenied, naming the roles wanted and those shown.
absl::Status CheckShownRoles(const std::vector<std::string>& shown,
                             const std::vector<std::string>& roles,
                             const std::string& what);

// Whether the caller may do `what`, which takes one of `roles`. Callers that
// came without TLS have no roles and may. Errors: those of CheckShownRoles.
absl::Status CheckRole(const grpc::AuthContext& caller,
                       const std::vector<std::string>& roles,
                       const std::string& what);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_ROLES_H_
