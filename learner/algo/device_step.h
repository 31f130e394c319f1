#ifndef FLOTILLA_LEARNER_ALGO_DEVICE_STEP_H_
#define FLOTILLA_LEARNER_ALGO_DEVICE_STEP_H_

#include <cstdint>

#include "flotilla/v1/config.pb.h"
#include "learner/nn/flat_parameters.h"
#include "learner/torch.h"

namespace flotilla {

// The clipped step of GradientStep where the weights are, on a device, of which the
// host knows nothing before it asks: the norm, the coefficient that clips, the step
// count and the learning rate stay there. After a gradient that is not finite it
// leaves weights, moments and count as they are, until the next Begin.
//
// Not thread-safe.
class DeviceStep {
 public:
  // The moments are GradientStep's, [P] on the device.
  DeviceStep(const FlatParameters& net, const v1::OptimizerConfig& config,
             const torch::Tensor& moment1, const torch::Tensor& moment2);

  // Steps from here on count from `count`.
  void Begin(int64_t count);

  // Takes the gradients over `divisor`: a number of the host, or one that the
  // device knows, [] float32; where that is 0 nothing is done and counted.
  void Step(double divisor, double learning_rate);
  void Step(const torch::Tensor& divisor, double learning_rate);

  // What the host wants to know after the steps since Begin, [2] float64: the sum
  // of the norms before clipping, not finite if one was not; steps that counted.
  torch::Tensor Done() const { return done_; }

 private:
  // Of the gradients over `scale`, [] float32, unless `skip`, [] bool.
  void Take(const torch::Tensor& scale, const torch::Tensor& skip,
            double learning_rate);
  void TakeUnfused(const torch::Tensor& scale, const torch::Tensor& skip,
                   double learning_rate);

  const FlatParameters net_;
  const v1::OptimizerConfig config_;
  torch::Tensor moment1_, moment2_;  // [P]
  torch::Tensor done_;               // [2] float64
  torch::Tensor norms_, steps_;      // its numbers, []
  torch::Tensor count_;              // [1] float32  for the correction of bias
  torch::Tensor learning_rate_;      // [] float32
  double last_learning_rate_ = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_DEVICE_STEP_H_
