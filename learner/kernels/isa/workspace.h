#ifndef FLOTILLA_LEARNER_KERNELS_ISA_WORKSPACE_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_WORKSPACE_H_

#include <cstdlib>
#include <memory>
#include <vector>

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
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };

  std::vector<LayerPlan> layers_;
  MlpPlan plan_;
  std::unique_ptr<float, Free> data_;  // [workspace_size], 64-byte aligned
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_WORKSPACE_H_
