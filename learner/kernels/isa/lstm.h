#ifndef FLOTILLA_LEARNER_KERNELS_ISA_LSTM_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_LSTM_H_

#include <cstdint>

#include "learner/kernels/isa/gemm.h"
#include "learner/kernels/isa/mlp.h"
#include "learner/kernels/isa/vec.h"
#include "learner/kernels/lstm.h"

// One step of an LSTM's cell. Included by kernels.h alone.

namespace flotilla {
namespace {

// Below -80 the result is that of -80, 2e-35: the divisor stays finite.
FLOTILLA_INLINE Vec Sigmoid(Vec x) {
  return Divide(Splat(1.0f), 1.0f + Exp(-AtLeast(x, -80.0f)));
}

void LstmPack(const float* weight_hh, int64_t width, float* packed) {
  CopyTransposed(weight_hh, width, 4 * width, width, packed, 4 * width);
}

void LstmForwardOf(const LstmStep& step) {
  const FlushDenormals flush;
  const int64_t H = step.width;
  if (step.recurrent != nullptr) {
    Multiply(step.rows, 4 * H, H, {step.h_before, H, 1},
             {step.recurrent, 4 * H}, {step.gates, 4 * H}, {step.gates, 4 * H});
  }
  for (int64_t b = 0; b < step.rows; ++b) {
    float* const gates = step.gates + b * 4 * H;
    const float keep = step.next_keep == nullptr ? 1.0f : step.next_keep[b];
    for (int64_t j = 0; j < H; j += kLanes) {
      const int64_t n = H - j;
      const Vec i = Sigmoid(LoadLanes(gates + j, n));
      const Vec f = Sigmoid(LoadLanes(gates + H + j, n));
      const Vec g = Tanh(LoadLanes(gates + 2 * H + j, n));
      const Vec o = Sigmoid(LoadLanes(gates + 3 * H + j, n));
      CopyLanes(i, n, gates + j);
      CopyLanes(f, n, gates + H + j);
      CopyLanes(g, n, gates + 2 * H + j);
      CopyLanes(o, n, gates + 3 * H + j);
      const Vec before = LoadLanes(step.c_before + b * H + j, n);
      const Vec c = MultiplyAdd(f, before, i * g);
      const Vec tanh_c = Tanh(c), h = o * tanh_c;
      CopyLanes(tanh_c, n, step.tanh_c + b * H + j);
      CopyLanes(h, n, step.output + b * H + j);
      CopyLanes(h * keep, n, step.next_h + b * step.next_row + j);
      CopyLanes(c * keep, n, step.next_c + b * step.next_row + j);
    }
  }
}

void LstmBackwardOf(const LstmStepBack& step) {
  const FlushDenormals flush;
  const int64_t H = step.width;
  for (int64_t b = 0; b < step.rows; ++b) {
    const float* const gates = step.gates + b * 4 * H;
    float* const gradient = step.gate_gradient + b * 4 * H;
    const float carried = step.next_keep == nullptr ? 0.0f : step.next_keep[b];
    for (int64_t j = 0; j < H; j += kLanes) {
      const int64_t n = H - j, at = b * H + j;
      const Vec i = LoadLanes(gates + j, n), f = LoadLanes(gates + H + j, n);
      const Vec g = LoadLanes(gates + 2 * H + j, n);
      const Vec o = LoadLanes(gates + 3 * H + j, n);
      const Vec tanh_c = LoadLanes(step.tanh_c + at, n);
      Vec dh = LoadLanes(step.from_output + at, n);
      if (carried != 0) dh += LoadLanes(step.from_h + at, n) * carried;
      const Vec dc = MultiplyAdd(dh * o, 1.0f - tanh_c * tanh_c,
                                 LoadLanes(step.from_c + at, n));
      const Vec before = LoadLanes(step.c_before + at, n);
      CopyLanes(dc * g * (i * (1.0f - i)), n, gradient + j);
      CopyLanes(dc * before * (f * (1.0f - f)), n, gradient + H + j);
      CopyLanes(dc * i * (1.0f - g * g), n, gradient + 2 * H + j);
      CopyLanes(dh * tanh_c * (o * (1.0f - o)), n, gradient + 3 * H + j);
      CopyLanes(dc * f * step.keep[b], n, step.from_c + at);
    }
  }
  if (step.weight_hh == nullptr) return;
  for (int64_t i = 0; i < step.rows * H; ++i) step.to_h[i] = 0;
  Multiply(step.rows, H, 4 * H, {step.gate_gradient, 4 * H, 1},
           {step.weight_hh, H}, {step.to_h, H}, {step.to_h, H});
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_LSTM_H_
