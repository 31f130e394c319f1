#include "learner/kernels/convolution.h"

#include <vector>

namespace flotilla {

void PackConvolution(const ConvolutionShape& shape, const float* weight,
                     float* packed, const KernelTable& kernels) {
  kernels.convolution_pack(shape, weight, packed);
}

void ConvolutionForward(const ConvolutionShape& shape,
                        const ConvolutionImages& images,
                        const KernelTable& kernels) {
  kernels.convolution_forward(shape, images);
}

void ConvolutionBackward(const ConvolutionShape& shape,
                         const ConvolutionBack& images,
                         const KernelTable& kernels) {
  std::vector<float> turned;
  if (images.to_x != nullptr) {
    // [kernel, out, kernel, in]
    turned.resize(static_cast<size_t>(shape.weights()));
    const int64_t K = shape.kernel;
    const float* weight = images.weight;
    for (int64_t o = 0; o < shape.out; ++o) {
      for (int64_t i = 0; i < shape.in; ++i) {
        for (int64_t y = 0; y < K; ++y) {
          for (int64_t x = 0; x < K; ++x) {
            turned[((y * shape.out + o) * K + x) * shape.in + i] = *weight++;
          }
        }
      }
    }
  }
  kernels.convolution_backward(shape, images, turned.data());
}

}  // namespace flotilla
