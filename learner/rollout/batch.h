#ifndef FLOTILLA_LEARNER_ROLLOUT_BATCH_H_
#define FLOTILLA_LEARNER_ROLLOUT_BATCH_H_

#include <cstdint>
#include <vector>

#include "learner/device/transfer.h"
#include "learner/rollout/observations.h"
#include "learner/torch.h"
#include "services/env/spaces.h"

namespace flotilla {

// M observations: one tensor for each of Spaces.observation.
//
//   kVector    [M, D] float32, or [M, k, D]
//   kImage     [M, k, H, W], [M, k, H, W, C] or [M, k, C, H, W]; uint8 or float32
//   kDiscrete  [M, K] int64, or [M, k, K]
//   kMask      [M, L] uint8
struct Batch {
  std::vector<torch::Tensor> leaf;

  int64_t size() const { return leaf[0].size(0); }
  // As ToDevice.
  Batch To(torch::Device device) const {
    Batch there;
    for (const torch::Tensor& t : leaf) {
      there.leaf.push_back(ToDevice(t, device));
    }
    return there;
  }
  // Rows [first, first + rows), as views.
  Batch Narrow(int64_t first, int64_t rows) const {
    Batch some;
    for (const torch::Tensor& t : leaf) {
      some.leaf.push_back(t.narrow(0, first, rows));
    }
    return some;
  }
  // These rows, then the others'.
  Batch Append(const Batch& others) const {
    Batch all;
    for (size_t i = 0; i < leaf.size(); ++i) {
      all.leaf.push_back(torch::cat({leaf[i], others.leaf[i]}));
    }
    return all;
  }
};

// The same of what a policy is shown, as views: they must not outlive it.
Batch Borrow(const Observations& seen, const Spaces& spaces);

torch::Dtype TorchType(v1::DType dtype);

// Of `rows` rows of one leaf in a Batch.
std::vector<int64_t> BatchShape(const LeafSpec& spec, int64_t rows);

// What was done: `discrete` if there are K > 0 choices, `continuous` if there are
// A > 0 values. Leading dimensions are those of what it belongs to.
struct Actions {
  torch::Tensor discrete;    // [..., K] int64
  torch::Tensor continuous;  // [..., A] float32

  template <typename Function>
  Actions Map(Function function) const {
    Actions out;
    if (discrete.defined()) out.discrete = function(discrete);
    if (continuous.defined()) out.continuous = function(continuous);
    return out;
  }
};

// Zeros, [leading..., K] and [leading..., A].
Actions MakeActions(const ActionSpace& space, std::vector<int64_t> leading,
                    bool pinned = false);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ROLLOUT_BATCH_H_
