#ifndef FLOTILLA_LEARNER_REPLAY_REPLAY_BUFFER_H_
#define FLOTILLA_LEARNER_REPLAY_REPLAY_BUFFER_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "learner/kernels/draws.h"
#include "learner/replay/resident_draws.h"
#include "learner/replay/sum_tree.h"
#include "learner/rollout/batch.h"
#include "learner/rollout/observation_store.h"
#include "learner/rollout/rollout.h"
#include "learner/torch.h"
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
  torch::Tensor id;             // [N] int32  for SetErrors, until the next Add;
                                // where the replay is (Options::memory)

  // On a CPU what the rest are views of, [2 N, ...] what was seen, then what followed,
  // and [3, N], which Sample fills again: from one replay alone.
  Batch seen = {};
  torch::Tensor numbers = {};
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
// failed collection) cuts those rows there, so that nothing is ever spliced. After
// the last step of a rollout that was lost, or that pads a row of an agent whose
// turns were fewer (AgentCollector), windows are cut likewise, and stacks begin with
// what was seen next.
//
// On a device an observation crosses once, when it is added, and not even then if an
// actor that decides there has left it (Rollout::there); so does a transition, when its
// window is closed. What is drawn comes from there, and the host neither copies nor
// waits for it.
//
// Not thread-safe.
class ReplayBuffer {
 public:
  struct Options {
    int64_t capacity = 100000;  // transitions
    int n_step = 1;
    double discount = 0.99;
    double priority_alpha = 0;  // 0: uniform
    // Where samples are to be, and where they are drawn from: there, or on the host
    // (runtime.rollouts_on). The host holds all but observations and priorities in
    // either case.
    torch::Device device = torch::kCPU;
    torch::Device memory = torch::kCPU;
  };

  // `rows` is B. Allocates everything; pages are touched as they fill.
  ReplayBuffer(const Spaces& spaces, int64_t rows, const Options& options);

  void Add(const Rollout& rollout);

  // Of what is drawn from now on.
  void set_discount(double discount);

  // Steps held, lost ones between them included; `capacity`, rounded up
  // to whole rows, at most.
  int64_t size() const;

  // Draws n transitions, each for itself and with replacement, in proportion to
  // priority ^ alpha: that of its last SetErrors, or the largest so far.
  // Weights are (least priority / its priority) ^ (alpha beta). The same
  // contents and `draws` draw the same, wherever the replay is: of n places one for
  // each. Returns false, drawing nothing, while no window is closed. On a CPU the
  // memory of a batch of as many is filled again, and what was kept of it changes.
  bool Sample(int64_t n, double beta, Draws* draws, ReplayBatch* batch) const;

  // The priorities of `id` are now |TD error|, `td_error` [N] float32; of one that
  // comes twice, the last. Blocks if that is on a device and the replay is not.
  // Nothing to do when alpha is 0.
  void SetErrors(const torch::Tensor& id, const torch::Tensor& td_error);

  // Memory held, on the host and on a device, final observations included.
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
    bool drawable;
  };
  // What followed a time limit.
  struct Final {
    std::vector<uint8_t> row;
    int64_t slot = -1;  // on a device
  };
  // An n-step transition whose window is closed.
  struct Window {
    float n_step_return = 0;
    float discount = 0;
    int64_t end = 0;               // the step that it bootstraps from
    const Final* final = nullptr;  // or what followed that
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
  void SetDrawable(int64_t leaf, bool drawable);
  void KeepFinal(int64_t leaf, const uint8_t* row);
  void DropFinal(int64_t leaf);
  Window WindowOf(int64_t leaf) const;
  void MakeRoom(int64_t n, ReplayBatch* batch) const;
  // Views of what is in that room, on Options::device.
  void Hand(int64_t n, ReplayBatch* batch) const;
  // To the device, if the replay is there, what it does not know yet; or all of it.
  void SendChanges();
  void SendEverything();
  void SampleThere(int64_t n, double beta, Draws* draws,
                   ReplayBatch* batch) const;
  // Blocks where they are on a device.
  ResidentDraws::Weights ReadWeights() const;

  const ActionSpace action_;
  Options options_;
  const int64_t rows_;      // B
  const int64_t capacity_;  // transitions a row
  const int64_t length_;    // of the ring: older frames and the newest one more

  int64_t count_ = 0;  // steps stored; observation `count_` is the newest
  std::vector<int64_t> open_;  // [B]  steps up to the newest not closed yet
  ObservationStore observations_;
  std::vector<int32_t> discrete_;              // [length, B, K]
  std::vector<float> continuous_;              // [length, B, A]
  std::vector<Step> steps_;                    // [length, B]
  int64_t drawable_ = 0;                       // of steps_
  std::unordered_map<int64_t, Final> finals_;  // by leaf
  // One of the two: on a device, and on the host what leaves weigh there, priority ^
  // alpha, 0 if they are not to be drawn, with the largest so far.
  const std::unique_ptr<ResidentDraws> there_;
  SumTree weights_;
  double largest_ = 1;
  bool restored_ = false;  // and nothing was added since
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_REPLAY_REPLAY_BUFFER_H_
