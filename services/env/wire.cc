#include "services/env/wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <cstdint>

namespace flotilla {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// Field number and wire type of PlayRequest.actions.
constexpr uint32_t kActionsTag =
    (v1::PlayRequest::kActionsFieldNumber << 3) | 2;

// What a newer peer sends besides would pile up.
void Forget(google::protobuf::Message* message) {
  if (message->GetReflection()->GetUnknownFields(*message).empty()) return;
  message->DiscardUnknownFields();
}

// Empties every field, and keeps the memory and the choice of a oneof: what did
// not come is then an empty batch, which no check accepts.
void Recycle(v1::PlayRequest* request) {
  if (request->request_case() != v1::PlayRequest::kActions) {
    request->Clear();
    return;
  }
  Forget(request);
  request->mutable_actions()->Clear();
}

void Recycle(v1::PlayReply* reply) {
  if (reply->reply_case() != v1::PlayReply::kStep) {
    reply->Clear();
    return;
  }
  Forget(reply);
  v1::StepBatch* step = reply->mutable_step();
  if (step->payload_case() != v1::StepBatch::kInline) {
    step->Clear();
    return;
  }
  Forget(step);
  step->mutable_inline_()->Clear();
  step->set_group(0);
  step->set_seq(0);
  step->mutable_reward()->clear();
  step->mutable_terminated()->clear();
  step->mutable_truncated()->clear();
  step->clear_final_row();
  if (step->has_final_observation()) {
    step->mutable_final_observation()->Clear();
  }
  step->clear_episode_end();
  step->clear_error();
  step->mutable_active()->clear();
}

template <typename Message>
bool Parse(const grpc::ByteBuffer& buffer, Message* message) {
  Recycle(message);
  // The reader takes a pointer but only reads.
  grpc::ProtoBufferReader reader(const_cast<grpc::ByteBuffer*>(&buffer));
  if (!reader.status().ok()) return false;
  CodedInputStream input(&reader);
  return message->MergeFromCodedStream(&input) && input.ConsumedEntireMessage();
}

uint8_t* Writable(const grpc::Slice& slice) {
  return const_cast<uint8_t*>(slice.begin());
}

}  // namespace

bool ParseMessage(const grpc::ByteBuffer& buffer, v1::PlayRequest* message) {
  return Parse(buffer, message);
}

bool ParseMessage(const grpc::ByteBuffer& buffer, v1::PlayReply* message) {
  return Parse(buffer, message);
}

grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(Writable(slice));
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer SerializeActions(const v1::ActionBatch& actions) {
  const uint32_t size = static_cast<uint32_t>(actions.ByteSizeLong());
  const grpc::Slice slice(1 + CodedOutputStream::VarintSize32(size) + size);
  uint8_t* out = Writable(slice);
  out = CodedOutputStream::WriteVarint32ToArray(kActionsTag, out);
  out = CodedOutputStream::WriteVarint32ToArray(size, out);
  actions.SerializeWithCachedSizesToArray(out);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace flotilla
