#ifndef FLOTILLA_SERVICES_RPC_REFUSED_STREAM_H_
#define FLOTILLA_SERVICES_RPC_REFUSED_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {

// Ends a call that gets no stream of its own. Deletes itself.
class RefusedStream final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit RefusedStream(const absl::Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_REFUSED_STREAM_H_
