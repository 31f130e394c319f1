#ifndef FLOTILLA_SERVICES_ENV_PLAY_TRANSPORT_H_
#define FLOTILLA_SERVICES_ENV_PLAY_TRANSPORT_H_

#include <grpcpp/support/byte_buffer.h>

#include <chrono>

#include "absl/status/status.h"

namespace flotilla {

// What an EnvStream sends and receives its messages through, whoever opened the
// connection: PlayCall, or a DialService's.
//
// One thread calls it, but for Cancel. Dropping it ends the stream.
class PlayTransport {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Progress {
    kDone,
    kLate,  // not by the deadline: what was begun goes on, so call again
    kOver,  // the stream has ended: see End
  };

  virtual ~PlayTransport() = default;

  // Blocks until the env server is there.
  virtual Progress Connect(Clock::time_point deadline) = 0;

  // Blocks for the next message.
  virtual Progress Read(Clock::time_point deadline,
                        grpc::ByteBuffer* message) = 0;

  // Blocks until Read would not; false at the deadline.
  virtual bool AwaitReadable(Clock::time_point deadline) = 0;

  // Blocks until the message before has gone out, and then takes this one.
  virtual Progress Write(Clock::time_point deadline,
                         grpc::ByteBuffer* message) = 0;

  // Says that nothing more will be written, after the last message has gone
  // out. What the server says of it comes through Read.
  virtual Progress HalfClose(Clock::time_point deadline) = 0;

  // After kOver: how it ended, OK if the server meant it. Blocks for some
  // seconds at most.
  virtual absl::Status End() = 0;

  // Ends the stream; `why` reaches the server where the protocol has a way.
  // Never blocks.
  virtual void Fail(const absl::Status& why) = 0;

  // Ends it soon, from any thread. Idempotent.
  virtual void Cancel() = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_PLAY_TRANSPORT_H_
