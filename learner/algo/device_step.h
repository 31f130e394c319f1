#ifndef FLOTILLA_LEARNER_ALGO_DEVICE_STEP_H_
#define FLOTILLA_LEARNER_ALGO_DEVICE_STEP_H_

#include <cstdint>

#include "flotilla/v1/config.pb.h"
#include "learner/kernels/adam_update.h"
#include "learner/nn/flat_parameters.h"
#include "learner/torch.h"

namespace flotilla {

// The clipped step of GradientStep where the weights are, on a device, of which the
// host knows nothing before it asks: the norm, the coefficient that clips, the step
// count and the learning rate stay there. Adam and RMSprop are one operator
// (cuda/adam.h). After a gradient that is not finite it
// leaves weights, moments and count as they are, until the next Begin.
//
// Not thread-safe.
class DeviceStep {
 public:
  // The moments are GradientStep's, [P] on the device.
  DeviceStep(const FlatParameters& net, const v1::OptimizerConfig& config,
             const torch::Tensor& moment1, const torch::Tensor& moment2);

  // Steps as `config` says from now on, which is of the same optimizer.
  void Reconfigure(const v1::OptimizerConfig& config) { config_ = config; }

  // Steps from here on count from `count`.
  void Begin(int64_t count);

  // Of the steps from here on.
  void SetLearningRate(double learning_rate);

  // Takes the gradients over `divisor`: a number of the host, or one that the
  // device knows, [] float32; where that is 0 nothing is done and counted. A graph
  // of it takes the learning rate that is set by then, but for Muon.
  void Step(double divisor);
  void Step(const torch::Tensor& divisor);

  // What the host wants to know after the steps since Begin, [2] float64: the sum
  // of the norms before clipping, not finite if one was not; steps that counted.
  torch::Tensor Done() const { return done_; }

 private:
  // `divisor` may be undefined: then it is the host's.
  void Take(const torch::Tensor& divisor, double host_divisor);
  void TakeMuon(const torch::Tensor& divisor);

  const FlatParameters net_;
  v1::OptimizerConfig config_;
  torch::Tensor moment1_, moment2_;  // [P]
  torch::Tensor done_;               // [2] float64
  torch::Tensor count_;              // [1] float64  for the correction of bias
  torch::Tensor learning_rate_;      // [1] float64
  double host_learning_rate_ = 0;    // the same
};

// What of `config` Adam's kernels take, learning rate and scale of the gradient aside.
// RMSprop is Adam without a first moment and without a correction of bias.
AdamOptions AdamOptionsOf(const v1::OptimizerConfig& config);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_DEVICE_STEP_H_
