#ifndef FLOTILLA_LEARNER_KERNELS_ISA_WINOGRAD_SUMS_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_WINOGRAD_SUMS_H_

#include "learner/kernels/isa/vec.h"

// The sums of Winograd's minimal filtering (winograd_plan.h) along one side of a
// square: of places in, of places out and of weights. With the points 0, 1, -1 and
// infinity where the side has 4 products:
//
//   places in     d0 - d2, d1 + d2, d2 - d1, d3 - d1
//   weights, R=2  g0, (g0 + g1) / 2, (g0 - g1) / 2, g1
//            R=3  g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2
//   places out    m0 + m1 + m2, m1 - m2 (+ m3 where it is the last),
//                 m1 + m2 + m3
//
// where m are the products, and gradients go the same way back. Where it has 6, with
// 0, infinity and, in place of the usual 1, -1, 2 and -2, the square roots of 1/2 and of
// 2 of either sign, whose powers are less far apart: rounding is half as large, the
// largest of it about a quarter (measured; Barabasz et al., "Error Analysis and Improving
// the Accuracy of Winograd Convolution for Deep Neural Networks", 2020). Included by
// kernels.h alone.

namespace flotilla {
namespace {

// In and InBack take a side's places or products to what the other's are or gain; Out and
// OutBack likewise, of M places out. Sums of R weights are OutBack's, times kScale.
template <int kSide>
struct WinogradSums;

template <>
struct WinogradSums<4> {
  static constexpr float kScale[4] = {1, 0.5f, 0.5f, 1};

  FLOTILLA_INLINE static void In(const Vec* d, Vec* sums) {
    sums[0] = d[0] - d[2];
    sums[1] = d[1] + d[2];
    sums[2] = d[2] - d[1];
    sums[3] = d[3] - d[1];
  }

  FLOTILLA_INLINE static void InBack(const Vec* sums, Vec* d) {
    d[0] = sums[0];
    d[1] = sums[1] - sums[2] - sums[3];
    d[2] = sums[1] + sums[2] - sums[0];
    d[3] = sums[3];
  }

  template <int M>
  FLOTILLA_INLINE static void Out(const Vec* m, Vec* y) {
    const Vec sum = m[1] + m[2], difference = m[1] - m[2];
    y[0] = m[0] + sum;
    y[1] = difference;
    if constexpr (M == 3) y[2] = sum;
    y[M - 1] += m[3];
  }

  template <int M>
  FLOTILLA_INLINE static void OutBack(const Vec* y, Vec* m) {
    Vec even = y[0];
    if constexpr (M == 3) even += y[2];
    m[0] = y[0];
    m[1] = even + y[1];
    m[2] = even - y[1];
    m[3] = y[M - 1];
  }
};

template <>
struct WinogradSums<6> {
  static constexpr float kScale[6] = {1,       -2 / 3.f, -2 / 3.f,
                                      1 / 6.f, 1 / 6.f,  1};
  static constexpr float kP = 0.70710678f, kQ = 1.41421356f;  // P * Q = 1

  FLOTILLA_INLINE static void In(const Vec* d, Vec* sums) {
    sums[0] = d[0] - 2.5f * d[2] + d[4];
    const Vec even = d[4] - 2 * d[2], odd = kP * (d[3] - 2 * d[1]);
    sums[1] = even + odd;
    sums[2] = even - odd;
    const Vec even2 = d[4] - 0.5f * d[2], odd2 = kQ * (d[3] - 0.5f * d[1]);
    sums[3] = even2 + odd2;
    sums[4] = even2 - odd2;
    sums[5] = d[1] - 2.5f * d[3] + d[5];
  }

  FLOTILLA_INLINE static void InBack(const Vec* sums, Vec* d) {
    const Vec sum = sums[1] + sums[2], difference = sums[1] - sums[2];
    const Vec sum2 = sums[3] + sums[4], difference2 = sums[3] - sums[4];
    d[0] = sums[0];
    d[1] = sums[5] - kQ * difference - kP * difference2;
    d[2] = -2.5f * sums[0] - 2 * sum - 0.5f * sum2;
    d[3] = kP * difference + kQ * difference2 - 2.5f * sums[5];
    d[4] = sums[0] + sum + sum2;
    d[5] = sums[5];
  }

  template <int M>
  FLOTILLA_INLINE static void Out(const Vec* m, Vec* y) {
    const Vec sum = m[1] + m[2], difference = kP * (m[1] - m[2]);
    const Vec sum2 = m[3] + m[4], difference2 = kQ * (m[3] - m[4]);
    y[0] = m[0] + sum + sum2;
    y[1] = difference + difference2;
    if constexpr (M > 2) y[2] = 0.5f * sum + 2 * sum2;
    if constexpr (M > 3) y[3] = 0.5f * difference + 2 * difference2;
    if constexpr (M > 4) y[4] = 0.25f * sum + 4 * sum2;
    y[M - 1] += m[5];
  }

  template <int M>
  FLOTILLA_INLINE static void OutBack(const Vec* y, Vec* m) {
    Vec even = y[0], odd = y[1], even2 = y[0], odd2 = y[1];
    if constexpr (M > 2) even += 0.5f * y[2], even2 += 2 * y[2];
    if constexpr (M > 3) odd += 0.5f * y[3], odd2 += 2 * y[3];
    if constexpr (M > 4) even += 0.25f * y[4], even2 += 4 * y[4];
    odd *= kP;
    odd2 *= kQ;
    m[0] = y[0];
    m[1] = even + odd;
    m[2] = even - odd;
    m[3] = even2 + odd2;
    m[4] = even2 - odd2;
    m[5] = y[M - 1];
  }
};

// along(from, to), which takes kFrom vectors to kTo, along both sides of a square:
// load(i, j) is what there is, store(i, j, sum) takes the sums.
template <int kFrom, int kTo, typename Along, typename Load, typename Store>
FLOTILLA_INLINE void AlongBothSides(Along along, Load load, Store store) {
  Vec half[kTo][kFrom];
#pragma GCC unroll 6
  for (int i = 0; i < kFrom; ++i) {
    Vec row[kFrom], sums[kTo];
#pragma GCC unroll 6
    for (int j = 0; j < kFrom; ++j) row[j] = load(i, j);
    along(row, sums);
#pragma GCC unroll 6
    for (int j = 0; j < kTo; ++j) half[j][i] = sums[j];
  }
#pragma GCC unroll 6
  for (int j = 0; j < kTo; ++j) {
    Vec sums[kTo];
    along(half[j], sums);
#pragma GCC unroll 6
    for (int i = 0; i < kTo; ++i) store(i, j, sums[i]);
  }
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_WINOGRAD_SUMS_H_
