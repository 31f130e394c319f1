#ifndef FLOTILLA_LEARNER_TRAINING_REPLAY_SAVER_H_
#define FLOTILLA_LEARNER_TRAINING_REPLAY_SAVER_H_

#include <cstdint>
#include <future>
#include <string>

#include "learner/algo/algorithm.h"
#include "learner/checkpoint/replay_files.h"
#include "services/base/mutex.h"

namespace flotilla {

// Saves one learner's replay whenever a checkpoint is saved
// (checkpoint.replay): on a thread of its own, from a copy, so that training
// waits for the copy alone, and for a save before it that is still being
// written. What goes wrong is one line of the log, and trouble(); the run and
// its checkpoints go on.
//
// Not thread-safe, except trouble(): the training loop's thread calls it.
class ReplaySaver {
 public:
  // `rank` names the learner's files, as it does its log: the one it asked for.
  // `algorithm` is borrowed, and has a replay.
  ReplaySaver(std::string checkpoints, int rank, Algorithm* algorithm);
  ~ReplaySaver();  // waits for a save

  // Takes back what was saved for the checkpoint in folder `checkpoint`. If
  // there is nothing that fits, the replay stays empty; either way a line of the
  // log says so. Before any update.
  void Restore(const std::string& checkpoint, const ReplayOrigin& origin);

  // Begins a save, unless it would be of the same state as the last.
  void Save(const ReplayOrigin& origin);

  // Ready once the last save is; invalid if there was none.
  std::shared_future<void> saved() const { return saving_; }

  // How long training waited for the last copy.
  double copy_seconds() const { return copy_seconds_; }

  // Why the newest was not written; "" if it was. Thread-safe.
  std::string trouble() const;

 private:
  const std::string checkpoints_;
  const int rank_;
  Algorithm* const algorithm_;
  ReplayOrigin last_{.global_step = -1};
  double copy_seconds_ = 0;
  mutable Mutex mu_;
  std::string trouble_ ABSL_GUARDED_BY(mu_);
  std::shared_future<void> saving_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_REPLAY_SAVER_H_
