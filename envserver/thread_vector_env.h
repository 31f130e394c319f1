#ifndef FLOTILLA_ENVSERVER_THREAD_VECTOR_ENV_H_
#define FLOTILLA_ENVSERVER_THREAD_VECTOR_ENV_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "envserver/multi_agent_environment.h"
#include "envserver/part_pool.h"
#include "services/env/group_layout.h"
#include "services/env/vector_env.h"

namespace flotilla {

// Rows of one environment: step limit, same-step reset, statistics of finished
// games, and errors that cost one transition instead of the server.
//
// With one thread, environments step inside Reset and Step, in order. With more,
// those return at once, and a pool takes environments of all groups, first come
// first served. The same seed and actions give the same batches either way.
//
// An environment of several agents has as many rows, is seeded as its first, and
// fails with all of them; a row is not active once its episode has ended, until
// its environment's has.
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
  using MakeEnv =
      std::function<absl::StatusOr<std::unique_ptr<MultiAgentEnvironment>>()>;

  // Of a step of nobody: enough that nothing spins.
  static constexpr absl::Duration kHold = absl::Milliseconds(2);

  struct Options {
    int num_envs = 1;  // rows; 0: one environment
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
    // Of a game that is played again: the seeds of its episodes, in turn. Those
    // after them are 0. Empty: those of EpisodeSeed.
    std::vector<uint64_t> seeds = {};
    bool draws = false;  // for frames(); one environment, one thread
  };

  // Makes every environment. `make` may be called again later, from any
  // of the threads; `listener` must outlive the result.
  // Errors: those of `make`.
  static absl::StatusOr<std::unique_ptr<ThreadVectorEnv>> Make(
      const Options& options, MakeEnv make, Listener* listener);

  const v1::EnvSpec& spec() const override { return spec_; }
  void Reset(int group, ObservationBuffers observation,
             v1::StepBatch* out) override;
  void Step(int group, const v1::ActionBatch& actions,
            ObservationBuffers observation, v1::StepBatch* out) override;

  std::span<const v1::Frame> frames() const override { return frames_; }

 private:
  // What is kept of a slot besides.
  struct SlotState {
    std::vector<std::span<std::byte>> observation;
    std::vector<std::span<const std::byte>> action;
    std::vector<std::string> final_observation;
    std::optional<v1::EpisodeEnd> finished;
    v1::EpisodeEnd game;  // since the last game's end
    bool gone = false;    // its episode ended, and its environment's did not
  };

  // On cache lines of its own: neighbours belong to different threads.
  struct alignas(64) EnvState {
    int row = 0;                                 // its first, over all rows
    std::unique_ptr<MultiAgentEnvironment> env;  // null: to be made anew
    bool pending = false;                        // failed, and not back yet
    absl::Time retry_at;                         // pending: not before
    uint64_t episode = 0;                        // of the next reset
    int64_t steps = 0;                           // in this episode
    std::vector<SlotState> state;

    // The operation in flight, and what it led to.
    std::vector<Slot> slots;
    bool lost = false;  // it was pending before this operation
    absl::Status error;
    bool unusable = false;  // the error is of a number
  };

  struct Group {
    bool reset = false;
    v1::StepBatch* out = nullptr;
  };

  ThreadVectorEnv(const Options& options, MakeEnv make, Listener* listener,
                  v1::EnvSpec spec, GroupLayout layout);

  // Null `actions`: a reset.
  void Begin(int group, const v1::ActionBatch* actions,
             ObservationBuffers observation, v1::StepBatch* out);
  void RunEnv(bool reset, EnvState* env);
  absl::Status StartEpisode(EnvState* env);
  absl::Status StepEnv(EnvState* env);
  // Notes what the step means for a slot that had not ended. Returns whether its
  // episode ended with it.
  bool EndSlot(EnvState* env, size_t slot);
  // The environment failed: it is pending, or, without a wait, tried again at
  // once.
  void SetAside(EnvState* env);
  // Begins a pending environment's next episode. Errors: what fails now.
  absl::Status Retry(EnvState* env);
  absl::Status CheckObservation(const SlotState& state) const;
  // Notes what `numbers`, a check of them, says.
  static absl::Status CheckUsable(EnvState* env, absl::Status numbers);
  void Complete(int group);
  void FillRow(const EnvState& env, size_t slot, int r, v1::StepBatch* out);
  absl::Status Draw(const EnvState& env);
  void FillError(const EnvState& env, size_t slot, int r, v1::StepBatch* out);
  std::span<EnvState> EnvsOf(int group);

  const Options options_;
  const MakeEnv make_;
  Listener* const listener_;
  const v1::EnvSpec spec_;
  const GroupLayout layout_;
  std::vector<EnvState> states_;
  std::vector<Group> groups_;
  std::vector<v1::Frame> frames_;  // Options.draws
  PartPool pool_;                  // its threads end before what they use
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_THREAD_VECTOR_ENV_H_
