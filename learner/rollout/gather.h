#ifndef FLOTILLA_LEARNER_ROLLOUT_GATHER_H_
#define FLOTILLA_LEARNER_ROLLOUT_GATHER_H_

#include "learner/rollout/rollout.h"
#include "learner/rollout/spaces.h"
#include "learner/torch.h"

namespace flotilla {

// The observations at `index` [M] int32 into the flattened steps [(T + 1) * B]:
// [M, D] float32, or stacks [M, k, H, W] uint8 put together from single frames.
torch::Tensor GatherObservations(const Rollout& rollout, const Spaces& spaces,
                                 const torch::Tensor& index);

// Writes step t's stacks of rows [first, first + rows) to `out`
// [rows, k, H, W].
void StackRows(const Rollout& rollout, const Spaces& spaces, int64_t t,
               int64_t first, int64_t rows, uint8_t* out);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ROLLOUT_GATHER_H_
