#ifndef FLOTILLA_SERVICES_RPC_CREDENTIAL_FLAGS_H_
#define FLOTILLA_SERVICES_RPC_CREDENTIAL_FLAGS_H_

#include <string>
#include <vector>

#include "services/base/command_line.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// The flags of TLS and token, the same for all of our programs: --tls-cert,
// --tls-key, --tls-ca, --token-file, --insecure. `out` must outlive Parse.
void AddCredentialFlags(RpcCredentials* out, CommandLine* line);

// The flags that hand `credentials` on to another of our programs, with
// absolute paths.
std::vector<std::string> CredentialFlags(const RpcCredentials& credentials);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_CREDENTIAL_FLAGS_H_
