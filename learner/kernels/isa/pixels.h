#ifndef FLOTILLA_LEARNER_KERNELS_ISA_PIXELS_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_PIXELS_H_

#include <cstdint>
#include <utility>

#include "learner/kernels/isa/element.h"
#include "learner/kernels/isa/vec.h"

// Pixels on their way into a convolution. Included by kernels.h alone.

namespace flotilla {
namespace {

// a0 b0 a1 b1 ... of the lower (kHalf 0) or upper halves of both, in units of
// kUnit elements.
template <int kUnit, int kHalf, typename V, int... I>
FLOTILLA_INLINE V Interleave(V a, V b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(
      a, b,
      (I / kUnit % 2 * kLanes + I / (2 * kUnit) * kUnit + I % kUnit +
       kHalf * kLanes / 2)...);
}
template <int kUnit, int kHalf, typename V>
FLOTILLA_INLINE V Interleave(V a, V b) {
  return Interleave<kUnit, kHalf>(a, b,
                                  std::make_integer_sequence<int, kLanes>());
}

FLOTILLA_INLINE Vec ToFloats(ByteVec bytes) {
  return __builtin_convertvector(ToInts(bytes), Vec);
}

// Calls put(at, bytes) for kLanes bytes of the output at a time, and put_one for
// what is left, from pixel `p` on: [channels, pixels] in the order of [pixels, channels].
template <typename Put, typename PutOne>
FLOTILLA_INLINE void TurnPixels(const uint8_t* frame, int64_t channels,
                                int64_t pixels, Put put, PutOne put_one,
                                int64_t p = 0) {
  if (channels == 4) {
    for (; p + kLanes <= pixels; p += kLanes) {
      const ByteVec a = LoadBytes(frame + p), b = LoadBytes(frame + pixels + p);
      const ByteVec c = LoadBytes(frame + 2 * pixels + p);
      const ByteVec d = LoadBytes(frame + 3 * pixels + p);
      const ByteVec ab0 = Interleave<1, 0>(a, b), ab1 = Interleave<1, 1>(a, b);
      const ByteVec cd0 = Interleave<1, 0>(c, d), cd1 = Interleave<1, 1>(c, d);
      put(4 * p, Interleave<2, 0>(ab0, cd0));
      put(4 * p + kLanes, Interleave<2, 1>(ab0, cd0));
      put(4 * p + 2 * kLanes, Interleave<2, 0>(ab1, cd1));
      put(4 * p + 3 * kLanes, Interleave<2, 1>(ab1, cd1));
    }
  } else if (channels == 1) {
    for (; p + kLanes <= pixels; p += kLanes) put(p, LoadBytes(frame + p));
  }
  for (; p < pixels; ++p) {
    for (int64_t c = 0; c < channels; ++c) {
      put_one(p * channels + c, frame[c * pixels + p]);
    }
  }
}

void TurnOf(int64_t rows, int64_t columns, const float* image, float* out) {
  CopyTransposed(image, columns, rows, columns, out, rows);
}

void PixelsToFloatOf(const uint8_t* frame, int64_t channels, int64_t pixels,
                     float scale, float* out) {
  TurnPixels(
      frame, channels, pixels,
      [&](int64_t at, ByteVec bytes) {
        Store(out + at, ToFloats(bytes) * scale);
      },
      [&](int64_t at, uint8_t byte) {
        out[at] = static_cast<float>(byte) * scale;
      });
}

// The upper half of a float32's bits, whose lower half is 0 for these numbers.
void PixelsToBfloat16Of(const uint8_t* frame, int64_t channels, int64_t pixels,
                        uint16_t* out) {
  int64_t p = 0;
  if (channels == 4) {
    // A pixel's first two numbers, or its last two, are a lane.
    const auto two = [&](int64_t first) {
      const uint8_t* const plane = frame + first * pixels + p;
      return Bits(ToFloats(LoadBytes(plane))) >> 16 |
             Bits(ToFloats(LoadBytes(plane + pixels)));
    };
    const auto put = [&](int64_t at, IntVec lanes) {
      *reinterpret_cast<UnalignedIntVec*>(out + at) = lanes;
    };
    for (; p + kLanes <= pixels; p += kLanes) {
      const IntVec ab = two(0), cd = two(2);
      put(4 * p, Interleave<1, 0>(ab, cd));
      put(4 * p + 2 * kLanes, Interleave<1, 1>(ab, cd));
    }
  }
  TurnPixels(
      frame, channels, pixels,
      [&](int64_t at, ByteVec bytes) {
        const IntVec bits = Bits(ToFloats(bytes)) >> 16;
        *reinterpret_cast<UnalignedShortVec*>(out + at) =
            __builtin_convertvector(bits, ShortVec);
      },
      [&](int64_t at, uint8_t byte) {
        const float x = byte;
        uint32_t bits = 0;
        __builtin_memcpy(&bits, &x, sizeof(bits));
        out[at] = static_cast<uint16_t>(bits >> 16);
      },
      p);
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_PIXELS_H_
