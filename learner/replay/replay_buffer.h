#ifndef FLOTILLA_LEARNER_REPLAY_REPLAY_BUFFER_H_
#define FLOTILLA_LEARNER_REPLAY_REPLAY_BUFFER_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "flotilla/v1/config.pb.h"
#include "learner/replay/sum_tree.h"
#include "learner/rollout/rollout.h"
#include "learner/rollout/spaces.h"
#include "learner/torch.h"
#include "services/base/random.h"

namespace flotilla {

// N transitions of up to n steps, on the host. For one that starts at step t
// and spans k steps,
//
//   target = n_step_return + discount * value(next_observation)
//          = sum_{i < k} gamma^i reward(t + i) + gamma^k value(...)
struct ReplayBatch {
  torch::Tensor observation;    // [N, D] float32, or [N, k, H, W] uint8
  torch::Tensor action;         // [N] int64
  torch::Tensor n_step_return;  // [N] float32
  torch::Tensor discount;       // [N] float32  gamma^k; 0 after a termination
  torch::Tensor next_observation;  // as `observation`; any where discount is 0
  torch::Tensor weight;            // [N] float32  importance weights, 1 at most
  std::vector<int64_t> id;         // [N]  for SetErrors, until the next Add
};

// The newest `replay_capacity` transitions of B environments, which become
// n-step transitions when they are drawn.
//
// Time first, as rollouts are; a ring. Every frame is kept once, whatever
// stacks and n-step windows it is part of. A transition can be drawn as soon as
// its window is closed:
//
//   after n steps          k = n, bootstraps from the observation there
//   by a termination       k <= n, bootstraps from nothing
//   by a time limit        k <= n, bootstraps from the final observation
//   by a lost transition   k < n, bootstraps from the last observation before
//
// Windows go on from one rollout to the next, as episodes do. A rollout that
// does not begin with the observation its predecessor ended with (after a
// failed collection) cuts those rows there, so that nothing is ever spliced.
//
// Not thread-safe.
class ReplayBuffer {
 public:
  // `rows` is B. Allocates everything; pages are touched as they fill.
  ReplayBuffer(const Spaces& spaces, int64_t rows, const v1::DqnConfig& config);

  void Add(const Rollout& rollout);

  // Steps held, lost ones between them included; `replay_capacity`, rounded up
  // to whole rows, at most.
  int64_t size() const;

  // Draws n transitions, each for itself and with replacement, in proportion to
  // priority ^ alpha: that of its last SetErrors, or the largest so far.
  // Weights are (least priority / its priority) ^ (alpha beta). The same
  // contents and `rng` draw the same. Returns false, drawing nothing, while no
  // window is closed.
  bool Sample(int64_t n, double beta, Random* rng, ReplayBatch* batch) const;

  // The priorities of `id` are now |TD error|. Nothing to do when alpha is 0.
  void SetErrors(std::span<const int64_t> id, const float* td_error);

  // Memory held, final observations included.
  int64_t bytes() const;

 private:
  struct Step {
    float reward;
    int32_t action;
    uint8_t age;  // frames since the reset, up to k - 1
    bool valid, terminated, truncated;
  };

  // Steps count from 0 for ever; `Leaf` is where one lies in the ring.
  int64_t Leaf(int64_t step, int64_t row) const {
    return step % length_ * rows_ + row;
  }
  int64_t StepOf(int64_t leaf) const;
  void CutWhereNotContinued(const Rollout& r);
  void StoreObservation(const Rollout& r, int64_t t);
  void StoreOutcome(const Rollout& r, int64_t t);
  void CloseWindows();
  void MakeReady(int64_t first, int64_t last, int64_t row);
  void CopyStack(int64_t step, int64_t row, uint8_t* out) const;
  void CopyFinalStack(int64_t step, int64_t row, uint8_t* out) const;
  torch::Tensor EmptyObservations(int64_t n) const;

  const Spaces spaces_;
  const v1::DqnConfig config_;
  const int64_t rows_;      // B
  const int64_t stack_;     // k; 1 for vectors
  const int64_t bytes_;     // of one row's frame or vector
  const int64_t capacity_;  // transitions a row
  const int64_t length_;    // of the ring: older frames and the newest one more

  int64_t count_ = 0;  // steps stored; observation `count_` is the newest
  std::vector<int64_t> open_;   // [B]  steps up to the newest not closed yet
  torch::Tensor observations_;  // [length, B, bytes] uint8
  std::vector<Step> steps_;     // [length, B]
  std::unordered_map<int64_t, std::vector<uint8_t>> finals_;  // by leaf
  SumTree priorities_;  // ^ alpha; 0: not to be drawn
  double largest_ = 1;  // priority ^ alpha so far
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_REPLAY_REPLAY_BUFFER_H_
