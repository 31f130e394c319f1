#ifndef FLOTILLA_LEARNER_KERNELS_ISA_VEC_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_VEC_H_

#include <cstdint>
#include <utility>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "learner/kernels/flush_denormals.h"
#include "learner/kernels/lane.h"

// One vector register of floats and the functions the kernels need of it. Its
// width is that of the instruction set this file is compiled for.
//
// Included by kernels.h and amx.h alone. Everything in those files' reach is in an
// unnamed namespace and inlines only itself: a template or inline function shared
// with other files could be merged by the linker in its AVX-512 form and then run
// on a processor without it.

namespace flotilla {
namespace {

#if defined(__AVX512F__) || defined(FLOTILLA_AS_WIDE_AS_AVX512)  // a test's
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef int32_t IntVec __attribute__((vector_size(4 * kLanes)));
typedef Vec UnalignedVec __attribute__((aligned(4), may_alias));
typedef IntVec UnalignedIntVec __attribute__((aligned(4), may_alias));
typedef uint8_t ByteVec __attribute__((vector_size(kLanes)));
typedef ByteVec UnalignedByteVec __attribute__((aligned(1), may_alias));
typedef uint16_t ShortVec __attribute__((vector_size(2 * kLanes)));
typedef double HalfDoubles __attribute__((vector_size(4 * kLanes)));
typedef float HalfVec __attribute__((vector_size(2 * kLanes)));
typedef HalfVec UnalignedHalfVec __attribute__((aligned(4), may_alias));

FLOTILLA_INLINE Vec Load(const float* p) {
  return *reinterpret_cast<const UnalignedVec*>(p);
}
FLOTILLA_INLINE IntVec LoadInt(const int32_t* p) {
  return *reinterpret_cast<const UnalignedIntVec*>(p);
}
FLOTILLA_INLINE ByteVec LoadBytes(const uint8_t* p) {
  return *reinterpret_cast<const UnalignedByteVec*>(p);
}
// What gets four times as wide at once, GCC 12 converts byte by byte.
FLOTILLA_INLINE IntVec ToInts(ByteVec bytes) {
#if defined(__AVX512F__)
  // Of all lanes: GCC 12 warns of the register that the plain one does not set.
  return reinterpret_cast<IntVec>(
      _mm512_maskz_cvtepu8_epi32(0xffff, reinterpret_cast<__m128i>(bytes)));
#elif defined(__AVX2__) && !defined(FLOTILLA_AS_WIDE_AS_AVX512)
  return reinterpret_cast<IntVec>(_mm256_cvtepu8_epi32(
      _mm_cvtsi64_si128(reinterpret_cast<int64_t>(bytes))));
#else
  return __builtin_convertvector(__builtin_convertvector(bytes, ShortVec),
                                 IntVec);
#endif
}
// True where the byte is not 0.
FLOTILLA_INLINE IntVec LoadFlags(const uint8_t* p) {
  return ToInts(LoadBytes(p)) != 0;
}
FLOTILLA_INLINE void Store(float* p, Vec x) {
  *reinterpret_cast<UnalignedVec*>(p) = x;
}

// Some lanes by a mask: compilers make a loop over them a call of memcpy.
#if defined(__AVX512F__)
constexpr bool kLanesHaveMasks = true;
FLOTILLA_INLINE __mmask16 FirstLanes(int64_t count) {
  return static_cast<__mmask16>((1u << count) - 1);
}
#else
constexpr bool kLanesHaveMasks = false;
#endif

// Of the first `count` lanes, at most all; those not loaded are 0.
FLOTILLA_INLINE Vec LoadLanes(const float* in, int64_t count) {
  if (count >= kLanes) return Load(in);
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_maskz_loadu_ps(FirstLanes(count), in));
#else
  Vec lanes = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = in[i];
  return lanes;
#endif
}

FLOTILLA_INLINE void CopyLanes(Vec lanes, int64_t count, float* out) {
  if (count >= kLanes) {
    Store(out, lanes);
    return;
  }
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(out, FirstLanes(count),
                        reinterpret_cast<__m512>(lanes));
#else
  for (int64_t i = 0; i < count; ++i) out[i] = lanes[i];
#endif
}

FLOTILLA_INLINE Vec Splat(float x) { return x - Vec{}; }

// 0, 1, 2, ...
template <int... I>
FLOTILLA_INLINE IntVec IotaOf(std::integer_sequence<int, I...>) {
  return IntVec{I...};
}
FLOTILLA_INLINE IntVec Iota() {
  return IotaOf(std::make_integer_sequence<int, kLanes>());
}

// True in those of the lanes n, n + 1, ... that are below `rows`.
FLOTILLA_INLINE IntVec Present(int64_t n, int64_t rows) {
  return Iota() + static_cast<int32_t>(n) < static_cast<int32_t>(rows);
}

FLOTILLA_INLINE float LaneSum(Vec x) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += x[i];
  return sum;
}

