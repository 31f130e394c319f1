#ifndef FLOTILLA_LEARNER_KERNELS_MLP_Q_H_
#define FLOTILLA_LEARNER_KERNELS_MLP_Q_H_

#include <cstdint>

#include "learner/kernels/isa/kernel_table.h"
#include "learner/kernels/isa/workspace.h"
#include "learner/kernels/mlp_shape.h"
#include "learner/kernels/q_loss.h"

namespace flotilla {

// An MLP Q network (MlpOutput::kQ or kDuelingQ): values, and the gradient of
//
//   sum of weight * (Q(s, a) - y)^2, or of weight * h(Q(s, a) - y) with Huber's
//   h(d) = d^2 / 2 where |d| < 1, else |d| - 1/2
//
// written by hand as MlpActorCritic is, with its properties: a copy of the
// parameters, no allocation, the same bits for the same inputs, whatever the
// rows around.
//
// Not thread-safe: each thread has its own.
class MlpQ {
 public:
  // `training` makes room for Gradient.
  MlpQ(const MlpShape& shape, bool training,
       const KernelTable& kernels = BestKernels());

  // Copies `parameters`, laid out as ParameterLayout says. Must be called
  // before anything below.
  void SetParameters(const float* parameters);

  // Q [N, A] of observations [N, D].
  void Values(const float* observations, int64_t rows, float* q);

  // Writes the loss's gradient [P], summed over the samples, and Q(s, a) - y of
  // each to `error` [N].
  QSums Gradient(const QSamples& samples, bool huber, float* error,
                 float* gradient);

  const MlpShape& shape() const { return shape_; }

 private:
  const MlpShape shape_;
  const KernelTable& kernels_;
  const bool training_;
  Workspace workspace_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_MLP_Q_H_
