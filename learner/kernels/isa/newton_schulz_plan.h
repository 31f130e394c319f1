#ifndef FLOTILLA_LEARNER_KERNELS_ISA_NEWTON_SCHULZ_PLAN_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_NEWTON_SCHULZ_PLAN_H_

#include <cstdint>

#include "learner/kernels/lane.h"

namespace flotilla {

// Sizes of what OrthogonalizeByTiles works on: a matrix [n, m] that is no taller than
// wide, the given one or its transpose, and Gram matrices [n, n].
struct NewtonSchulzPlan {
  static constexpr int64_t kPad = 16;

  FLOTILLA_INLINE NewtonSchulzPlan(int64_t rows, int64_t columns)
      : tall(rows > columns),
        n(tall ? columns : rows),
        m(tall ? rows : columns),
        n_pad(Padded(n)),
        m_pad(Padded(m)),
        n_pairs(Padded((n + 1) / 2)),
        m_pairs(Padded((m + 1) / 2)) {}

  FLOTILLA_INLINE static int64_t Padded(int64_t size) {
    return (size + kPad - 1) / kPad * kPad;
  }
  // Floats of NewtonSchulz's arrays (newton_schulz.h), of which a pair is as large.
  FLOTILLA_INLINE int64_t matrix() const { return n * m_pad; }
  FLOTILLA_INLINE int64_t gram() const { return n * n_pad; }
  // Operands of a product, as floats or pairs.
  FLOTILLA_INLINE int64_t left() const {
    return gram() > n * m_pairs ? gram() : n * m_pairs;
  }
  FLOTILLA_INLINE int64_t right() const { return m_pad * n_pad; }
  FLOTILLA_INLINE int64_t room() const {
    return n_pad + 2 * matrix() + 2 * gram() + left() + right();
  }

  bool tall;
  int64_t n, m;
  int64_t n_pad, m_pad;
  int64_t n_pairs, m_pairs;  // of n, and of m, numbers
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_NEWTON_SCHULZ_PLAN_H_
