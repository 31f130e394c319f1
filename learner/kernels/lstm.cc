#include "learner/kernels/lstm.h"

namespace flotilla {

void PackLstm(const float* weight_hh, int64_t width, float* packed,
              const KernelTable& kernels) {
  kernels.lstm_pack(weight_hh, width, packed);
}

void LstmForward(const LstmStep& step, const KernelTable& kernels) {
  kernels.lstm_forward(step);
}

void LstmBackward(const LstmStepBack& step, const KernelTable& kernels) {
  kernels.lstm_backward(step);
}

}  // namespace flotilla
