#ifndef FLOTILLA_LEARNER_KERNELS_LSTM_H_
#define FLOTILLA_LEARNER_KERNELS_LSTM_H_

#include <cstdint>

#include "learner/kernels/isa/kernel_table.h"

namespace flotilla {

// One step of torch.nn.LSTM's cell for `rows` sequences of `width` outputs: i, f,
// o = sigmoid, g = tanh, c' = f c + i g, h' = o tanh(c'). A tensor library takes
// ten calls for it, each longer than the arithmetic of a few rows. Borrowed; a row
// knows nothing of its neighbours.
struct LstmStep {
  int64_t rows = 0;        // B
  int64_t width = 0;       // H
  float* gates = nullptr;  // [B, 4, H]  i, f, g, o: sums, then activated
  // What PackLstm made, for h_before's part of the sums to be added here; null: it
  // is in them.
  const float* recurrent = nullptr;
  const float* h_before = nullptr;  // [B, H]
  const float* c_before = nullptr;  // [B, H]
  float* tanh_c = nullptr;          // [B, H]  out
  float* output = nullptr;          // [B, H]  out
  // What the next step starts from: h' and c' times `next_keep`, which is 0
  // where an episode begins, or null: all 1.
  const float* next_keep = nullptr;  // [B]
  float* next_h = nullptr;           // rows of H, `next_row` apart; out
  float* next_c = nullptr;           // likewise
  int64_t next_row = 0;
};

// The way back through one step.
struct LstmStepBack {
  int64_t rows = 0;                    // B
  int64_t width = 0;                   // H
  const float* gates = nullptr;        // [B, 4, H]  activated
  const float* c_before = nullptr;     // [B, H]
  const float* tanh_c = nullptr;       // [B, H]
  const float* from_output = nullptr;  // [B, H]  d loss / d h' of this output
  const float* keep = nullptr;         // [B]  that this step began with
  // Of the step after: d loss / d its h_before, and its `keep`, or null at the
  // last one.
  const float* from_h = nullptr;     // [B, H]
  const float* next_keep = nullptr;  // [B]
  float* from_c = nullptr;           // [B, H]  d loss / d c', then / d c
  // If set, `to_h` becomes d loss / d h_before; it may be from_h.
  const float* weight_hh = nullptr;  // [4 H, H]
  float* to_h = nullptr;             // [B, H]
  float* gate_gradient = nullptr;    // [B, 4, H]  of the sums; out
};

// The products want widths of this many outputs, or multiples.
inline constexpr int64_t kLstmWidth = 16;

// `weight_hh` [4 H, H] as LstmForward multiplies by it: `packed` [H, 4 H].
void PackLstm(const float* weight_hh, int64_t width, float* packed,
              const KernelTable& kernels = BestKernels());

// Thread-safe; never block.
void LstmForward(const LstmStep& step,
                 const KernelTable& kernels = BestKernels());
void LstmBackward(const LstmStepBack& step,
                  const KernelTable& kernels = BestKernels());

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_LSTM_H_
