#ifndef FLOTILLA_LEARNER_ALGO_BATCH_PARTS_H_
#define FLOTILLA_LEARNER_ALGO_BATCH_PARTS_H_

#include <cstdint>
#include <vector>

#include "learner/algo/ppo_backend.h"
#include "learner/torch.h"

namespace flotilla {

// What of a minibatch goes through a network at once.
struct BatchPart {
  PpoBatch batch;       // its index and columns are the part's
  torch::Tensor place;  // [m] int64  where in the whole's index; undefined: all
};

// One part, unless that would be more than `most` steps (0: any): then parts of at
// most that many, of whole environments if the network is recurrent.
std::vector<BatchPart> CutBatch(const PpoBatch& batch, bool recurrent,
                                int64_t most);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_BATCH_PARTS_H_
