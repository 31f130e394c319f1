#ifndef FLOTILLA_ENVSERVER_THREAD_VECTOR_ENV_H_
#define FLOTILLA_ENVSERVER_THREAD_VECTOR_ENV_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "envserver/environment.h"
#include "services/base/mutex.h"
#include "services/env/vector_env.h"

namespace flotilla {

// Rows of one environment: step limit, same-step reset, statistics of finished
// games, and errors that cost one transition instead of the server.
//
// With one thread, rows step inside Reset and Step, in order. With more, those
// return at once, and a pool takes rows of all groups, first come first served.
// The same seed and actions give the same batches either way.
//
// A row never ends an episode in both ways: at the step limit, `terminated`
// wins. A row in `error` has reward 0 and neither flag. An observation or reward
// that nobody can learn from (services/env/numbers.h) is an error of its row.
//
// A row that failed is pending for Options.retry_wait, and then tried again: it
// observes zeros, and is in `error`, without a message, with each step up to the
// one that brings it back. Only where all rows of a group are pending do its
// steps wait, as delays do, and only kHold: a learner may take turns, and then
// all its other environments wait too.
class ThreadVectorEnv final : public VectorEnv {
 public:
  using MakeEnv = std::function<absl::StatusOr<std::unique_ptr<Environment>>()>;

  // Of a step of nobody: enough that nothing spins.
  static constexpr absl::Duration kHold = absl::Milliseconds(2);

  struct Options {
    int num_envs = 1;
    int num_groups = 1;
    // Of EpisodeSeed, in services/base/random.h.
    uint64_t seed = 0;
    uint64_t worker_id = 0;
    uint64_t incarnation = 0;
    // Merged into the environments' own specification: another step limit, and
    // what they are called.
    v1::EnvSpec stated = {};
    int threads = 1;
    // An environment that failed is tried again after this long: by a reset, or
    // made anew, as also where a reset fails. 0: at once, in the same step.
    absl::Duration retry_wait = absl::ZeroDuration();
    bool renew_failed = false;
  };

  // Makes every row's environment. `make` may be called again later, from any
  // of the threads; `listener` must outlive the result.
  // Errors: those of `make`.
  static absl::StatusOr<std::unique_ptr<ThreadVectorEnv>> Make(
      const Options& options, MakeEnv make, Listener* listener);

  ~ThreadVectorEnv() override;

  const v1::EnvSpec& spec() const override { return spec_; }
  void Reset(int group, ObservationBuffers observation,
             v1::StepBatch* out) override;
  void Step(int group, const v1::ActionBatch& actions,
            ObservationBuffers observation, v1::StepBatch* out) override;

 private:
  // On cache lines of its own: neighbours belong to different threads.
  struct alignas(64) RowState {
    int index = 0;                     // over all rows
    std::unique_ptr<Environment> env;  // null: to be made anew
    bool pending = false;              // failed, and not back yet
    absl::Time retry_at;               // pending: not before
    bool lost = false;                 // it was pending before this operation
    uint64_t episode = 0;              // of the next reset
    int64_t steps = 0;                 // in this episode
    v1::EpisodeEnd game;               // since the last game's end

    // The operation in flight, and what it led to.
    std::vector<std::span<std::byte>> observation;
    std::vector<std::span<const std::byte>> action;
    Outcome outcome;
    std::vector<std::string> final_observation;
    std::optional<v1::EpisodeEnd> finished;
    absl::Status error;
  };

  struct Group {
    bool reset = false;
    v1::StepBatch* out = nullptr;
    int next_row = 0;   // to be claimed; guarded by mu_ where there are threads
    int remaining = 0;  // likewise
  };

  ThreadVectorEnv(const Options& options, MakeEnv make, Listener* listener,
                  v1::EnvSpec spec);

  absl::Status StartThreads();

  // Null `actions`: a reset.
  void Begin(int group, const v1::ActionBatch* actions,
             ObservationBuffers observation, v1::StepBatch* out);
  void RunRow(bool reset, RowState* row);
  absl::Status StartEpisode(RowState* row);
  absl::Status StepRow(RowState* row);
  // The row failed: it is pending, or, without a wait, tried again at once.
  void SetAside(RowState* row);
  // Begins a pending row's next episode. Errors: what fails now.
  absl::Status Retry(RowState* row);
  absl::Status CheckObservation(const RowState& row) const;
  void Complete(int group);
  void FillRow(const RowState& row, int r, v1::StepBatch* out);
  std::span<RowState> RowsOf(int group);

  void WorkerMain();
  // Blocks for a row to run; nullopt: stop.
  std::optional<std::pair<int, int>> ClaimRow();
  // Returns whether it was the group's last.
  bool FinishRow(int group);

  const Options options_;
  const MakeEnv make_;
  Listener* const listener_;
  const int rows_;  // R
  v1::EnvSpec spec_;
  std::vector<size_t> observation_bytes_;
  std::vector<size_t> action_bytes_;
  std::vector<RowState> states_;
  std::vector<Group> groups_;

  Mutex mu_;
  std::condition_variable work_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<int> queue_ ABSL_GUARDED_BY(mu_);  // groups with rows to claim
  std::vector<std::thread> threads_;
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_THREAD_VECTOR_ENV_H_
