#ifndef FLOTILLA_LEARNER_REPLAY_RESIDENT_DRAWS_H_
#define FLOTILLA_LEARNER_REPLAY_RESIDENT_DRAWS_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "learner/cuda/operators.h"
#include "learner/kernels/draws.h"
#include "learner/replay/sum_tree.h"
#include "learner/rollout/batch.h"
#include "learner/torch.h"
#include "services/env/spaces.h"

namespace flotilla {

// What a replay draws by, in memory of a device: a sum tree over its leaves (cuda/
// sum_tree.h), of each leaf the transition that starts there, and the final
// observations of time limits. The host knows a transition when its window closes, and
// says then what it is; draws and errors are the device's alone, and the host neither
// copies nor waits for them.
//
// Not thread-safe.
class ResidentDraws {
 public:
  struct Transition {
    float n_step_return = 0;
    float discount = 0;
    int64_t end = 0;  // leaf of what it bootstraps from
    int64_t slot =
        -1;  // of the final observation that followed that, if one did
    const int32_t* discrete = nullptr;  // [K]
    const float* continuous = nullptr;  // [A]
  };

  // Of `leaves` leaves, none of which weighs anything; a final observation takes
  // `row_bytes`.
  ResidentDraws(int64_t leaves, const ActionSpace& action, int64_t row_bytes,
                torch::Device device);

  // What changed since the last Send, which takes it there. A leaf weighs as much as
  // the largest so far, or nothing, or what it did while its transition is another.
  void SetDrawable(int64_t leaf, bool drawable);
  void SetTransition(int64_t leaf);
  // A slot for a final observation, which must stay as it is until it is dropped or
  // sent.
  int64_t KeepFinal(const uint8_t* row);
  void DropFinal(int64_t slot);
  // `of` says what the transitions are that may be drawn. One copy, and another one
  // where there are final observations; the host does not wait.
  void Send(absl::FunctionRef<Transition(int64_t leaf)> of);

  // N draws by the next N of `draws`, all on the device.
  struct Drawn {
    torch::Tensor leaf;           // [N] int32
    Actions action;               // [N, ...]
    torch::Tensor n_step_return;  // [N] float32
    torch::Tensor discount;       // [N] float32
    torch::Tensor weight;         // [N] float32
    // For ObservationStore::GatherThere: what was seen, and then what followed.
    torch::Tensor place;  // [2 N] int32
    torch::Tensor slot;   // [N] int32
  };
  Drawn Draw(int64_t n, double beta, Draws* draws) const;
  const torch::Tensor& finals() const { return finals_; }  // [S, row_bytes]

  // `leaf` [N] int32 and `error` [N] float32 are on the device.
  void SetErrors(const torch::Tensor& leaf, const torch::Tensor& error,
                 double alpha) {
    SetLeafErrors(tree_, leaf, error, alpha);
  }

  // What leaves weigh, and the largest weight so far. Blocks.
  struct Weights {
    torch::Tensor leaf;  // [leaves] float64, on the host
    double largest = 1;
  };
  Weights ReadWeights() const;
  // Becomes `tree`, of as many leaves. Blocks.
  void WriteWeights(const SumTree& tree, double largest);

  int64_t bytes() const;  // on the device

 private:
  void SendFinals();

  const int64_t leaves_;
  const int64_t K_, A_;
  const int64_t row_bytes_;
  const torch::Device device_;

  SumTreeTensors tree_;
  // [4 + K + A, leaves] int32: the bits of n-step returns and of discounts, ends,
  // slots, discrete actions, the bits of continuous ones.
  torch::Tensor transitions_;
  torch::Tensor finals_;  // [slots, row_bytes] uint8

  std::vector<int64_t> changed_;  // leaves, each once
  std::vector<int8_t> mark_;   // [leaves]  MarkLeavesArgs::Mark of those; or -1
  int64_t slots_ = 0;          // that were ever in use
  std::vector<int64_t> free_;  // and of these, those that are not
  std::unordered_map<int64_t, const uint8_t*> new_finals_;  // by slot
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_REPLAY_RESIDENT_DRAWS_H_
