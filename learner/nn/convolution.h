#ifndef FLOTILLA_LEARNER_NN_CONVOLUTION_H_
#define FLOTILLA_LEARNER_NN_CONVOLUTION_H_

#include <cstdint>

#include "learner/torch.h"

namespace flotilla {

// relu(conv2d(x, weight, bias, stride)) without padding, by kernels of this
// project (learner/kernels/convolution.h), with its gradients.
//
//   x       [N, C, H, W] float32, fastest with its channels last
//   weight  [out, C, kernel, kernel] float32
//   bias    [out] float32
//   result  [N, out, H', W'] float32, its channels last
//
// For what ConvolvesByKernel. Thread-safe; Torch's threads share the images. Errors: a
// gradient of its gradient throws c10::Error.
torch::Tensor ConvolveRelu(const torch::Tensor& x, const torch::Tensor& weight,
                           const torch::Tensor& bias, int64_t stride);

// Whether ConvolveRelu takes them: on a CPU, a square kernel that fits into the
// images, `out` a multiple of kConvolutionWidth, and C too if x needs a gradient; no
// more weights than are fast so.
bool ConvolvesByKernel(const torch::Tensor& x, const torch::Tensor& weight);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_CONVOLUTION_H_
