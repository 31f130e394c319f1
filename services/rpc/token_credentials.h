#ifndef FLOTILLA_SERVICES_RPC_TOKEN_CREDENTIALS_H_
#define FLOTILLA_SERVICES_RPC_TOKEN_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/client_interceptor.h>

#include <memory>
#include <string>

#include "services/rpc/roles.h"

// The token's way over the wire, metadata `authorization: Bearer TOKEN`, and
// what a server asks of each call. Use RpcCredentials rather than these.

namespace flotilla {

// Makes a server with TLS `credentials` refuse calls without `token` (if it is
// not empty), and those of certificates without the role.
void DemandTokenAndRole(const std::string& token, const MethodRoles& roles,
                        grpc::ServerCredentials* credentials);

// Plaintext, and `token` with every call. gRPC's own insecure credentials take
// no token.
std::shared_ptr<grpc::ServerCredentials> PlaintextTokenServerCredentials(
    const std::string& token);

// Adds `token` to every call of a channel, plaintext or not.
std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>
TokenSender(const std::string& token);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_TOKEN_CREDENTIALS_H_
