#ifndef FLOTILLA_LEARNER_COLLECTIVE_HOST_COLLECTIVE_H_
#define FLOTILLA_LEARNER_COLLECTIVE_HOST_COLLECTIVE_H_

#include <cstdint>

#include "learner/collective/collective.h"

namespace flotilla {

// What collectives over host memory have in common: tensors are checked and
// flattened, and those of a GPU take a detour through the host.
class HostCollective : public Collective {
 public:
  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }

  // Errors besides the interface's: kInvalidArgument for another dtype or a
  // tensor that is not contiguous; the collective stays usable.
  absl::Status AllReduceSum(torch::Tensor tensor) override;

  // Any dtype.
  absl::Status Broadcast(torch::Tensor tensor, int root) override;

 protected:
  HostCollective(int rank, int world_size)
      : rank_(rank), world_size_(world_size) {}

  // `flat` is [N] float32, float64, int64 or bfloat16 in host memory.
  virtual absl::Status SumOnHost(torch::Tensor flat) = 0;
  // `bytes` is [N] uint8 in host memory.
  virtual absl::Status BroadcastOnHost(torch::Tensor bytes, int root) = 0;

 private:
  const int rank_;
  const int world_size_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_HOST_COLLECTIVE_H_
