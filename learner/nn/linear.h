#ifndef FLOTILLA_LEARNER_NN_LINEAR_H_
#define FLOTILLA_LEARNER_NN_LINEAR_H_

#include "learner/nn/numbers.h"
#include "learner/torch.h"

namespace flotilla {

// linear(x, weight, bias), and a ReLU after it if `relu`, by kernels of this project
// (learner/kernels/linear.h), with its gradients.
//
//   x       [N, in] float32 or bfloat16
//   weight  [out, in] float32, for bfloat16 rounded on its way
//   bias    [out] float32
//   result  [N, out] float32
//
// Sums are in float32, and so are the gradients of weight and bias. Of rows from
// `learned` on nothing is learned, as ConvolveRelu has it. For what IsLinearByKernel.
// Thread-safe; Torch's threads share numbers out and in. Errors: a gradient of its
// gradient throws c10::Error.
torch::Tensor LinearByKernel(const torch::Tensor& x,
                             const torch::Tensor& weight,
                             const torch::Tensor& bias, bool relu,
                             int64_t learned = kAllRows);

// Whether LinearByKernel takes this weight for an x of `dtype`: on a CPU, with numbers
// in and out in multiples of kLinearWidth; in bfloat16 only where
// KernelsMultiplyBfloat16 (convolution.h), in float32 above 256 Ki weights.
bool IsLinearByKernel(const torch::Tensor& weight, torch::Dtype dtype);

// Weights for LinearByPacked, which is the same bits without gradients: for who
// decides by the same weights often. [out * in] of `dtype`, as x then is.
torch::Tensor PackLinearWeight(const torch::Tensor& weight, torch::Dtype dtype);
torch::Tensor LinearByPacked(const torch::Tensor& x,
                             const torch::Tensor& packed,
                             const torch::Tensor& bias, bool relu);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_LINEAR_H_