FLOTILLA_INLINE IntVec Bits(Vec x) { return reinterpret_cast<IntVec>(x); }
FLOTILLA_INLINE Vec FromBits(IntVec x) { return reinterpret_cast<Vec>(x); }
FLOTILLA_INLINE Vec Abs(Vec x) { return FromBits(Bits(x) & 0x7fffffff); }

// x y + z, rounded once where the processor can. Compilers that may fuse the two
// do so here and not there (clang 14), and then the same sum is other bits.
FLOTILLA_INLINE Vec MultiplyAdd(Vec x, Vec y, Vec z) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_fmadd_ps(reinterpret_cast<__m512>(x),
                                               reinterpret_cast<__m512>(y),
                                               reinterpret_cast<__m512>(z)));
#elif defined(__FMA__)
  return reinterpret_cast<Vec>(_mm256_fmadd_ps(reinterpret_cast<__m256>(x),
                                               reinterpret_cast<__m256>(y),
                                               reinterpret_cast<__m256>(z)));
#else
  return x * y + z;
#endif
}

// numerator / denominator, to 2 ulp, for a denominator that is neither 0 nor
// infinite. Division takes half of tanh's time where it is exact.
FLOTILLA_INLINE Vec Divide(Vec numerator, Vec denominator) {
#if defined(__AVX512F__)
  Vec r = reinterpret_cast<Vec>(
      _mm512_maskz_rcp14_ps(-1, reinterpret_cast<__m512>(denominator)));
  r += r * (1.0f - denominator * r);
  return numerator * r;
#else
  return numerator / denominator;
#endif
}

// To 2 ulp; 0 of a denormal.
FLOTILLA_INLINE Vec SquareRoot(Vec x) {
#if defined(__AVX512F__)
  const Vec r = reinterpret_cast<Vec>(
      _mm512_maskz_rsqrt14_ps(-1, reinterpret_cast<__m512>(x)));
  const Vec root = x * r;
  const Vec refined = root + 0.5f * r * (x - root * root);
  const Vec smallest = Splat(1.17549435e-38f);
  const Vec largest = Splat(3.40282347e+38f);
  const Vec finite = x > largest ? x : refined;
  return x < smallest ? Vec{} : finite;
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(_mm256_sqrt_ps(reinterpret_cast<__m256>(x)));
#elif defined(__x86_64__) && !defined(FLOTILLA_AS_WIDE_AS_AVX512)
  return reinterpret_cast<Vec>(_mm_sqrt_ps(reinterpret_cast<__m128>(x)));
#else
  Vec root;
  for (int i = 0; i < kLanes; ++i) root[i] = __builtin_sqrtf(x[i]);
  return root;
#endif
}

// Odd rational function of degree 9 over 8, minimax in relative error on the
// clamped range: 9e-9 there, rounding aside. Beyond it the result stays at
// +-(1 - 2.7e-7), so the derivative 1 - tanh^2 never vanishes or turns
// negative.
FLOTILLA_INLINE Vec Tanh(Vec x) {
  x = AtLeast(AtMost(x, 7.9f), -7.9f);
  const Vec t = x * x;
  Vec p = Splat(1.53023614148e-8f);
  p = p * t + 2.19341319433e-5f;
  p = p * t + 3.57363519422e-3f;
  p = p * t + 0.134461312942f;
  p = p * t + 0.999999996699f;
  Vec q = Splat(8.54784853161e-7f);
  q = q * t + 3.41484912825e-4f;
  q = q * t + 2.61719216159e-2f;
  q = q * t + 0.467794596493f;
  q = q * t + 1.0f;
  return Divide(x * p, q);
}

