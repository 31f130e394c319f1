#ifndef FLOTILLA_LEARNER_CHECKPOINT_REPLAY_FILES_H_
#define FLOTILLA_LEARNER_CHECKPOINT_REPLAY_FILES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "learner/checkpoint/safetensors.h"

namespace flotilla {

// Replays of a run's learners (checkpoint.replay), beside its checkpoints. Each
// learner writes its own, and none is part of a checkpoint: one may be missing,
// and nothing that happens to one harms a checkpoint.
//
//   checkpoints/step_000000000512/            of rank 0
//   checkpoints/replay_000000000512/rank_0/   replay.safetensors  SHA256SUMS
//                                   rank_1/   the same
//
// A rank's folder that is there is whole: it is written aside, synced, renamed.

// Which state of a run a replay belongs to.
struct ReplayOrigin {
  int64_t global_step = 0;
  uint64_t weights_digest = 0;  // WeightsDigest: the same on all ranks
};

// Writes learner `rank`'s in `checkpoints`, over one of the same step; that
// folder is made when needed, its parent not. Blocks until it is on the disk.
// What an earlier save of this rank left unfinished is removed.
// Errors: kResourceExhausted, naming path and cause, if the disk is full.
absl::Status SaveReplay(const std::string& checkpoints, int rank,
                        const ReplayOrigin& origin, const TensorMap& contents);

struct SavedReplay {
  TensorMap contents;
  int64_t global_step = 0;  // when it was saved
  std::string passed_over;  // why not a newer one; "": it is the newest
};

// Learner `rank`'s of the checkpoint in folder `checkpoint` (which may be a link)
// of `origin`, or else the newest of an earlier step that can be read: what was
// seen stays true.
// Errors: kNotFound and kDataLoss, in a line, if there is none.
absl::StatusOr<SavedReplay> LoadReplay(const std::string& checkpoint, int rank,
                                       const ReplayOrigin& origin);

// Removes replays of steps up to `global_step` that have no checkpoint (any
// more), but for the newest.
void RemoveOldReplays(const std::string& checkpoints, int64_t global_step);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CHECKPOINT_REPLAY_FILES_H_
