#ifndef FLOTILLA_ENVSERVER_BATCH_VECTOR_ENV_H_
#define FLOTILLA_ENVSERVER_BATCH_VECTOR_ENV_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "envserver/batch_environment.h"
#include "envserver/part_pool.h"
#include "services/env/group_layout.h"
#include "services/env/vector_env.h"

namespace flotilla {

// Rows of a BatchEnvironment: step limit, same-step reset and statistics of
// finished games, with no work a row but adding up its return.
//
// A group is cut into parts, each a BatchEnvironment of its own; with threads they
// step beside one another. The same seed and actions give the same batches however
// many there are: those that a ThreadVectorEnv of the same environments, one by one
// (AsMultiAgent), would give.
class BatchVectorEnv final : public VectorEnv {
 public:
  using MakeBatch =
      std::function<absl::StatusOr<std::unique_ptr<BatchEnvironment>>(
          size_t environments)>;

  // Rows that a thread is worth waking for.
  static constexpr int kRowsOfThread = 1024;

  struct Options {
    int num_envs = 1;  // rows
    int num_groups = 1;
    // Of EpisodeSeed, in services/base/random.h.
    uint64_t seed = 0;
    uint64_t worker_id = 0;
    uint64_t incarnation = 0;
    // Merged into the environments' own specification.
    v1::EnvSpec stated = {};
    // At most; each has `rows_of_thread` of a group at least.
    int threads = 1;
    int rows_of_thread = kRowsOfThread;
  };

  // `listener` must outlive the result. Errors: those of `make`, of
  // MakeGroupLayout and of BatchEnvironment::CheckFits.
  static absl::StatusOr<std::unique_ptr<BatchVectorEnv>> Make(
      const Options& options, const MakeBatch& make, Listener* listener);

  const v1::EnvSpec& spec() const override { return spec_; }
  void Reset(int group, ObservationBuffers observation,
             v1::StepBatch* out) override;
  void Step(int group, const v1::ActionBatch& actions,
            ObservationBuffers observation, v1::StepBatch* out) override;

 private:
  // A range of a group's environments. On cache lines of its own: neighbours
  // belong to different threads.
  struct alignas(64) Part {
    std::unique_ptr<BatchEnvironment> batch;
    size_t row = 0;       // its first, in the group
    uint64_t seeded = 0;  // the same over all rows

    std::vector<uint64_t> episode;  // [E]  of the next reset
    std::vector<int64_t> steps;     // [E]  in this episode
    std::vector<double> returned;   // [R]  in this episode

    // The operation in flight, and what it led to.
    std::vector<std::span<std::byte>> observation;
    std::vector<std::span<const std::byte>> action;
    std::vector<float> reward;                   // [R]
    std::vector<EpisodeState> end;               // [E]
    std::vector<std::string> final_observation;  // per leaf [F, ...]
    std::vector<v1::EpisodeEnd> finished;        // [F], ascending
  };

  struct Group {
    bool reset = false;
    v1::StepBatch* out = nullptr;
    std::vector<Part> parts;
  };

  BatchVectorEnv(const Options& options, Listener* listener, v1::EnvSpec spec,
                 GroupLayout layout);

  absl::Status MakeParts(const MakeBatch& make, int parts);
  // Null `actions`: a reset.
  void Begin(int group, const v1::ActionBatch* actions,
             ObservationBuffers observation, v1::StepBatch* out);
  void RunPart(bool reset, Part* part);
  void StartEpisode(Part* part, size_t environment);
  void EndEpisode(Part* part, size_t environment);
  void Complete(int group);

  const Options options_;
  Listener* const listener_;
  const v1::EnvSpec spec_;
  const GroupLayout layout_;
  std::vector<Group> groups_;
  PartPool pool_;  // its threads end before what they use
};

// One environment of a batch as a MultiAgentEnvironment: what plays single games
// plays it too. `batch` has one environment.
std::unique_ptr<MultiAgentEnvironment> AsMultiAgent(
    std::unique_ptr<BatchEnvironment> batch);

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_BATCH_VECTOR_ENV_H_
