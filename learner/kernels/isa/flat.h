#ifndef FLOTILLA_LEARNER_KERNELS_ISA_FLAT_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_FLAT_H_

#include <cstdint>
#include <limits>

#include "learner/kernels/gae.h"
#include "learner/kernels/isa/kernel_table.h"
#include "learner/kernels/isa/vec.h"
#include "learner/kernels/trace_steps.h"

// Kernels over flat arrays: Adam, advantages. Included as vec.h is.

namespace flotilla {
namespace {

FLOTILLA_INLINE HalfDoubles Widen(const float* p) {
  return __builtin_convertvector(*reinterpret_cast<const UnalignedHalfVec*>(p),
                                 HalfDoubles);
}

double SumOfSquares(const float* values, int64_t size) {
  constexpr int kChains = 8;
  constexpr int64_t kHalf = kLanes / 2;
  HalfDoubles sums[kChains] = {};
  int64_t i = 0;
  for (; i + kChains * kHalf <= size; i += kChains * kHalf) {
    for (int c = 0; c < kChains; ++c) {
      const HalfDoubles x = Widen(values + i + c * kHalf);
      sums[c] += x * x;
    }
  }
  double sum = 0;
  for (; i < size; ++i) sum += static_cast<double>(values[i]) * values[i];
  for (int c = 1; c < kChains; ++c) sums[0] += sums[c];
  for (int64_t j = 0; j < kHalf; ++j) sum += sums[0][j];
  return sum;
}

FLOTILLA_INLINE void AdamVec(const AdamFactors& factors, const float* gradient,
                             float* parameters, float* first_moment,
                             float* second_moment) {
  Vec m = Load(first_moment);
  Vec v = Load(second_moment);
  AddToMoments(factors, Load(gradient), &m, &v);
  // A gradient whose square is infinite moves nothing, and is no NaN.
  const Vec deviation = AtMost(SquareRoot(v) * factors.deviation,
                               std::numeric_limits<float>::max() / 2) +
                        factors.epsilon;
  Store(first_moment, m);
  Store(second_moment, v);
  Store(parameters, Load(parameters) - Divide(m * factors.step, deviation));
}

void Adam(const AdamFactors& factors, const float* gradient, int64_t size,
          float* parameters, float* first_moment, float* second_moment) {
  const FlushDenormals flush;
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    AdamVec(factors, gradient + i, parameters + i, first_moment + i,
            second_moment + i);
  }
  if (i == size) return;
  float rest[4][kLanes] = {};
  const auto copy = [&](auto move) {
    for (int64_t j = i; j < size; ++j) move(j, j - i);
  };
  copy([&](int64_t from, int64_t to) {
    rest[0][to] = gradient[from];
    rest[1][to] = parameters[from];
    rest[2][to] = first_moment[from];
    rest[3][to] = second_moment[from];
  });
  AdamVec(factors, rest[0], rest[1], rest[2], rest[3]);
  copy([&](int64_t to, int64_t from) {
    parameters[to] = rest[1][from];
    first_moment[to] = rest[2][from];
    second_moment[to] = rest[3][from];
  });
}

// The advantage of an invalid step is 0, which is also what it hands back in
// time.
void Gae(const GaeInput& in, float* advantage, float* returns) {
  const FlushDenormals flush;
  const float decay = in.discount * in.lambda;
  const int64_t rows = in.rows;
  for (int64_t t = in.length - 1; t >= 0; --t) {
    const bool last = t + 1 == in.length;
    const int64_t end = (t + 1) * rows;
    int64_t i = t * rows;
    for (; i + kLanes <= end; i += kLanes) {
      const GaeLanes<Vec, IntVec> lanes = {
          .reward = Load(in.reward + i),
          .value = Load(in.value + i),
          .next_value = Load(in.value + i + rows),
          .bootstrap_value = Load(in.bootstrap_value + i),
          .next_advantage = last ? Vec{} : Load(advantage + i + rows),
          .terminated = LoadFlags(in.terminated + i),
          .truncated = LoadFlags(in.truncated + i),
          .valid = in.valid ? LoadFlags(in.valid + i) : IntVec{} - 1};
      Vec a, r;
      lanes.Step(in.discount, decay, &a, &r);
      Store(advantage + i, a);
      Store(returns + i, r);
    }
    for (; i < end; ++i) {
      const GaeLanes<float, bool> lane = {
          .reward = in.reward[i],
          .value = in.value[i],
          .next_value = in.value[i + rows],
          .bootstrap_value = in.bootstrap_value[i],
          .next_advantage = last ? 0.0f : advantage[i + rows],
          .terminated = in.terminated[i] != 0,
          .truncated = in.truncated[i] != 0,
          .valid = in.valid == nullptr || in.valid[i] != 0};
      lane.Step(in.discount, decay, &advantage[i], &returns[i]);
    }
  }
}

template <Vec (*kFunction)(Vec)>
void Map(const float* x, int64_t size, float* out) {
  const FlushDenormals flush;
  for (int64_t i = 0; i < size; ++i) out[i] = kFunction(Splat(x[i]))[0];
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_FLAT_H_
