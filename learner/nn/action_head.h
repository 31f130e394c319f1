#ifndef FLOTILLA_LEARNER_NN_ACTION_HEAD_H_
#define FLOTILLA_LEARNER_NN_ACTION_HEAD_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "learner/kernels/draws.h"
#include "learner/nn/policy.h"
#include "learner/rollout/batch.h"
#include "learner/torch.h"
#include "services/env/spaces.h"

namespace flotilla {

struct LogProbAndEntropy {
  torch::Tensor log_prob;  // [M]
  torch::Tensor entropy;   // [M]
};

// What a network's policy output [M, O] means: one distribution for each of K
// choices and A values, all independent, so that log-probabilities and entropies
// are sums.
//
//   choice i of n_i   Categorical over the next n_i logits
//   value j           Gaussian around the j-th mean, with a log standard
//                     deviation of its own
//
// A mask [M, L] of the choices' values forbids those that are 0: their
// probability, gradient and entropy term are 0, and sampling never returns them.
// Where it forbids every value of a choice, which no environment may ask for and
// only rows that are lost do, it is as if it allowed them all.
//
// Immutable and thread-safe.
class ActionHead {
 public:
  // SampleOnDevice is for tensors of `device`.
  explicit ActionHead(const ActionSpace& space,
                      torch::Device device = torch::kCPU);

  int64_t num_outputs() const { return logits_ + continuous_; }  // O
  // What SampleOnDevice reads beside its arguments.
  const torch::Tensor& memory() const { return first_there_; }

  // Draws actions of R rows on the host, or takes the most likely ones if
  // `greedy`: by row, first its choices (inverting the cumulative distribution
  // with one uniform number each) and then its values (one normal number each).
  // Writes `out`'s discrete, continuous and log_prob.
  void Sample(const float* outputs,  // [R, O]
              const float* log_std,  // [A], or [R, A] if `per_row`; or null
              bool per_row,          //
              const uint8_t* mask,   // [R, L], or null
              int64_t rows, bool greedy, Draws* draws,
              const DecisionOutput& out) const;

  // The same of R rows on a device, by one kernel and without waiting for it:
  // `stream` [2] int64 is what Draws would Take (kernels/draws.h). Returns actions
  // and [R] float32.
  std::pair<Actions, torch::Tensor> SampleOnDevice(
      const torch::Tensor& outputs, const torch::Tensor& log_std,
      const torch::Tensor& mask, const torch::Tensor& stream) const;

  // Of `action` [M, ...] under M outputs. `log_std` is [A] or [M, A].
  LogProbAndEntropy Evaluate(const torch::Tensor& outputs,
                             const torch::Tensor& log_std,
                             const torch::Tensor& mask,  // [M, L], or undefined
                             const Actions& action) const;

 private:
  const std::vector<int64_t> num_values_;   // [K]
  const int64_t logits_;                    // L
  const int64_t continuous_;                // A
  const std::vector<int32_t> first_logit_;  // [K + 1]
  const torch::Tensor first_there_;         // the same on the device
};

// Of each choice; then L. [K + 1]
std::vector<int32_t> FirstLogits(const ActionSpace& space);

// Logits [M, n] where values that `allowed` [M, n] forbids have none; see above
// for rows that forbid everything.
torch::Tensor ForbidValues(const torch::Tensor& logits,
                           const torch::Tensor& allowed);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_ACTION_HEAD_H_
