#ifndef FLOTILLA_LEARNER_KERNELS_CONVOLUTION_H_
#define FLOTILLA_LEARNER_KERNELS_CONVOLUTION_H_

#include <cstdint>

#include "learner/kernels/isa/kernel_table.h"
#include "learner/kernels/lane.h"

namespace flotilla {

// A convolution without padding over images with their channels last, and the
// ReLU after it: what encoders of frames are made of (Mnih et al. 2015). A
// library's primitives arrange their operands anew for every call, which for
// images and channels as few as these takes longer than to multiply them.
struct ConvolutionShape {
  int64_t height = 0, width = 0, in = 0;    // of an image
  int64_t kernel = 0, stride = 0, out = 0;  // `out`: see kConvolutionWidth

  // Inlined always: see isa/vec.h.
  FLOTILLA_INLINE int64_t out_height() const {
    return (height - kernel) / stride + 1;
  }
  FLOTILLA_INLINE int64_t out_width() const {
    return (width - kernel) / stride + 1;
  }
  FLOTILLA_INLINE int64_t image() const {
    return height * width * in;
  }  // floats
  FLOTILLA_INLINE int64_t out_image() const {
    return out_height() * out_width() * out;
  }
  FLOTILLA_INLINE int64_t weights() const { return kernel * kernel * in * out; }
};

// Channels out are a multiple of this; for a gradient of the images, channels in
// too.
inline constexpr int64_t kConvolutionWidth = 16;

// `weight` [out, in, kernel, kernel] as ConvolutionForward multiplies by it:
// `packed` [kernel, kernel, in, out].
void PackConvolution(const ConvolutionShape& shape, const float* weight,
                     float* packed, const KernelTable& kernels = BestKernels());

// Borrowed. Images know nothing of each other: each is the same bits in any
// batch.
struct ConvolutionImages {
  int64_t n = 0;
  const float* x = nullptr;       // [n, height, width, in]
  const float* packed = nullptr;  // see PackConvolution
  const float* bias = nullptr;    // [out]
  float* y = nullptr;             // [n, out_height, out_width, out]; out
};

struct ConvolutionBack {
  int64_t n = 0;
  const float* x = nullptr;       // [n, height, width, in]
  const float* weight = nullptr;  // [out, in, kernel, kernel]
  const float* y = nullptr;       // [n, out_height, out_width, out]
  // d loss / d y; becomes that of the sums before the ReLU.
  float* from_y = nullptr;  // [n, out_height, out_width, out]
  float* to_x = nullptr;    // [n, height, width, in]  out; null: not wanted
  // Both are added to.
  float* to_packed = nullptr;  // [kernel, kernel, in, out]
  float* to_bias = nullptr;    // [out]
};

// Thread-safe; never block.
void ConvolutionForward(const ConvolutionShape& shape,
                        const ConvolutionImages& images,
                        const KernelTable& kernels = BestKernels());
void ConvolutionBackward(const ConvolutionShape& shape,
                         const ConvolutionBack& images,
                         const KernelTable& kernels = BestKernels());

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_CONVOLUTION_H_
