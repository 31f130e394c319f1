#ifndef FLOTILLA_SERVICES_RPC_GRPC_LOG_H_
#define FLOTILLA_SERVICES_RPC_GRPC_LOG_H_

namespace flotilla {

// Sends gRPC's own messages to VLOG(1): what matters in them comes back to us
// as a status, and would otherwise be told twice. Setting GRPC_VERBOSITY leaves
// them as gRPC prints them. Idempotent; thread-safe.
void QuietGrpcLog();

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_GRPC_LOG_H_
