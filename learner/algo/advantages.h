#ifndef FLOTILLA_LEARNER_ALGO_ADVANTAGES_H_
#define FLOTILLA_LEARNER_ALGO_ADVANTAGES_H_

#include "learner/cuda/operators.h"
#include "learner/rollout/rollout.h"
#include "learner/torch.h"

namespace flotilla {

// What a rollout's steps are worth, computed where the rollout is: by
// learner/kernels on the host; on a device in one operator (learner/cuda), for which
// the host does not wait. Both to the rounding of float32.
//
// `terminated` [T, B] uint8 is where nothing is bootstrapped from.

struct GaeNumbers {
  double discount = 0.99;
  double lambda = 0.95;
};
// See kernels/gae.h. Writes `advantage` and `returns`, [T, B] float32.
void EstimateGae(const Rollout& rollout, const torch::Tensor& terminated,
                 const GaeNumbers& numbers, torch::Tensor* advantage,
                 torch::Tensor* returns);

// See kernels/vtrace.h, of which `value` [T + 1, B] and `log_prob` [T, B] are what
// the policy being learned makes of the rollout. Writes `target` and `advantage`,
// [T, B] float32.
void EstimateVtrace(const Rollout& rollout, const torch::Tensor& value,
                    const torch::Tensor& log_prob,
                    const torch::Tensor& terminated,
                    const VtraceNumbers& numbers, torch::Tensor* target,
                    torch::Tensor* advantage);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_ADVANTAGES_H_
