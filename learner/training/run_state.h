#ifndef FLOTILLA_LEARNER_TRAINING_RUN_STATE_H_
#define FLOTILLA_LEARNER_TRAINING_RUN_STATE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/algo/algorithm.h"
#include "learner/checkpoint/checkpoint.h"
#include "learner/collective/collective.h"
#include "learner/rollout/normalizer.h"
#include "learner/training/episode_window.h"
#include "learner/training/self_play.h"
#include "services/base/metrics.h"

namespace flotilla {

// Where a run stands, besides what the algorithm keeps. Commits with an update.
// The same on every rank, but for wall_seconds and what rank 0 knows of evaluations
// before the next agreement.
struct Progress {
  int64_t update = 0;       // committed
  int64_t global_step = 0;  // environment steps of all ranks
  int64_t episodes = 0;
  int64_t evaluation_round = 0;
  int64_t env_incarnation = 0;  // the highest any env worker used, on any rank
  int64_t env_restarts = 0;     // of all ranks
  int64_t learner_restarts = 0;
  int64_t assigned_restarts = 0;  // of them, those in the newest assignment
  int64_t failed_rows = 0;        // of all ranks' environments
  double wall_seconds = 0;        // of training, over resumes
  double best_return = -1e300;    // of any evaluation
  // All that was agreed on in flight, by number; updates may be to come, where a
  // run was resumed from before them. Not in checkpoints: the run's folder has it.
  v1::Changes changes;
};

std::map<std::string, std::string> ToText(const Progress& progress);
// Errors: kDataLoss naming the field that is missing or no number.
absl::StatusOr<Progress> ProgressFromText(
    const std::map<std::string, std::string>& text);
// Of the checkpoint in folder `path`. Errors also: those of LoadCheckpointProgress.
absl::StatusOr<Progress> SavedProgress(const std::string& path);

// By what observations are scaled, as checkpoints name it.
inline constexpr char kObservationSums[] = "normalizer.observation_sums";

// All that training changes, as live views: an algorithm's weights and state,
// the normalizer's sums, the newest episodes and the pool of earlier selves.
// Borrowed; without `episodes` or `self_play` those are left out.
class LiveState {
 public:
  LiveState(Algorithm* algorithm, Normalizer* normalizer,
            EpisodeWindow* episodes = nullptr, SelfPlay* self_play = nullptr)
      : algorithm_(algorithm),
        normalizer_(normalizer),
        episodes_(episodes),
        self_play_(self_play) {}

  std::vector<NamedTensor> Weights() const { return algorithm_->Weights(); }
  std::vector<NamedTensor> State() const;
  // What of that a policy plays with: how observations are scaled, and the pool.
  std::vector<NamedTensor> PlayState() const;
  // Call after tensors of either were copied into.
  void WasReplaced() const;

  EpisodeWindow* episodes() const { return episodes_; }

 private:
  Algorithm* algorithm_;
  Normalizer* normalizer_;
  EpisodeWindow* episodes_;
  SelfPlay* self_play_;
};

// A live state and the run's progress, set aside: what an interrupted update
// goes back to, and what a checkpoint is written from while training goes on.
struct Snapshot {
  Progress progress;
  std::vector<NamedTensor> weights;
  std::vector<NamedTensor> state;
};

// Copies into `snapshot`, reusing its storage.
void TakeSnapshot(const LiveState& live, const Progress& progress,
                  Snapshot* snapshot);
void RestoreSnapshot(const Snapshot& snapshot, const LiveState& live,
                     Progress* progress);

// What ShareState gives but for the numbers: each tensor's name, type and shape.
std::string LayoutOf(const LiveState& live);

// Gives every rank the state and progress of rank `source`. Blocks for
// all, which have the same layout. Errors: those of the collective.
absl::Status ShareState(Collective* collective, int source,
                        const LiveState& live, Progress* progress);

// The same for what lies aside: storage is made where there is none.
absl::Status ShareSnapshot(Collective* collective, int source,
                           const LiveState& live, Snapshot* snapshot);

// The same for as many numbers on every rank.
absl::Status ShareWords(Collective* collective, int source,
                        std::vector<int64_t>* words);

// The same for any bytes, however many rank `source` has.
absl::Status ShareBytes(Collective* collective, int source, std::string* bytes);

// The same for any metrics, however many rank `source` has.
absl::Status ShareMetrics(Collective* collective, int source,
                          std::vector<Metric>* metrics);

CheckpointData ToCheckpoint(const Snapshot& snapshot,
                            const v1::RunConfig& config);
// `progress` keeps its changes. Errors: kFailedPrecondition, naming the tensor and both shapes, when the
// checkpoint is of another network.
absl::Status FromCheckpoint(const CheckpointData& data, const LiveState& live,
                            Progress* progress);
// What playing needs of it alone: `flotilla push` leaves all else out. Errors: as
// above, and where the checkpoint lacks the earlier selves of `live`.
absl::Status PolicyFromCheckpoint(const CheckpointData& data,
                                  const LiveState& live, Progress* progress);

// Hex sha256 over all weights, in order.
std::string WeightsSha256(const LiveState& live);

// A number that tells apart weights that differ in any bit, but for one chance
// in 2^64; a gigabyte takes less than a second.
uint64_t WeightsDigest(const LiveState& live);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_RUN_STATE_H_
