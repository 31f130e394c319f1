#ifndef FLOTILLA_SERVICES_RPC_GRPC_LOG_H_
#define FLOTILLA_SERVICES_RPC_GRPC_LOG_H_

namespace flotilla {

// Before anything else of gRPC: sends its own messages to VLOG(1), for what matters in
// them comes back to us as a status, and would otherwise be told twice; and has it
// resolve names as the system does. Setting GRPC_VERBOSITY or GRPC_DNS_RESOLVER leaves
// either as gRPC has it. Idempotent; thread-safe.
void PrepareGrpc();

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_GRPC_LOG_H_
