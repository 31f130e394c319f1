#include "services/env/play_call.h"

#include <algorithm>
#include <utility>

#include "services/rpc/grpc_status.h"

namespace flotilla {
namespace {

constexpr char kPlayMethod[] = "/flotilla.v1.EnvService/Play";
// How long the end of a stream may take, whoever ends it.
constexpr std::chrono::seconds kCallEndTimeout(2);

gpr_timespec ToGpr(PlayTransport::Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
      deadline - PlayTransport::Clock::now());
  return gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(std::max<int64_t>(left.count(), 0), GPR_TIMESPAN));
}

}  // namespace

PlayCall::PlayCall(std::shared_ptr<grpc::Channel> channel)
    : channel_(std::move(channel)) {
  context_.set_wait_for_ready(true);
  grpc::GenericStub stub(channel_);
  call_ = stub.PrepareCall(&context_, kPlayMethod, &queue_);
  call_->StartCall(Begin(Op::kStart));
}

PlayCall::~PlayCall() {
  context_.TryCancel();
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

void* PlayCall::Begin(Op op) {
  Pending(op) = true;
  return Tag(op);
}

PlayCall::Progress PlayCall::Connect(Clock::time_point deadline) {
  return Await(Op::kStart, deadline);
}

PlayCall::Progress PlayCall::Read(Clock::time_point deadline,
                                  grpc::ByteBuffer* message) {
  if (!reading_) BeginRead();
  const Progress progress = Await(Op::kRead, deadline);
  if (progress == Progress::kDone) {
    reading_ = false;
    message->Swap(&in_);
  }
  return progress;
}

bool PlayCall::AwaitReadable(Clock::time_point deadline) {
  if (!reading_) BeginRead();
  return Await(Op::kRead, deadline) != Progress::kLate;
}

PlayCall::Progress PlayCall::Write(Clock::time_point deadline,
                                   grpc::ByteBuffer* message) {
  if (Pending(Op::kWrite)) {
    const Progress before = Await(Op::kWrite, deadline);
    if (before != Progress::kDone) return before;
  }
  out_.Swap(message);
  call_->Write(out_, Begin(Op::kWrite));
  return Progress::kDone;
}

PlayCall::Progress PlayCall::HalfClose(Clock::time_point deadline) {
  if (Pending(Op::kWrite)) {
    const Progress before = Await(Op::kWrite, deadline);
    if (before != Progress::kDone) return before;
  }
  call_->WritesDone(Begin(Op::kHalfClose));
  return Progress::kDone;
}

absl::Status PlayCall::End() {
  const Clock::time_point deadline = Clock::now() + kCallEndTimeout;
  call_->Finish(&finish_status_, Begin(Op::kFinish));
  while (Pending(Op::kFinish)) {
    if (Next(deadline)) continue;
    context_.TryCancel();
    if (!Next(Clock::now() + kCallEndTimeout)) break;
  }
  if (Pending(Op::kFinish)) return absl::UnavailableError("the stream broke");
  return FromGrpc(finish_status_);
}

PlayCall::Progress PlayCall::Await(Op op, Clock::time_point deadline) {
  while (Pending(op)) {
    if (!Next(deadline)) return Progress::kLate;
  }
  return ok_[static_cast<size_t>(op)] ? Progress::kDone : Progress::kOver;
}

bool PlayCall::Next(Clock::time_point deadline) {
  void* tag;
  bool ok;
  if (queue_.AsyncNext(&tag, &ok, ToGpr(deadline)) !=
      grpc::CompletionQueue::GOT_EVENT) {
    return false;
  }
  const size_t op = static_cast<size_t>(reinterpret_cast<intptr_t>(tag));
  pending_[op] = false;
  ok_[op] = ok;
  return true;
}

void PlayCall::BeginRead() {
  reading_ = true;
  call_->Read(&in_, Begin(Op::kRead));
}

}  // namespace flotilla
