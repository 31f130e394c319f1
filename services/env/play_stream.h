#ifndef FLOTILLA_SERVICES_ENV_PLAY_STREAM_H_
#define FLOTILLA_SERVICES_ENV_PLAY_STREAM_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "flotilla/v1/env.pb.h"
#include "services/base/mutex.h"
#include "services/env/group_layout.h"
#include "services/env/ring.h"
#include "services/env/shared_region.h"
#include "services/env/vector_env.h"

namespace flotilla {

// How an env server treats its learners.
struct PlayOptions {
  absl::Duration hello_timeout = absl::Seconds(10);
  absl::Duration start_timeout = absl::Seconds(10);
  // Silence of a learner whose turn it is. Without a limit a dead learner is
  // still noticed by its connection.
  absl::Duration action_timeout = absl::InfiniteDuration();
  int max_num_envs = 4096;  // on one stream
  int max_streams = 64;     // open at once, refused ones among them
};

class PlayStream;

// What a stream asks of the service it belongs to. Thread-safe.
class PlayHost {
 public:
  virtual ~PlayHost() = default;

  // Makes `stream` the one that plays. Errors: see EnvService.Play.
  virtual absl::Status TakeSeat(PlayStream* stream, const v1::Hello& hello) = 0;
  // No-op if it does not play.
  virtual void LeaveSeat(PlayStream* stream) = 0;
  // The last call about `stream`, which is the host's to join and delete.
  virtual void StreamEnded(PlayStream* stream) = 0;
};

// One Play call: a state machine on a thread of its own, which gRPC's reactions
// only wake. Where there are rings, what steps costs no message.
//
// The thread reads, checks, steps, writes; environments that are worth it step
// on other threads and report back through OnGroupDone.
class PlayStream final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      private VectorEnv::Listener {
 public:
  // Arguments must outlive this. Start the thread with Run.
  PlayStream(PlayHost* host, const VectorEnvFactory* factory,
             const PlayOptions& options, grpc::CallbackServerContext* context);

  // Joins the thread.
  ~PlayStream() override;

  // Throws std::system_error if the system has no thread left.
  void Run();

  // Ends the stream with `status` unless it has ended. From any thread.
  void End(absl::Status status);

  // Progress since the hello.
  int64_t steps() const { return steps_; }
  int64_t episodes() const { return episodes_; }
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Wake { kMessage, kActions, kHalfClosed, kProgress, kTimeout };
  struct Group {
    v1::ActionBatch actions;  // being stepped
    v1::PlayReply reply;  // its step is the group's outgoing message, reused
    std::vector<std::span<std::byte>> observation;
    uint64_t seq = 0;       // of the last step begun
    bool stepping = false;  // from its actions (or the reset) to its write
  };
  struct Ready {
    int group;
    Clock::time_point at;
  };

  // gRPC's reactions: they only note what happened and wake the thread.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void OnGroupDone(int group, absl::Duration delay) override;
  void OnFailure(absl::Status status) override { End(std::move(status)); }

  void ThreadMain();
  void AwaitDone();
  void FreeMemory();
  absl::Status Play();
  absl::Status Handshake();
  absl::Status ReceiveHello();
  absl::Status SendWelcome();
  absl::Status ReceiveStart();
  void PlaceObservations();
  absl::Status Serve();
  absl::Status TakeMessage();
  absl::Status TakeActions(v1::ActionBatch* actions);
  void SendStep(int group);
  // Has the thread look at what changed.
  void Notify() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Steps() const;  // some group does
  void Write(grpc::ByteBuffer buffer);

  // Blocks for the next message, for the handshake.
  absl::Status ReadRequest(const char* what, absl::Duration timeout);
  // Blocks until there is something to do. Errors: how the stream has to end.
  absl::StatusOr<Wake> Wait(absl::Duration timeout);
  // The next group to write; nullopt if none is ready or a write is in flight.
  std::optional<int> TakeReady();
  // How long the learner may stay silent now.
  absl::Duration Patience() const;
  void BeginRead();
  absl::Status ParseRequest();

  PlayHost* const host_;
  const VectorEnvFactory* const factory_;
  const PlayOptions options_;
  grpc::CallbackServerContext* const context_;
  std::thread thread_;

  // Of the thread alone.
  v1::Hello hello_;
  GroupLayout layout_;
  std::unique_ptr<RegionReceiver> receiver_;
  std::optional<SharedRegion> region_;
  RingLayout ring_layout_;
  std::unique_ptr<Ring> ring_;  // null: messages
  v1::ActionBatch ring_actions_;
  std::vector<Group> groups_;
  std::unique_ptr<VectorEnv> env_;  // after what it writes to
  v1::PlayRequest request_;
  bool reading_ = false;

  // gRPC's while a read or write is in flight, else the thread's.
  grpc::ByteBuffer in_;
  grpc::ByteBuffer out_;

  std::atomic<int64_t> steps_ = 0;
  std::atomic<int64_t> episodes_ = 0;
  std::atomic<Clock::time_point> begun_ = Clock::now();

  Mutex mu_;
  std::condition_variable wake_;
  Ring* bell_ ABSL_GUARDED_BY(mu_) = nullptr;  // what else wakes the thread
  bool read_done_ ABSL_GUARDED_BY(mu_) = false;
  bool read_ok_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mu_);
  std::deque<Ready> ready_ ABSL_GUARDED_BY(mu_);
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_PLAY_STREAM_H_
