#ifndef FLOTILLA_LEARNER_REPLAY_REPLAY_BUFFER_H_
#define FLOTILLA_LEARNER_REPLAY_REPLAY_BUFFER_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "learner/replay/sum_tree.h"
#include "learner/rollout/batch.h"
#include "learner/rollout/observation_store.h"
#include "learner/rollout/rollout.h"
#include "learner/torch.h"
#include "services/base/random.h"
#include "services/env/spaces.h"

namespace flotilla {

// N transitions of up to n steps, on Options::device. For one that starts at
// step t and spans k steps,
//
//   target = n_step_return + discount * value(next_observation)
//          = sum_{i < k} gamma^i reward(t + i) + gamma^k value(...)
struct ReplayBatch {
  Batch observation;            // of N
  Actions action;               // [N, ...]
  torch::Tensor n_step_return;  // [N] float32
  torch::Tensor discount;       // [N] float32  gamma^k; 0 after a termination
  Batch next_observation;       // of N; any where discount is 0
  torch::Tensor weight;         // [N] float32  importance weights, 1 at most
  std::vector<int64_t> id;      // [N]  for SetErrors, until the next Add
};

// The newest `capacity` transitions of B environments, which become
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
// On a device an observation crosses once, when it is added, and not even then if an
// actor that decides there has left it (Rollout::there); of what is drawn, places
// cross and numbers.
//
// Not thread-safe.
class ReplayBuffer {
 public:
  struct Options {
    int64_t capacity = 100000;  // transitions
    int n_step = 1;
    double discount = 0.99;
    double priority_alpha = 0;  // 0: uniform
    // Where samples are to be, and where observations are held: there, or by the
    // host (runtime.rollouts_on). Everything else is held by the host.
    torch::Device device = torch::kCPU;
    torch::Device memory = torch::kCPU;
  };

  // `rows` is B. Allocates everything; pages are touched as they fill.
  ReplayBuffer(const Spaces& spaces, int64_t rows, const Options& options);

  void Add(const Rollout& rollout);

  // Of what is drawn from now on.
  void set_discount(double discount) { options_.discount = discount; }

  // Steps held, lost ones between them included; `capacity`, rounded up
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

  // All that is held, in copies of its own: what Restore takes, and a checkpoint
  // keeps (checkpoint.replay). Blocks for as long as copying takes, and needs
  // that memory again.
  using Contents = std::map<std::string, torch::Tensor>;
  Contents Copy() const;

  // Holds what another one of the same sizes held, so that it draws the same
  // from then on; for one that holds nothing yet. Environments are taken to begin
  // anew: what was open is cut at the next Add, however alike observations are.
  // Errors: kFailedPrecondition, naming what differs, and kDataLoss, naming the
  // tensor, if `contents` is no such thing; nothing is changed then.
  absl::Status Restore(const Contents& contents);

 private:
  struct Step {
    float reward;
    bool valid, terminated, truncated;
  };

  // Steps count from 0 for ever; `Leaf` is where one lies in the ring.
  int64_t Leaf(int64_t step, int64_t row) const {
    return step % length_ * rows_ + row;
  }
  int64_t StepOf(int64_t leaf) const;
  // Of the ring, what has been written: steps up to the newest observation.
  int64_t written() const { return std::min(count_ + 1, length_); }
  absl::Status CheckSizes(const Contents& contents) const;
  absl::Status CheckValues(const Contents& contents) const;
  void CutWhereNotContinued(const Rollout& r);
  void ExpireOldest();
  void StoreAction(const Rollout& r, int64_t t);
  void StoreOutcome(const Rollout& r, int64_t t);
  void CloseWindows();
  void MakeReady(int64_t first, int64_t last, int64_t row);

  const ActionSpace action_;
  Options options_;
  const int64_t rows_;      // B
  const int64_t capacity_;  // transitions a row
  const int64_t length_;    // of the ring: older frames and the newest one more

  int64_t count_ = 0;  // steps stored; observation `count_` is the newest
  std::vector<int64_t> open_;  // [B]  steps up to the newest not closed yet
  ObservationStore observations_;
  std::vector<int32_t> discrete_;                             // [length, B, K]
  std::vector<float> continuous_;                             // [length, B, A]
  std::vector<Step> steps_;                                   // [length, B]
  std::unordered_map<int64_t, std::vector<uint8_t>> finals_;  // by leaf
  SumTree priorities_;     // ^ alpha; 0: not to be drawn
  double largest_ = 1;     // priority ^ alpha so far
  bool restored_ = false;  // and nothing was added since
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_REPLAY_REPLAY_BUFFER_H_