// e^x = 2^n e^r with |r| <= ln(2) / 2, and e^r by Taylor to r^7 (5e-9).
// Overflows to infinity; below 2^-125 the result is 0.
FLOTILLA_INLINE Vec Exp(Vec x) {
  constexpr float kLargest = 88.722839f;
  constexpr float kSmallest = -86.6f;
  const Vec clamped = AtLeast(AtMost(x, kLargest), kSmallest);
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
  const Vec magic = Splat(12582912.0f);
  const Vec shifted = clamped * 1.44269504f + magic;
  const Vec n = shifted - magic;
  // ln(2) in two parts, the first of few enough bits that n times it is exact.
  const Vec r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  Vec p = Splat(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // n may be 128, one more than an exponent holds: scale by 2^(n-1), then by 2.
  const IntVec exponent = (Bits(shifted) - Bits(magic) + 126) << 23;
  Vec result = p * FromBits(exponent) * 2.0f;
  result = x > kLargest ? Splat(__builtin_inff()) : result;
  return x < kSmallest ? Vec{} : result;
}

// log(2^e m) = e ln(2) + 2 artanh((m - 1) / (m + 1)), m in [sqrt(1/2),
// sqrt(2)), by its series to the ninth power (2e-9). Of positive normal
// numbers.
FLOTILLA_INLINE Vec Log(Vec x) {
  constexpr int32_t kRootHalf = 0x3f3504f3;
  const IntVec shifted = Bits(x) - kRootHalf;
  const Vec e = __builtin_convertvector(shifted >> 23, Vec);
  const Vec m = FromBits((shifted & 0x7fffff) + kRootHalf);
  const Vec z = (m - 1.0f) / (m + 1.0f);
  const Vec t = z * z;
  Vec p = Splat(2.0f / 9);
  p = p * t + 2.0f / 7;
  p = p * t + 2.0f / 5;
  p = p * t + 2.0f / 3;
  const Vec log_m = z * 2.0f + z * t * p;
  return e * 0.693359375f + (log_m + e * -2.12194440e-4f);
}

// Swaps the lanes with bit D set of *a for those with it clear of *b.
template <int D, int... I>
FLOTILLA_INLINE void SwapLanes(Vec* a, Vec* b,
                               std::integer_sequence<int, I...>) {
  const Vec low =
      __builtin_shufflevector(*a, *b, ((I & D) ? kLanes + I - D : I)...);
  *b = __builtin_shufflevector(*a, *b, ((I & D) ? kLanes + I : I + D)...);
  *a = low;
}
template <int D>
FLOTILLA_INLINE void SwapLanes(Vec* a, Vec* b) {
  SwapLanes<D>(a, b, std::make_integer_sequence<int, kLanes>());
}

// Transposes a square: blocks of 1, 2, 4, ... change places across its
// diagonal.
template <int D = 1>
FLOTILLA_INLINE void Transpose(Vec (&x)[kLanes]) {
  if constexpr (D < kLanes) {
    for (int i = 0; i < kLanes; ++i) {
      if ((i & D) == 0) SwapLanes<D>(&x[i], &x[i + D]);
    }
    Transpose<2 * D>(x);
  }
}

// out[i * out_row + j] = in[j * in_row + i], for i < columns, j < rows.
FLOTILLA_INLINE void CopyTransposed(const float* in, int64_t in_row,
                                    int64_t rows, int64_t columns, float* out,
                                    int64_t out_row) {
  const int64_t whole_rows = rows / kLanes * kLanes;
  const int64_t whole_columns = columns / kLanes * kLanes;
  for (int64_t j = 0; j < whole_rows; j += kLanes) {
    for (int64_t i = 0; i < whole_columns; i += kLanes) {
      Vec square[kLanes];
      for (int v = 0; v < kLanes; ++v) {
        square[v] = Load(in + (j + v) * in_row + i);
      }
      Transpose(square);
      for (int v = 0; v < kLanes; ++v) {
        Store(out + (i + v) * out_row + j, square[v]);
      }
    }
  }
  for (int64_t i = 0; i < columns; ++i) {
    for (int64_t j = i < whole_columns ? whole_rows : 0; j < rows; ++j) {
      out[i * out_row + j] = in[j * in_row + i];
    }
  }
}

// Lane j of the result is the sum over the lanes of x[j]: the transpose's sum,
// added up as soon as it can be.
template <int D = 1>
FLOTILLA_INLINE Vec LaneSums(Vec (&x)[kLanes]) {
  if constexpr (D == kLanes) {
    return x[0];
  } else {
    for (int i = 0; i < kLanes / D; i += 2) {
      SwapLanes<D>(&x[i], &x[i + 1]);
      x[i / 2] = x[i] + x[i + 1];
    }
    return LaneSums<2 * D>(x);
  }
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_VEC_H_
