#ifndef FLOTILLA_LEARNER_KERNELS_ISA_ELEMENT_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_ELEMENT_H_

#include <cstdint>

#include "learner/kernels/bfloat16.h"
#include "learner/kernels/isa/vec.h"

// What the operands of a product are made of, so that one loop serves float32 and
// bfloat16: elements of four bytes, a float or two bfloat16 numbers, whose product
// is the sum of both; sums are floats. Included as vec.h is.

namespace flotilla {
namespace {

typedef ShortVec UnalignedShortVec __attribute__((aligned(2), may_alias));

// Numbers next to each other, of memory that is one's of Bfloat16.
struct Pair {
  Bfloat16 first, second;
};
typedef IntVec PairVec;

template <typename E>
struct ElementOf;
template <>
struct ElementOf<float> {
  using Number = float;
  using Lanes = Vec;
};
template <>
struct ElementOf<Pair> {
  using Number = Bfloat16;
  using Lanes = PairVec;
};
template <typename E>
using NumberOf = typename ElementOf<E>::Number;
template <typename E>
using LanesOf = typename ElementOf<E>::Lanes;
template <typename E>
constexpr int64_t kNumbers = sizeof(E) / sizeof(NumberOf<E>);

template <typename E>
FLOTILLA_INLINE const E* AsElements(const NumberOf<E>* numbers) {
  return reinterpret_cast<const E*>(numbers);
}
template <typename E>
FLOTILLA_INLINE E* AsElements(NumberOf<E>* numbers) {
  return reinterpret_cast<E*>(numbers);
}

FLOTILLA_INLINE PairVec Load(const Pair* p) {
  return *reinterpret_cast<const UnalignedIntVec*>(p);
}
FLOTILLA_INLINE void Store(Pair* p, PairVec x) {
  *reinterpret_cast<UnalignedIntVec*>(p) = x;
}
FLOTILLA_INLINE PairVec Splat(const Pair& p) {
  int32_t bits;
  __builtin_memcpy(&bits, &p, sizeof(bits));
  return bits - PairVec{};
}
FLOTILLA_INLINE PairVec PairUp(ShortVec first, ShortVec second) {
  return __builtin_convertvector(first, IntVec) |
         __builtin_convertvector(second, IntVec) << 16;
}

#if defined(__AVX512BF16__)
constexpr bool kMultipliesBfloat16 = true;
#else
constexpr bool kMultipliesBfloat16 = false;
#endif

FLOTILLA_INLINE Vec MultiplyAdd(PairVec x, PairVec y, Vec z) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<Vec>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(z),
                                                reinterpret_cast<__m512bh>(x),
                                                reinterpret_cast<__m512bh>(y)));
#else
  constexpr int32_t kSecond = -0x10000;
  z = MultiplyAdd(FromBits(x & kSecond), FromBits(y & kSecond), z);
  return MultiplyAdd(FromBits(x << 16), FromBits(y << 16), z);
#endif
}

FLOTILLA_INLINE ShortVec LoadShort(const Bfloat16* p) {
  return *reinterpret_cast<const UnalignedShortVec*>(p);
}
FLOTILLA_INLINE Vec FromBfloat16(ShortVec x) {
  return FromBits(__builtin_convertvector(x, IntVec) << 16);
}
// To the nearest, of two as near to the even one. A NaN stays one.
FLOTILLA_INLINE ShortVec ToBfloat16(Vec x) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<ShortVec>(
      _mm512_cvtneps_pbh(reinterpret_cast<__m512>(x)));
#else
  typedef uint32_t UintVec __attribute__((vector_size(4 * kLanes)));
  const UintVec bits = reinterpret_cast<UintVec>(x);
  const UintVec rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const UintVec quiet = bits | 0x400000;
  return __builtin_convertvector((x == x ? rounded : quiet) >> 16, ShortVec);
#endif
}
FLOTILLA_INLINE void Store(Bfloat16* p, Vec x) {
  *reinterpret_cast<UnalignedShortVec*>(p) = ToBfloat16(x);
}

// Both, one behind the other.
FLOTILLA_INLINE void Store(Bfloat16* p, Vec first, Vec second) {
#if defined(__AVX512BF16__)
  Store(
      reinterpret_cast<Pair*>(p),
      reinterpret_cast<PairVec>(_mm512_cvtne2ps_pbh(
          reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first))));
#else
  Store(p, first);
  Store(p + kLanes, second);
#endif
}

// The numbers of both, rounded, beside each other.
FLOTILLA_INLINE PairVec RoundToPairs(Vec first, Vec second) {
#if defined(__AVX512BF16__)
  typedef int16_t Shorts __attribute__((vector_size(64)));
  constexpr Shorts kTurns = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                             21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                             11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return reinterpret_cast<PairVec>(_mm512_permutexvar_epi16(
      reinterpret_cast<__m512i>(kTurns),
      reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
          reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first)))));
#else
  return PairUp(ToBfloat16(first), ToBfloat16(second));
#endif
}

// Of 2 * `rows` rows of floats, `step` apart: the numbers below each other of two, as
// pairs [rows, columns]; columns a multiple of kLanes.
FLOTILLA_INLINE void RoundRows(int64_t rows, int64_t columns, const float* in,
                               int64_t step, Pair* out) {
  for (int64_t r = 0; r < rows; ++r, in += 2 * step, out += columns) {
    for (int64_t c = 0; c < columns; c += kLanes) {
      Store(out + c, RoundToPairs(Load(in + c), Load(in + step + c)));
    }
  }
}
void PairRows(int64_t rows, int64_t columns, const float* in, int64_t step,
              Bfloat16* out) {
  RoundRows(rows, columns, in, step, AsElements<Pair>(out));
}

// What of a number is read as floats.
FLOTILLA_INLINE Vec LoadFloats(const float* p) { return Load(p); }
FLOTILLA_INLINE Vec LoadFloats(const Bfloat16* p) {
  return FromBfloat16(LoadShort(p));
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_ELEMENT_H_
