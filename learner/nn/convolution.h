#ifndef FLOTILLA_LEARNER_NN_CONVOLUTION_H_
#define FLOTILLA_LEARNER_NN_CONVOLUTION_H_

#include <cstdint>

#include "learner/nn/numbers.h"
#include "learner/torch.h"

namespace flotilla {

// relu(conv2d(x, weight, bias, stride)) without padding, by kernels of this
// project (learner/kernels/convolution.h), with its gradients.
//
//   x       [N, C, H, W] float32 or bfloat16, fastest with its channels last
//   weight  [out, C, kernel, kernel] float32, to which bfloat16 are rounded
//   bias    [out] float32
//   result  [N, out, H', W'] of x's type, its channels last
//
// Sums are in float32, and so are the gradients of weight and bias. Of images from
// `learned` on nothing is learned: what comes back to them is taken for zeros.
//
// For what ConvolvesByKernel. Thread-safe; Torch's threads share the images. Errors: a
// gradient of its gradient throws c10::Error.
torch::Tensor ConvolveRelu(const torch::Tensor& x, const torch::Tensor& weight,
                           const torch::Tensor& bias, int64_t stride,
                           int64_t learned = kAllRows);

// Whether ConvolveRelu takes them: on a CPU, a square kernel that fits into the
// images, `out` a multiple of kConvolutionWidth, and C too if x needs a gradient; no
// more weights than are fast so. In bfloat16 only where KernelsMultiplyBfloat16, and C
// even.
bool ConvolvesByKernel(const torch::Tensor& x, const torch::Tensor& weight);

// Whether it takes this weight for some images of `dtype`.
bool IsConvolutionByKernel(const torch::Tensor& weight, torch::Dtype dtype);

// Weights for ConvolveReluByPacked, which is the same bits without gradients: for who
// decides by the same weights often. Of `dtype`, as the images then are, whose size is
// [.., height, width]; as many numbers as kernels make of them.
torch::Tensor PackConvolutionWeight(const torch::Tensor& weight, int64_t height,
                                    int64_t width, int64_t stride,
                                    torch::Dtype dtype);
torch::Tensor ConvolveReluByPacked(const torch::Tensor& x,
                                   const torch::Tensor& packed,
                                   const torch::Tensor& bias, int64_t kernel,
                                   int64_t stride);

// `x`, [N, C, H, W] or others, contiguous, as layers after a convolution want it, with its
// gradient.
// Thread-safe; Torch's threads share the images.
torch::Tensor ChannelsFirst(const torch::Tensor& x);

// Whether bfloat16 is multiplied by kernels of this project: by tiles, or by an
// instruction twice as fast as float32's (services/base/precision.h).
bool KernelsMultiplyBfloat16();

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_CONVOLUTION_H_
