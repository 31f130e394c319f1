#ifndef FLOTILLA_SERVICES_ENV_PLAY_CALL_H_
#define FLOTILLA_SERVICES_ENV_PLAY_CALL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "services/env/play_transport.h"

namespace flotilla {

// A call of EnvService.Play, over a completion queue of its own: the calling
// thread polls the connection itself, so a batch costs no change of threads, and
// a wait has a deadline without a timer.
class PlayCall final : public PlayTransport {
 public:
  explicit PlayCall(std::shared_ptr<grpc::Channel> channel);
  ~PlayCall() override;

  Progress Connect(Clock::time_point deadline) override;
  Progress Read(Clock::time_point deadline, grpc::ByteBuffer* message) override;
  bool AwaitReadable(Clock::time_point deadline) override;
  Progress Write(Clock::time_point deadline,
                 grpc::ByteBuffer* message) override;
  Progress HalfClose(Clock::time_point deadline) override;
  absl::Status End() override;
  void Fail(const absl::Status&) override { Cancel(); }
  void Cancel() override { context_.TryCancel(); }

 private:
  enum class Op : intptr_t { kStart = 1, kRead, kWrite, kHalfClose, kFinish };

  static void* Tag(Op op) { return reinterpret_cast<void*>(op); }
  bool& Pending(Op op) { return pending_[static_cast<size_t>(op)]; }
  void* Begin(Op op);
  // Runs the queue until `op` has completed.
  Progress Await(Op op, Clock::time_point deadline);
  // One completion; false at the deadline.
  bool Next(Clock::time_point deadline);
  void BeginRead();

  const std::shared_ptr<grpc::Channel> channel_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;

  bool pending_[6] = {};
  bool ok_[6] = {};
  grpc::ByteBuffer in_;
  grpc::ByteBuffer out_;
  grpc::Status finish_status_;
  bool reading_ = false;  // a read was begun whose message nobody took
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_PLAY_CALL_H_
