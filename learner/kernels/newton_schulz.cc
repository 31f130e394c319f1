#include "learner/kernels/newton_schulz.h"

#include "glog/logging.h"
#include "learner/kernels/isa/aligned_floats.h"
#include "learner/kernels/isa/newton_schulz_plan.h"

namespace flotilla {

void OrthogonalizeByTiles(int64_t rows, int64_t columns, const float* matrix,
                          float* orthogonal, const KernelTable& kernels) {
  CHECK(kernels.has_tiles) << kernels.name;
  const NewtonSchulzPlan plan(rows, columns);
  const AlignedFloats room = MakeAlignedFloats(plan.room());
  kernels.orthogonalize_bfloat16(plan, matrix, room.get(), orthogonal);
}

}  // namespace flotilla
