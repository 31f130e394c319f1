#ifndef FLOTILLA_LEARNER_NN_CONVOLUTION_H_
#define FLOTILLA_LEARNER_NN_CONVOLUTION_H_

#include <cstdint>

#include "learner/torch.h"

namespace flotilla {

// relu(conv2d(x, weight, bias, stride)) without padding, by kernels of this
// project (learner/kernels/convolution.h), with its gradients.
//
//   x       [N, C, H, W] float32 on a CPU, fastest with its channels last
//   weight  [out, C, kernel, kernel]
//   result  [N, out, H', W'], its channels last
//
// Thread-safe; Torch's threads share the images.
torch::Tensor ConvolveRelu(const torch::Tensor& x, const torch::Tensor& weight,
                           const torch::Tensor& bias, int64_t stride);

// Whether ConvolveRelu takes them. Else conv2d does.
bool ConvolvesByKernel(const torch::Tensor& x, const torch::Tensor& weight);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_CONVOLUTION_H_
