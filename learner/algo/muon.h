#ifndef FLOTILLA_LEARNER_ALGO_MUON_H_
#define FLOTILLA_LEARNER_ALGO_MUON_H_

#include "learner/nn/flat_parameters.h"
#include "learner/torch.h"

namespace flotilla {

// One step of Muon (Jordan et al. 2024) as PufferLib has it, with the gradients
// of `net` as they are:
//
//   buf = momentum * buf + g        u = g + momentum * buf        (Nesterov)
//   p = p - learning_rate * u                                     vectors
//   p = p - learning_rate * sqrt(max(1, rows / columns)) * Orthogonalize(u)
//                                                                 the rest
//
// Weights of more than two dimensions are matrices [shape[0], all others].
// `buffer` [P] float32 starts at 0. `bfloat16`: see Orthogonalize.
void MuonStep(const FlatParameters& net, double momentum, double learning_rate,
              bool bfloat16, torch::Tensor* buffer);

// The nearest semi-orthogonal matrix to `matrix` [R, C] float32, roughly: five
// Newton-Schulz steps after dividing by the Frobenius norm (1e-7 at least).
// Singular values end near 1. `bfloat16`: operands of products may be rounded to it, and
// are on a CPU with AMX (newton_schulz.h).
torch::Tensor Orthogonalize(const torch::Tensor& matrix, bool bfloat16);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_MUON_H_
