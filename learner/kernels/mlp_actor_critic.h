#ifndef FLOTILLA_LEARNER_KERNELS_MLP_ACTOR_CRITIC_H_
#define FLOTILLA_LEARNER_KERNELS_MLP_ACTOR_CRITIC_H_

#include <cstdint>

#include "learner/kernels/isa/kernel_table.h"
#include "learner/kernels/isa/workspace.h"
#include "learner/kernels/mlp_shape.h"

namespace flotilla {

// An MLP actor-critic that decides: the forward pass and sampling, written by
// hand because a general tensor library spends tens of microseconds a call on
// networks whose arithmetic takes one.
//
// Keeps its own copy of the parameters, arranged for the forward pass, so that
// the caller's may change. Allocates only when made. The same inputs give the
// same bits, and a row's results do not depend on the rows around it.
//
// Not thread-safe: each thread has its own.
class MlpActorCritic {
 public:
  // `kernels` must be runnable on this machine (see kernel_table.h).
  explicit MlpActorCritic(const MlpShape& shape,
                          const KernelTable& kernels = BestKernels());

  // Copies `parameters`, laid out as ParameterLayout says. Must be called
  // before anything below. About a microsecond per ten thousand parameters.
  void SetParameters(const float* parameters);

  // The networks' outputs for observations [N, D]. `policy` [N, A] receives
  // logits, whatever is forbidden, or means if continuous; `value` [N]. Either may
  // be null, and a network whose output nobody wants does not run.
  void Forward(const float* observations, int64_t rows, float* policy,
               float* value);

  // Discrete actions: inverts the cumulative distribution of each choice at
  // `uniforms` [N, K], each in [0, 1); null takes the most likely value, the first if
  // several are. Of `mask` [N, A] a 0 forbids a value, of a choice that allows any;
  // null forbids none. What is forbidden is not taken where logits are NaN either, and
  // `log_prob` is NaN then. Writes `action` [N, K], `log_prob` [N], of all choices
  // together, and, unless it is null, `value` [N].
  void DecideDiscrete(const float* observations, const uint8_t* mask,
                      int64_t rows, const float* uniforms, int64_t* action,
                      float* log_prob, float* value);

  // Continuous actions: mean + std * `normals` [N, A]; null takes the mean.
  // `action` is [N, A], not clipped to any bounds, `log_prob` summed over A;
  // `value` may be null.
  void DecideContinuous(const float* observations, int64_t rows,
                        const float* normals, float* action, float* log_prob,
                        float* value);

  const MlpShape& shape() const { return shape_; }

 private:
  const MlpShape shape_;
  const KernelTable& kernels_;
  Workspace workspace_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_MLP_ACTOR_CRITIC_H_
