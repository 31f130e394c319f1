#ifndef FLOTILLA_LEARNER_KERNELS_CONVOLUTION_H_
#define FLOTILLA_LEARNER_KERNELS_CONVOLUTION_H_

#include <cstdint>

#include "learner/kernels/bfloat16.h"
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
  // Numbers of an image.
  FLOTILLA_INLINE int64_t image() const { return height * width * in; }
  FLOTILLA_INLINE int64_t out_image() const {
    return out_height() * out_width() * out;
  }
  FLOTILLA_INLINE int64_t weights() const { return kernel * kernel * in * out; }
};

// Channels out are a multiple of this; for a gradient of the images, channels in
// too. Of bfloat16 channels in are even.
inline constexpr int64_t kConvolutionWidth = 16;

// Of floats, how many numbers PackConvolution makes of a weight: nine times as many at
// most, where sums of them make do with fewer products (isa/winograd_plan.h).
int64_t PackedFloats(const ConvolutionShape& shape);

// `weight` [out, in, kernel, kernel] as ConvolutionForward multiplies by it, images of
// this size: `packed` [PackedFloats], or in bfloat16 [kernel, kernel, in / 2, out, 2],
// two channels in beside each other; by tiles so for each 32 channels out, one after the
// other.
void PackConvolution(const ConvolutionShape& shape, const float* weight,
                     float* packed, const KernelTable& kernels = BestKernels());
void PackConvolution(const ConvolutionShape& shape, const float* weight,
                     Bfloat16* packed,
                     const KernelTable& kernels = BestKernels());

// Of a gradient: `packed` [kernel, kernel, in, out] as `weight`.
void UnpackConvolution(const ConvolutionShape& shape, const float* packed,
                       float* weight,
                       const KernelTable& kernels = BestKernels());

// Borrowed. Images know nothing of each other: each is the same bits in any
// batch. Number: float, or Bfloat16, of which sums are made in float.
template <typename Number>
struct ConvolutionImages {
  int64_t n = 0;
  const Number* x = nullptr;       // [n, height, width, in]
  const Number* packed = nullptr;  // see PackConvolution
  const float* bias = nullptr;     // [out]
  Number* y = nullptr;             // [n, out_height, out_width, out]; out
};

template <typename Number>
struct ConvolutionBack {
  int64_t n = 0;
  const Number* x = nullptr;      // [n, height, width, in]
  const float* weight = nullptr;  // [out, in, kernel, kernel]
  const Number* y = nullptr;      // [n, out_height, out_width, out]
  const Number* from_y =
      nullptr;  // [n, out_height, out_width, out]  d loss / d y
  // Room for d loss / d the sums before the ReLU; may be from_y's memory.
  Number* from_sum = nullptr;  // [n, out_height, out_width, out]
  Number* to_x = nullptr;      // [n, height, width, in]  out; null: not wanted
  // Both are added to.
  float* to_packed = nullptr;  // [kernel, kernel, in, out]
  float* to_bias = nullptr;    // [out]
};

// Thread-safe; never block.
void ConvolutionForward(const ConvolutionShape& shape,
                        const ConvolutionImages<float>& images,
                        const KernelTable& kernels = BestKernels());
void ConvolutionForward(const ConvolutionShape& shape,
                        const ConvolutionImages<Bfloat16>& images,
                        const KernelTable& kernels = BestKernels());
void ConvolutionBackward(const ConvolutionShape& shape,
                         const ConvolutionBack<float>& images,
                         const KernelTable& kernels = BestKernels());
void ConvolutionBackward(const ConvolutionShape& shape,
                         const ConvolutionBack<Bfloat16>& images,
                         const KernelTable& kernels = BestKernels());

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_CONVOLUTION_H_
