#include "learner/kernels/convolution.h"

#include <vector>

#include "learner/kernels/isa/convolution_plan.h"

namespace flotilla {
namespace {

// `weight` as [kernel, out, kernel, in].
std::vector<float> Turned(const ConvolutionShape& shape, const float* weight,
                          const KernelTable& kernels) {
  std::vector<float> packed(static_cast<size_t>(shape.weights()));
  std::vector<float> turned(packed.size());
  kernels.convolution_pack(shape, weight, packed.data());
  kernels.convolution_turn(shape, packed.data(), turned.data());
  return turned;
}

}  // namespace

void PackConvolution(const ConvolutionShape& shape, const float* weight,
                     float* packed, const KernelTable& kernels) {
  kernels.convolution_pack(shape, weight, packed);
}

void PackConvolution(const ConvolutionShape& shape, const float* weight,
                     Bfloat16* packed, const KernelTable& kernels) {
  std::vector<float> floats(static_cast<size_t>(shape.weights()));
  kernels.convolution_pack(shape, weight, floats.data());
  kernels.pair_rows(shape.kernel * shape.kernel * shape.in / 2, shape.out,
                    floats.data(), packed);
}

void UnpackConvolution(const ConvolutionShape& shape, const float* packed,
                       float* weight, const KernelTable& kernels) {
  kernels.convolution_unpack(shape, packed, weight);
}

void ConvolutionForward(const ConvolutionShape& shape,
                        const ConvolutionImages<float>& images,
                        const KernelTable& kernels) {
  kernels.convolution_forward(shape, images);
}

void ConvolutionForward(const ConvolutionShape& shape,
                        const ConvolutionImages<Bfloat16>& images,
                        const KernelTable& kernels) {
  kernels.convolution_forward_bfloat16(shape, images);
}

void ConvolutionBackward(const ConvolutionShape& shape,
                         const ConvolutionBack<float>& images,
                         const KernelTable& kernels) {
  std::vector<float> turned;
  if (images.to_x != nullptr) turned = Turned(shape, images.weight, kernels);
  kernels.convolution_backward(shape, images, turned.data(), nullptr);
}

void ConvolutionBackward(const ConvolutionShape& shape,
                         const ConvolutionBack<Bfloat16>& images,
                         const KernelTable& kernels) {
  std::vector<Bfloat16> turned,
      pairs(static_cast<size_t>(2 * BlockOf(shape).images *
                                (shape.image() + shape.out_image())));
  std::vector<float> sums;
  if (images.to_x != nullptr) {
    turned.resize(static_cast<size_t>(shape.weights()));
    kernels.pair_rows(shape.kernel * shape.out / 2, shape.kernel * shape.in,
                      Turned(shape, images.weight, kernels).data(),
                      turned.data());
    sums.resize(static_cast<size_t>(kImagesAtOnce * shape.image()));
  }
  ConvolutionScratch scratch = {.pairs = pairs.data(), .sums = sums.data()};
  kernels.convolution_backward_bfloat16(shape, images, turned.data(), &scratch);
}

}  // namespace flotilla
