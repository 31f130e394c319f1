#ifndef FLOTILLA_LEARNER_NN_REPLAY_SEQUENCES_H_
#define FLOTILLA_LEARNER_NN_REPLAY_SEQUENCES_H_

#include <cstdint>

#include "learner/nn/network.h"
#include "learner/rollout/batch.h"
#include "learner/rollout/rollout.h"
#include "learner/torch.h"

namespace flotilla {

// Of all here, a rollout on the host may be for a network on a device; indices lie
// where the rollout does.

// What the environments `columns` [b] int32 saw in a rollout's first `steps`
// steps, by t and then in their order: steps * b of them.
Batch SequenceBatch(const Rollout& rollout, const torch::Tensor& columns,
                    int64_t steps, torch::Device device);

// Where their recurrent state begins and is forgotten.
Sequences SequencesOf(const Rollout& rollout, const torch::Tensor& columns,
                      int64_t steps, torch::Device device);

struct Replayed {
  NetworkOutput output;
  Batch observation;  // what it is of, on the network's device
};

// A recurrent network's outputs at `index` [M] int32, the valid steps of the
// environments `columns` by t and then in their order: the sequences are
// replayed from where the rollout began. With gradients, if they are on.
Replayed ReplaySequences(const Network& net, const Rollout& rollout,
                         const torch::Tensor& index,
                         const torch::Tensor& columns);

// Any network's outputs at the steps of a minibatch (algo/minibatches.h): by
// ReplaySequences if it is recurrent, else of `index` [M] int32 alone.
Replayed RunSteps(const Network& net, const Rollout& rollout,
                  const torch::Tensor& index, const torch::Tensor& columns);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_REPLAY_SEQUENCES_H_
