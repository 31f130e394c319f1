#ifndef FLOTILLA_SERVICES_ENV_ENV_STREAM_H_
#define FLOTILLA_SERVICES_ENV_ENV_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "flotilla/v1/env.pb.h"
#include "services/env/play_transport.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// The learner's end of one Play stream: batches of observations come in,
// batches of actions go out, group by group. The protocol is in
// proto/flotilla/v1/env.proto.
//
// One thread calls Receive and Send; Cancel may be called from anywhere. After
// any error the stream is finished: drop it and open another.
class EnvStream {
 public:
  virtual ~EnvStream() = default;

  // Constant for the stream's life.
  virtual const v1::EnvSpec& spec() const = 0;

  // Blocks for the next batch, of whichever group; the first ones are the reset
  // batches. `batch` has been checked against the specification: every column
  // has the right size, rows are in range and in `error` once, `active` is empty
  // or [R] (IsActive in services/env/group_layout.h), agents end once in their
  // environment's episode. A row with a number that
  // nobody can learn from (services/env/numbers.h) has become a RowError, with all
  // other slots of its environment, and what errors say is printable and short.
  // Reuse one `batch` per group: no allocation follows the first.
  // Errors: kUnavailable if the server went away; kDeadlineExceeded if it took
  // longer than the step (or reset) timeout, with the stream cancelled;
  // kCancelled after Cancel; kInternal if the batch does not fit.
  virtual absl::Status Receive(v1::StepBatch* batch) = 0;

  // Blocks up to `patience` for a reply, and says whether Receive would answer
  // at once, be it with an error.
  virtual bool Ready(absl::Duration patience) = 0;

  // Observation leaf `leaf` of `batch`, [R, ...], wherever it lies: inline or
  // in the shared slot. Valid until the group's actions are sent.
  virtual absl::string_view Observation(const v1::StepBatch& batch,
                                        int leaf) const = 0;

  // Answers the group's last batch. Does not wait for the result. Errors are
  // those of Receive.
  virtual absl::Status Send(const v1::ActionBatch& actions) = 0;

  // Half-closes and waits briefly for the server to agree.
  virtual absl::Status Finish() = 0;

  // Makes pending and later calls return kCancelled. Idempotent.
  virtual void Cancel() = 0;

  // Rows received with such a number: the server does not check its own.
  virtual int64_t refused_rows() const = 0;

  // Whether observations come through shared memory.
  virtual bool shares_memory() const = 0;

  // Whether steps and actions do too, but for those that no ring carries.
  virtual bool has_ring() const = 0;
};

struct EnvStreamOptions {
  absl::Duration connect_timeout = absl::Seconds(30);  // up to the welcome
  // Of it, for a server to be there at all: it may still have rows to make then.
  absl::Duration reach_timeout = absl::InfiniteDuration();
  absl::Duration reset_timeout = absl::Seconds(60);
  absl::Duration step_timeout = absl::Seconds(60);
  RpcCredentials credentials;
  // How long either end polls a ring before it sleeps: 0 where processes outnumber
  // the cores that they run on.
  absl::Duration ring_spin = absl::ZeroDuration();
  // Both are of the opening alone. `gone` is asked now and then whether the
  // server has ended, so that nobody waits for it to answer.
  std::stop_token stop = {};
  std::function<bool()> gone = [] { return false; };
};

// Connects to the env server at `address` (host:port or unix:path), shakes
// hands and starts. Shared memory is used when `hello.offer_shared_memory` is
// set and the server agrees, and rings in it are with `hello.offer_ring`.
// `hello.protocol_version` is filled in.
//
// Errors: kUnavailable or kDeadlineExceeded within the connect timeout (the reach
// timeout, if nobody is there), or as soon as `options.gone`;
// kCancelled when `options.stop` is requested meanwhile; whatever the server refuses with.
absl::StatusOr<std::unique_ptr<EnvStream>> OpenEnvStream(
    const std::string& address, v1::Hello hello,
    const EnvStreamOptions& options);

// The same through a connection that is there already: `name` is what errors
// call the server. Nothing is shared.
absl::StatusOr<std::unique_ptr<EnvStream>> OpenEnvStream(
    std::unique_ptr<PlayTransport> transport, const std::string& name,
    v1::Hello hello, const EnvStreamOptions& options);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_ENV_STREAM_H_
