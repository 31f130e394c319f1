#ifndef FLOTILLA_LEARNER_ALGO_TD_LOSS_H_
#define FLOTILLA_LEARNER_ALGO_TD_LOSS_H_

#include <vector>

#include "flotilla/v1/config.pb.h"
#include "learner/algo/gradient_shards.h"
#include "learner/kernels/mlp_q.h"
#include "learner/nn/gradient_factors.h"
#include "learner/nn/q_network.h"
#include "learner/replay/replay_buffer.h"
#include "learner/torch.h"

namespace flotilla {

struct TdSums {
  torch::Tensor error;  // [N] float32, on the host: Q(s, a) - target
  double loss = 0;      // weighted, over the batch
  double q = 0;         // Q(s, a), over the batch
};

// Leaves in `net`'s gradients the sum, not the mean, over the batch of the
// gradient of
//
//   weight * (Q(s, a) - y)^2     (Huber with threshold 1: config.huber)
//   y = n_step_return + discount * Q_target(s', argmax_a' Q(s', a'))
//
// where the argmax is over the actions that s' allows, and of `net` (van Hasselt
// et al. 2016), or of `target` if not config.double_q (Mnih et al. 2015). `batch`
// is on the networks' device.
//
// Of several choices both Q(s, a) and the target's are means over the choices' own
// (Tavakoli et al. 2018, who found a common target best; the loss is of the mean
// of their Qs).
//
// With `factors` the gradient of their weight is left there (fresh_gradients.h).
TdSums ComputeTdGradient(const QNetwork& net, const QNetwork& target,
                         const ReplayBatch& batch, const v1::DqnConfig& config,
                         GradientFactors* factors = nullptr);

// The same, of which the host knows nothing yet: loss, q and errors, [2 + N] float32
// on the networks' device.
torch::Tensor ComputeTdGradientThere(const QNetwork& net,
                                     const QNetwork& target,
                                     const ReplayBatch& batch,
                                     const v1::DqnConfig& config,
                                     GradientFactors* factors = nullptr);

// The same by hand-written kernels, for networks with a KernelShape: what takes
// Torch half a millisecond takes them a tenth. Torch's threads share the samples
// (gradient_shards.h). Not thread-safe.
class TdKernels {
 public:
  explicit TdKernels(const MlpShape& shape) : shape_(shape) {}

  // `target` is as it is now until the next call, which must be before Compute.
  void SetTarget(const QNetwork& target);

  TdSums Compute(const QNetwork& net, const ReplayBatch& batch,
                 const v1::DqnConfig& config);

 private:
  struct Shard {
    MlpQ net, target;
    bool has_target = false;
    std::vector<float> next = {}, judged = {}, y = {};
  };

  const MlpShape shape_;
  std::vector<float> target_;  // [P]
  std::vector<Shard> kernels_;
  GradientShards shards_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_TD_LOSS_H_
