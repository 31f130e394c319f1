#ifndef FLOTILLA_LEARNER_KERNELS_ISA_WORKSPACE_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_WORKSPACE_H_

#include <cstdint>
#include <vector>

#include "learner/kernels/isa/aligned_floats.h"
#include "learner/kernels/isa/mlp_plan.h"
#include "learner/kernels/mlp_shape.h"

namespace flotilla {

// The plan of one network and the memory it describes, allocated once.
//
// Not thread-safe: a computation owns its workspace while it runs.
class Workspace {
 public:
  // `training` makes room for gradients.
  Workspace(const MlpShape& shape, bool training);

  const MlpPlan& plan() const { return plan_; }
  float* data() { return data_.get(); }

 private:
  std::vector<LayerPlan> layers_;
  std::vector<int32_t> first_logit_;  // [K + 1]
  MlpPlan plan_;
  AlignedFloats data_;  // [workspace_size]
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_WORKSPACE_H_
