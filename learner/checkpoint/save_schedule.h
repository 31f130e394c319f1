#ifndef FLOTILLA_LEARNER_CHECKPOINT_SAVE_SCHEDULE_H_
#define FLOTILLA_LEARNER_CHECKPOINT_SAVE_SCHEDULE_H_

#include <cstdint>

#include "flotilla/v1/config.pb.h"

namespace flotilla {

// When checkpoints are due while a run goes on; the one at its end is nobody's
// business here. CheckpointConfig says what there is to choose from.
//
// By updates and by count, every rank knows from what is committed. By time,
// only rank 0's clock counts: it votes, the ranks agree, and so all of them know
// of each save, at the same update.

// Whether one is due after update number `update`, given the share of the run
// that was done before it and after it (see ShareDone), and whether the clock
// voted for one.
bool IsSaveDue(const v1::CheckpointConfig& config, int64_t update,
               double share_before, double share_after, bool voted);

// Rank 0's clock. Times are in seconds since any moment, and the caller's.
//
// Not thread-safe.
class SaveClock {
 public:
  explicit SaveClock(double now) : since_(now) {}

  // Whether it asks for a checkpoint: checkpoint.every_seconds have passed since
  // the last one was begun, and twenty times what it cost.
  bool Asks(const v1::CheckpointConfig& config, double now) const;

  // One was begun at `now`. `cost_seconds`: what the last one whose cost is
  // known took, copying and writing; 0 if none is.
  void Began(double now, double cost_seconds);

 private:
  double since_;  // when the last one was begun
  double cost_ = 0;
};

// How many of the newest checkpoints stay.
int NumKept(const v1::CheckpointConfig& config);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CHECKPOINT_SAVE_SCHEDULE_H_
