#include "learner/kernels/convolution.h"

#include <algorithm>

#include "learner/kernels/isa/aligned_floats.h"
#include "learner/kernels/isa/convolution_plan.h"
#include "learner/kernels/isa/winograd_plan.h"

namespace flotilla {
namespace {

// `weight` as [kernel, out, kernel, in].
AlignedFloats Turned(const ConvolutionShape& shape, const float* weight,
                     const KernelTable& kernels) {
  AlignedFloats turned = MakeAlignedFloats(shape.weights());
  kernels.convolution_turn(shape, weight, turned.get());
  return turned;
}

// The sums of weights that the gradient of images is multiplied by.
AlignedFloats TurnedSums(const ConvolutionShape& shape, const float* weight,
                         const KernelTable& kernels) {
  AlignedFloats sums = MakeAlignedFloats(PackedFloats(shape));
  kernels.winograd_pack_turned(shape, Turned(shape, weight, kernels).get(),
                               sums.get());
  return sums;
}

}  // namespace

int64_t PackedFloats(const ConvolutionShape& shape) {
  const WinogradPlan plan = WinogradOf(shape, 1);
  return plan.taps == 0 ? shape.weights()
                        : plan.planes() * plan.plane(shape.out);
}

void PackConvolution(const ConvolutionShape& shape, const float* weight,
                     float* packed, const KernelTable& kernels) {
  if (!IsWinograd(shape)) {
    kernels.convolution_pack(shape, weight, packed);
    return;
  }
  const AlignedFloats by_taps = MakeAlignedFloats(shape.weights());
  kernels.convolution_pack(shape, weight, by_taps.get());
  kernels.winograd_pack(shape, by_taps.get(), packed);
}

void PackConvolution(const ConvolutionShape& shape, const float* weight,
                     Bfloat16* packed, const KernelTable& kernels) {
  const int64_t depth = shape.weights() / shape.out;
  const int64_t width = kernels.has_tiles ? kTiledChannels : shape.out;
  const AlignedFloats floats = MakeAlignedFloats(shape.weights());
  kernels.convolution_pack(shape, weight, floats.get());
  for (int64_t first = 0; first < shape.out; first += width) {
    kernels.pair_rows(depth / 2, std::min(width, shape.out - first),
                      floats.get() + first, shape.out, packed + first * depth);
  }
}

void UnpackConvolution(const ConvolutionShape& shape, const float* packed,
                       float* weight, const KernelTable& kernels) {
  kernels.convolution_unpack(shape, packed, weight);
}

void ConvolutionForward(const ConvolutionShape& shape,
                        const ConvolutionImages<float>& images,
                        const KernelTable& kernels) {
  const WinogradPlan plan = WinogradOf(shape, images.n);
  AlignedFloats room;
  if (plan.taps > 0) {
    room = MakeAlignedFloats(WinogradRoomFloats(shape, plan, images.n, false));
  }
  kernels.convolution_forward(shape, images, room.get());
}

void ConvolutionForward(const ConvolutionShape& shape,
                        const ConvolutionImages<Bfloat16>& images,
                        const KernelTable& kernels) {
  kernels.convolution_forward_bfloat16(shape, images);
}

void ConvolutionBackward(const ConvolutionShape& shape,
                         const ConvolutionBack<float>& images,
                         const KernelTable& kernels) {
  if (images.n == 0) return;
  const WinogradPlan plan = WinogradOf(shape, images.n);
  if (plan.taps == 0) {
    AlignedFloats turned;
    if (images.to_x != nullptr) turned = Turned(shape, images.weight, kernels);
    kernels.convolution_backward(shape, images, turned.get(), nullptr);
    return;
  }
  AlignedFloats turned;
  if (images.to_x != nullptr) {
    turned = TurnedSums(shape, images.weight, kernels);
  }
  const AlignedFloats room =
      MakeAlignedFloats(WinogradRoomFloats(shape, plan, images.n, true));
  ConvolutionScratch scratch = {.winograd = room.get()};
  kernels.convolution_backward(shape, images, turned.get(), &scratch);
}

void ConvolutionBackward(const ConvolutionShape& shape,
                         const ConvolutionBack<Bfloat16>& images,
                         const KernelTable& kernels) {
  const int64_t images_at_once = BlockOf(shape).images;
  // A float holds a pair.
  const AlignedFloats pairs =
      MakeAlignedFloats(images_at_once * (shape.image() + shape.out_image()));
  AlignedFloats turned, turned_gradients, sums;
  if (kernels.has_tiles) {
    turned_gradients = MakeAlignedFloats(images_at_once * TurnedPairs(shape));
  }
  const auto numbers = [](const AlignedFloats& floats) {
    return reinterpret_cast<Bfloat16*>(floats.get());
  };
  if (images.to_x != nullptr) {
    turned = MakeAlignedFloats((shape.weights() + 1) / 2);
    const int64_t width = shape.kernel * shape.in;
    kernels.pair_rows(shape.kernel * shape.out / 2, width,
                      Turned(shape, images.weight, kernels).get(), width,
                      numbers(turned));
    if (!kernels.has_tiles) {
      sums = MakeAlignedFloats(kImagesAtOnce * shape.image());
    }
  }
  ConvolutionScratch scratch = {.pairs = numbers(pairs),
                                .turned = numbers(turned_gradients),
                                .sums = sums.get()};
  kernels.convolution_backward_bfloat16(shape, images, numbers(turned),
                                        &scratch);
}

}  // namespace flotilla
