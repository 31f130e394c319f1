#ifndef FLOTILLA_LEARNER_KERNELS_ISA_NEWTON_SCHULZ_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_NEWTON_SCHULZ_H_

#include <cstdint>

#include "learner/kernels/isa/flat.h"
#include "learner/kernels/isa/gemm.h"
#include "learner/kernels/isa/mlp.h"
#include "learner/kernels/isa/mlp_products.h"
#include "learner/kernels/isa/newton_schulz_plan.h"
#include "learner/kernels/newton_schulz.h"

// See newton_schulz.h one folder up. Included by amx.h alone.

namespace flotilla {
namespace {

// out = scale * in, of whole vectors.
void ScaleAll(int64_t size, float scale, const float* in, float* out) {
  for (int64_t i = 0; i < size; i += kLanes) {
    Store(out + i, scale * Load(in + i));
  }
}

// A matrix and room for a step's products. Columns behind all are 0, and stay so.
struct NewtonSchulz {
  // `room`: plan.room() floats.
  NewtonSchulz(const NewtonSchulzPlan& plan, float* room)
      : plan(plan),
        zero(room),
        x(zero + plan.n_pad),
        next(x + plan.matrix()),
        gram(next + plan.matrix()),
        weights(gram + plan.gram()),
        left(reinterpret_cast<Pair*>(weights + plan.gram())),
        right(left + plan.left()) {
    for (int64_t i = 0; i < plan.room(); i += kLanes) Store(room + i, Vec{});
  }

  const NewtonSchulzPlan& plan;
  float* zero;            // [n_pad]
  float *x, *next;        // [n, m_pad]
  float *gram, *weights;  // [n, n_pad]
  Pair *left, *right;     // operands of a product
};

// x x^T, then weights = b gram + c gram^2, then next = a x + weights x, in float32.
void NewtonSchulzInFloats(const NewtonSchulzStep& step,
                          const NewtonSchulz& at) {
  const NewtonSchulzPlan& p = at.plan;
  const auto a = static_cast<float>(step.a), b = static_cast<float>(step.b),
             c = static_cast<float>(step.c);
  float* const left = reinterpret_cast<float*>(at.left);
  float* const turned = reinterpret_cast<float*>(at.right);
  CopyTransposed(at.x, p.m_pad, p.n, p.m, turned, p.n_pad);
  Multiply<float>(p.n, p.n_pad, p.m, {at.x, p.m_pad, 1}, {turned, p.n_pad},
                  {at.zero, 0}, {at.gram, p.n_pad});
  ScaleAll(p.gram(), c, at.gram, left);
  ScaleAll(p.gram(), b, at.gram, at.weights);
  Multiply<float>(p.n, p.n_pad, p.n, {left, p.n_pad, 1}, {at.gram, p.n_pad},
                  {at.weights, p.n_pad}, {at.weights, p.n_pad});
  ScaleAll(p.matrix(), a, at.x, at.next);
  Multiply<float>(p.n, p.m_pad, p.n, {at.weights, p.n_pad, 1}, {at.x, p.m_pad},
                  {at.next, p.m_pad}, {at.next, p.m_pad});
}

// The same of what operands are rounded to.
void NewtonSchulzByTiles(const NewtonSchulzStep& step, const NewtonSchulz& at) {
  const NewtonSchulzPlan& p = at.plan;
  const auto a = static_cast<float>(step.a), b = static_cast<float>(step.b),
             c = static_cast<float>(step.c);
  const auto turn = [&](int64_t width) {
    TurnPairs(
        p.n, width,
        [&](int64_t r, int64_t k) { return Load(at.left + r * width + k); },
        p.n_pad, at.right);
  };
  RoundEachRow(p.n, p.m, {at.x, p.m_pad}, p.m_pairs, at.left);
  turn(p.m_pairs);
  MultiplyPairs(p.n, p.n_pad, p.m_pairs, {at.left, p.m_pairs, 1},
                {at.right, p.n_pad}, {at.zero, 0}, {at.gram, p.n_pad});
  // A Gram matrix is symmetric: turned, its rows are pairs of two below each other.
  RoundEachRow(p.n, p.n, {at.gram, p.n_pad}, p.n_pairs, at.left);
  turn(p.n_pairs);
  MultiplyPairs(p.n, p.n_pad, p.n_pairs, {at.left, p.n_pairs, 1},
                {at.right, p.n_pad}, {at.zero, 0}, {at.weights, p.n_pad});
  for (int64_t i = 0; i < p.gram(); i += kLanes) {
    Store(at.weights + i, b * Load(at.gram + i) + c * Load(at.weights + i));
  }
  RoundEachRow(p.n, p.n, {at.weights, p.n_pad}, p.n_pairs, at.left);
  PairUpRows(p.n, p.m_pad, {at.x, p.m_pad}, at.right);
  for (int64_t i = (p.n + 1) / 2 * p.m_pad; i < p.n_pairs * p.m_pad;
       i += kLanes) {
    Store(at.right + i, PairVec{});
  }
  ScaleAll(p.matrix(), a, at.x, at.next);
  MultiplyPairs(p.n, p.m_pad, p.n_pairs, {at.left, p.n_pairs, 1},
                {at.right, p.m_pad}, {at.next, p.m_pad}, {at.next, p.m_pad});
}

void OrthogonalizeOf(const NewtonSchulzPlan& plan, const float* matrix,
                     float* room, float* out) {
  const FlushDenormals flush;
  const int64_t n = plan.n, m = plan.m;
  NewtonSchulz at(plan, room);
  if (plan.tall) {
    CopyTransposed(matrix, n, m, n, at.x, plan.m_pad);
  } else {
    CopyRows(matrix, m, n, m, at.x, plan.m_pad);
  }
  const double norm = __builtin_sqrt(SumOfSquares(at.x, plan.matrix()));
  ScaleAll(
      plan.matrix(),
      static_cast<float>(1 / (norm > kSmallestNorm ? norm : kSmallestNorm)),
      at.x, at.x);
  int floats = kFloatNewtonSchulz;
  for (const NewtonSchulzStep& step : kNewtonSchulz) {
    (floats-- > 0 ? NewtonSchulzInFloats : NewtonSchulzByTiles)(step, at);
    float* const used = at.x;
    at.x = at.next;
    at.next = used;
  }
  if (plan.tall) {
    CopyTransposed(at.x, plan.m_pad, n, m, out, n);
  } else {
    CopyRows(at.x, plan.m_pad, n, m, out, m);
  }
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_NEWTON_SCHULZ_H_
