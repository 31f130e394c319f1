#ifndef FLOTILLA_SERVICES_RPC_GRPC_STATUS_H_
#define FLOTILLA_SERVICES_RPC_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace flotilla {

// Code and message, unchanged; the codes are the same numbers.
absl::Status FromGrpc(const grpc::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_GRPC_STATUS_H_
