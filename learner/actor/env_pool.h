#ifndef FLOTILLA_LEARNER_ACTOR_ENV_POOL_H_
#define FLOTILLA_LEARNER_ACTOR_ENV_POOL_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/actor/env_worker.h"
#include "learner/actor/failed_rows.h"
#include "learner/actor/game_tapes.h"
#include "services/base/mutex.h"

namespace flotilla {

// A learner's env workers, seen as slots: slot s is one group of one worker and
// owns rows [first_row(s), first_row(s) + rows_per_slot()) of the learner's B.
//
// A worker that dies, hangs past its timeout or breaks the protocol is killed
// and replaced in the background, within its restart budget; meanwhile its
// slots are absent. Its half-played episodes are gone with it, never spliced. One
// of another's server (env.server) that fails before it has made a step fails the
// pool: a restart helps what broke, not what cannot. But one whose connection was
// cut, and that may not have been asked for a step yet, is replaced.
// Workers on other hosts are leased, and replaced by what the coordinator has,
// without a budget. One that dials, and is there again before its stream is seen
// to be lost, goes on at once. One that goes on sending numbers that nobody can
// learn from, or has another specification, is dropped, and not leased again for
// ten minutes.
//
// Not thread-safe: one actor owns it. But restarts, last_incarnation,
// failed_rows and Describe may be called from any thread.
class EnvPool {
 public:
  // Starts every worker, at the same time. Worker ids are first_worker_id and
  // up; incarnations begin at `incarnation`.
  // Errors: the first worker's that does not come up; kCancelled when `stop` is
  // requested.
  static absl::StatusOr<std::unique_ptr<EnvPool>> Start(
      EnvWorkerOptions options, uint64_t first_worker_id, uint64_t incarnation,
      std::stop_token stop = {});
  ~EnvPool();

  // Writes down what is played, before anything is received.
  void Record(const GameTapes::Options& recording);
  // Who is told of it from here on, between two rollouts; see GameTapes. Null:
  // nobody.
  void SetGameSink(GameSink* sink);

  const v1::EnvSpec& spec() const { return spec_; }
  int num_slots() const { return static_cast<int>(slots_.size()); }
  int rows_per_slot() const { return rows_per_slot_; }
  int first_row(int slot) const { return slot * rows_per_slot_; }

  enum class Event {
    kStep,    // batch(slot) answers the actions sent
    kReset,   // batch(slot) starts new episodes: the first one, or a new worker
    kAbsent,  // the worker is down: nothing to decide, nothing to send
    kLate,    // nothing has come and `give_up` said so: ask again
  };

  // Blocks for the slot's next batch, or says that it is absent. Waits for a
  // replacement only when too few rows are alive (env.quorum).
  // `give_up` is asked every few milliseconds of waiting.
  // Errors: kResourceExhausted when a worker's restart budget is spent, or it
  // never plays, with its last failure; kCancelled when `stop` is requested.
  absl::StatusOr<Event> Receive(
      int slot, std::stop_token stop,
      absl::FunctionRef<bool()> give_up = [] { return false; });

  const v1::StepBatch& batch(int slot) const { return slots_[slot].batch; }
  absl::string_view Observation(int slot, int leaf) const;
  // Whether that batch can still be looked at: its worker was not lost since.
  bool HoldsBatch(int slot) const;

  // Sends the slot's actions: per action leaf [R, ...] as bytes. A failure shows
  // at the next Receive; where the worker was replaced since the last one, nothing
  // is sent, and the next is kReset.
  void Send(int slot, std::span<const std::string> columns);

  const v1::EnvConfig& env() const { return options_.env; }
  const FailedRows& failed_rows() const { return *failed_rows_; }

  // Over the pool's life.
  int64_t restarts() const { return restarts_; }
  // The highest incarnation used; a resumed run begins above it.
  uint64_t last_incarnation() const { return last_incarnation_; }
  // Each worker as status shows it. Rates are of the last second or so.
  std::vector<v1::EnvServerStatus> Describe() const;

 private:
  struct Worker {
    uint64_t id = 0;
    bool remote = false;  // on another host, leased
    uint64_t incarnation = 0;
    EnvWorker up;  // stream is null while down
    std::future<absl::StatusOr<EnvWorker>> replacement;
    std::deque<absl::Time> failures;  // within the budget's window
    int64_t restarts = 0;
    std::string last_failure;
    pid_t pid = 0;
    std::atomic<int64_t> failed_rows = 0;
    int64_t refused_rows = 0;        // of the stream; see EnvStream
    std::deque<absl::Time> refused;  // batches with such rows, lately
  };
  struct Slot {
    int worker = 0;
    int group = 0;
    v1::StepBatch batch;
    v1::ActionBatch actions;
    bool fresh = true;     // the next batch is a reset
    bool arrived = false;  // `batch` came while another slot's was awaited
  };

  EnvPool() = default;
  void Release(Worker* worker);
  bool IsTaken(const Worker& worker, const absl::Status& why) const;
  absl::Status Fail(Worker* worker, const absl::Status& why);
  // Counts the rows that failed in the slot's batch. Errors: kDataLoss if the
  // worker is to be dropped.
  absl::Status NoteRows(Worker* worker, const Slot& slot);
  // With a server that is `leased` already, if that is given.
  void BeginReplacement(Worker* worker, absl::Duration delay,
                        std::optional<v1::Member> leased = std::nullopt);
  absl::Status TakeReplacement(Worker* worker);
  bool QuorumWithout() const;
  void NoteStatus();
  absl::StatusOr<bool> ReceiveFor(Worker* worker, Slot* slot,
                                  std::stop_token stop,
                                  absl::FunctionRef<bool()> give_up);

  EnvWorkerOptions options_;
  v1::EnvSpec spec_;
  int rows_per_slot_ = 0;
  int rows_per_worker_ = 0;
  std::atomic<int64_t> restarts_ = 0;
  std::atomic<uint64_t> last_incarnation_ = 0;
  std::unique_ptr<FailedRows> failed_rows_;
  std::deque<Worker> workers_;
  DroppedServers dropped_;
  std::vector<Slot> slots_;
  std::unique_ptr<GameTapes> tapes_;  // null: nothing is recorded
  v1::StepBatch incoming_;
  std::stop_source closing_;

  std::vector<std::atomic<int64_t>> steps_;  // by worker
  mutable Mutex mu_;
  std::vector<v1::EnvServerStatus> status_ ABSL_GUARDED_BY(mu_);  // by worker
  // When rates were measured last, and at how many steps.
  mutable absl::Time measured_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  mutable std::vector<int64_t> measured_ ABSL_GUARDED_BY(mu_);
  mutable std::vector<double> rates_ ABSL_GUARDED_BY(mu_);
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_ENV_POOL_H_
