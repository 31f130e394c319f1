#include "services/rpc/roles.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace flotilla {
namespace {

constexpr char kPrefix[] = "flotilla:role:";

bool CameWithTls(const grpc::AuthContext& caller) {
  const auto types =
      caller.FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  return std::any_of(types.begin(), types.end(), [](grpc::string_ref type) {
    return type == GRPC_SSL_TRANSPORT_SECURITY_TYPE ||
           type == GRPC_TLS_TRANSPORT_SECURITY_TYPE;
  });
}

}  // namespace

std::vector<std::string> RolesAmong(const std::vector<std::string>& uris) {
  std::vector<std::string> roles;
  for (absl::string_view uri : uris) {
    if (absl::ConsumePrefix(&uri, kPrefix)) roles.emplace_back(uri);
  }
  return roles;
}

absl::Status CheckRole(const grpc::AuthContext& caller,
                       const std::vector<std::string>& roles,
                       const std::string& what) {
  if (!CameWithTls(caller)) return absl::OkStatus();
  std::vector<std::string> uris;
  for (grpc::string_ref uri :
       caller.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    uris.emplace_back(uri.data(), uri.size());
  }
  return CheckShownRoles(RolesAmong(uris), roles, what);
}

absl::Status CheckShownRoles(const std::vector<std::string>& shown,
                             const std::vector<std::string>& roles,
                             const std::string& what) {
  for (const std::string& role : roles) {
    if (std::find(shown.begin(), shown.end(), role) != shown.end()) {
      return absl::OkStatus();
    }
  }
  return absl::PermissionDeniedError(absl::StrCat(
      what, " takes a certificate with the role ", absl::StrJoin(roles, " or "),
      "; yours has ", shown.empty() ? "none" : absl::StrJoin(shown, ", "),
      " (roles are URIs ", kPrefix,
      "ROLE among its subject alternative names: see deploy/certs.sh)"));
}

}  // namespace flotilla
