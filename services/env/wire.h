#ifndef FLOTILLA_SERVICES_ENV_WIRE_H_
#define FLOTILLA_SERVICES_ENV_WIRE_H_

#include <grpcpp/support/byte_buffer.h>

#include "flotilla/v1/env.pb.h"

// PlayRequest and PlayReply to and from gRPC's buffers.
//
// Protobuf's own Parse frees a oneof's message before it reads the next one, so
// every step would allocate all its columns anew. These read into what is
// already there, and write in one piece, without a wrapping copy.

namespace flotilla {

// Reads `buffer` into `message`, reusing the memory of an action batch or step.
// Returns false if it is not such a message; `message` is then unspecified.
bool ParseMessage(const grpc::ByteBuffer& buffer, v1::PlayRequest* message);
bool ParseMessage(const grpc::ByteBuffer& buffer, v1::PlayReply* message);

grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message);

// PlayRequest{actions}.
grpc::ByteBuffer SerializeActions(const v1::ActionBatch& actions);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_WIRE_H_
