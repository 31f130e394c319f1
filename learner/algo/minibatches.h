#ifndef FLOTILLA_LEARNER_ALGO_MINIBATCHES_H_
#define FLOTILLA_LEARNER_ALGO_MINIBATCHES_H_

#include <cstdint>
#include <vector>

#include "learner/rollout/rollout.h"
#include "learner/torch.h"
#include "services/base/random.h"

namespace flotilla {

// What one gradient step learns from. The tensors borrow from Minibatches.
struct Minibatch {
  torch::Tensor index;    // [M] int32   t * B + b, valid steps only
  torch::Tensor columns;  // [b] int32   of B; by column only, else undefined
  // Both on the host, for a device; else undefined.
  torch::Tensor host_index, host_columns;
};

// Cuts a rollout into minibatches, anew for every epoch. How many there are
// never depends on what is in the rollout, so ranks take the same number of
// gradient steps; a minibatch may be empty.
//
//   by step    the valid steps, shuffled and cut into equal parts
//   by column  whole environments with all their steps: what recurrent networks
//              replay, as DD-PPO does. `count` divides B.
//
// The host draws them. For a device an epoch's are copied there at once, by
// Shuffle: a minibatch copies nothing.
//
// Not thread-safe.
class Minibatches {
 public:
  // `rollout`, which lies on the host, is borrowed and must outlive this; the
  // minibatches are for `device`.
  Minibatches(const Rollout& rollout, int count, bool by_column,
              torch::Device device = torch::kCPU);

  int count() const { return count_; }
  int64_t valid_steps() const { return static_cast<int64_t>(steps_.size()); }

  void Shuffle(Random* rng);

  // The m-th; valid until the next Get or Shuffle.
  Minibatch Get(int m);

 private:
  Minibatch GetOnHost(int m);
  void ToDevice();

  const Rollout& rollout_;
  const int count_;
  const bool by_column_;
  const torch::Device device_;
  std::vector<int32_t> steps_;     // valid ones
  std::vector<int32_t> columns_;   // all B
  std::vector<int32_t> gathered_;  // the valid steps of one part's columns
  std::vector<Minibatch> there_;   // an epoch's, if they are for a device
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_MINIBATCHES_H_
