#ifndef FLOTILLA_LEARNER_NN_RECURRENT_H_
#define FLOTILLA_LEARNER_NN_RECURRENT_H_

#include <cstdint>

#include "flotilla/v1/config.pb.h"
#include "learner/torch.h"

namespace flotilla {

// One layer of torch.nn.LSTM (G = 4 gates: input, forget, cell, output) or
// torch.nn.GRU (G = 3: reset, update, new), with its names and layout.
struct RecurrentWeights {
  torch::Tensor weight_ih;  // [G * H, I]
  torch::Tensor weight_hh;  // [G * H, H]
  torch::Tensor bias_ih;    // [G * H]
  torch::Tensor bias_hh;    // [G * H]
};

struct RecurrentOutput {
  torch::Tensor output;  // [T, B, H]
  // [B, S] after the last step; undefined where gradients are recorded: only
  // actors need it.
  torch::Tensor state;
};

// Gates a cell has, and numbers of state for each of its H outputs: an LSTM
// keeps (h, c), a GRU h.
int64_t RecurrentGates(v1::RecurrentCell cell);
int64_t RecurrentPlanes(v1::RecurrentCell cell);

// Runs T steps of B sequences through one layer: `input` [T, B, I], `state`
// [B, S] before the first step, S = planes * H. `keep` [T, B, 1] of the input's
// dtype is 0 where the state is forgotten before that step (an episode begins
// there) and 1 elsewhere.
//
// Differentiable in the input and the weights, not in `state`: backpropagation
// through time ends at the sequence's begin. It is one autograd node, whose
// backward is written out: what does not depend on the step before is done for
// all T at once, but for float32 LSTMs on a CPU, whose steps are kernels
// (learner/kernels/lstm.h). On a CPU the sequences are shared out to Torch's threads,
// which meet once a pass.
RecurrentOutput RunRecurrent(v1::RecurrentCell cell,
                             const RecurrentWeights& weights,
                             const torch::Tensor& input,
                             const torch::Tensor& state,
                             const torch::Tensor& keep);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_RECURRENT_H_
