#ifndef FLOTILLA_SERVICES_ENV_CONFORMANCE_PROBE_H_
#define FLOTILLA_SERVICES_ENV_CONFORMANCE_PROBE_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "flotilla/v1/env.pb.h"

namespace flotilla {

// A Play stream without a learner's manners: it sends whatever it is told to,
// and says what comes, or that nothing does. Every wait has a deadline.
//
// Not thread-safe. The destructor cancels what still runs.
class Probe {
 public:
  enum class Event {
    kReply,    // see reply()
    kGarbage,  // a message that is no PlayReply
    kEnded,    // see status()
    kSilence   // nothing within the timeout
  };

  // Opens the stream; the server may not be there yet.
  explicit Probe(std::shared_ptr<grpc::Channel> channel);
  ~Probe();

  // Begins to send. Blocks for `timeout` at most, for what was sent before;
  // false if that is not on its way by then, or the stream has ended.
  bool Send(const v1::PlayRequest& request, absl::Duration timeout);

  // Blocks for the next reply.
  Event Receive(absl::Duration timeout);
  const v1::PlayReply& reply() const { return reply_; }

  // Half-closes, after what was sent.
  void HalfClose(absl::Duration timeout);
  void Cancel() { context_.TryCancel(); }

  // Blocks for the stream's end; replies on their way are dropped. Nullopt: it
  // does not end, and is cancelled now.
  std::optional<absl::Status> End(absl::Duration timeout);

  // How it ended, once it has; printable.
  const absl::Status& status() const { return status_; }

  // What came, for people: "the stream ended with NOT_FOUND: ...".
  std::string Describe(Event event) const;

 private:
  using Clock = std::chrono::steady_clock;
  enum Op : intptr_t { kStart, kRead, kWrite, kHalfClose, kFinish, kOps };

  void Begin(Op op) { pending_[op] = true; }
  static void* Tag(Op op) { return reinterpret_cast<void*>(op + 1); }
  // Until `op` is done; false at the deadline.
  bool Await(Op op, Clock::time_point deadline);
  // Takes the status of a stream whose read or write failed.
  Event Ended(Clock::time_point deadline);

  const std::shared_ptr<grpc::Channel> channel_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool pending_[kOps] = {};
  bool ok_[kOps] = {};
  bool reading_ = false;  // a read was begun whose reply nobody took
  bool ended_ = false;
  grpc::ByteBuffer in_;
  grpc::ByteBuffer out_;
  grpc::Status finish_;
  absl::Status status_;
  v1::PlayReply reply_;
};

// Requests, in short.
v1::PlayRequest Request(const v1::Hello& hello);
v1::PlayRequest Request(const v1::Start& start);
v1::PlayRequest Request(const v1::ActionBatch& actions);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_CONFORMANCE_PROBE_H_
