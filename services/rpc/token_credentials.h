#ifndef FLOTILLA_SERVICES_RPC_TOKEN_CREDENTIALS_H_
#define FLOTILLA_SERVICES_RPC_TOKEN_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/client_interceptor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/rpc/roles.h"

// The token's way over the wire, metadata `authorization: Bearer TOKEN`, and
// what a server asks of each call. Use RpcCredentials rather than these.

namespace flotilla {

// What a server asks of its callers.
struct CallRules {
  std::string token;          // "": none
  bool open_reading = false;  // methods that only read take none
  MethodRoles methods;
};

// Makes a server with TLS `credentials` refuse calls without the token, and
// those of certificates without the role.
void DemandTokenAndRole(const CallRules& rules,
                        grpc::ServerCredentials* credentials);

// Plaintext, and the token with the calls that take it. gRPC's own insecure
// credentials take no token.
std::shared_ptr<grpc::ServerCredentials> PlaintextTokenServerCredentials(
    const CallRules& rules);

// As which `token` travels.
std::pair<std::string, std::string> TokenMetadata(const std::string& token);

// Adds `metadata` to every call of a channel, plaintext or not.
std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>
MetadataSender(std::vector<std::pair<std::string, std::string>> metadata);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_TOKEN_CREDENTIALS_H_
