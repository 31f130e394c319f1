#ifndef FLOTILLA_LEARNER_NN_SQUASHED_GAUSSIAN_H_
#define FLOTILLA_LEARNER_NN_SQUASHED_GAUSSIAN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "learner/kernels/sac_samples.h"
#include "learner/torch.h"
#include "services/env/spaces.h"

namespace flotilla {

// Actions within bounds (Haarnoja et al. 2018, appendix C): each of A values is a
// Gaussian, squashed by tanh and stretched over [low, high],
//
//   u = mean + exp(log_std) * noise         noise ~ N(0, 1)
//   action = (high + low) / 2 + (high - low) / 2 * tanh(u)
//
// and of all values together, by the change of variables,
//
//   log_prob = sum_j log N(u_j) - log((high_j - low_j) / 2 * (1 - tanh(u_j)^2))
//
// Immutable and thread-safe.
class SquashedGaussian {
 public:
  struct Drawn {
    torch::Tensor action;    // [M, A]
    torch::Tensor log_prob;  // [M]
  };

  // Errors: kInvalidArgument if there are choices, no values, or a value
  // without finite bounds that are apart.
  static absl::StatusOr<SquashedGaussian> Make(const ActionSpace& space,
                                               torch::Device device);

  // The same for tensors of `device`.
  SquashedGaussian On(torch::Device device) const;

  int64_t values() const { return low_.numel(); }  // A
  // The bounds, [A] float32.
  const torch::Tensor& low() const { return low_; }
  const torch::Tensor& high() const { return high_; }

  // What actions are made of, for kernels: of one on the host, and borrowed from it.
  ActionRange range() const;

  // With gradients by `mean` and `log_std`; all are [M, A] on the device.
  Drawn Draw(const torch::Tensor& mean, const torch::Tensor& log_std,
             const torch::Tensor& noise) const;

  // What is played, [R, A] float32: drawn by `stream` [2] int64, what Draws would Take
  // (kernels/draws.h), or, if that is undefined, those of the means. Nothing waits.
  torch::Tensor Sample(const torch::Tensor& mean, const torch::Tensor& log_std,
                       const torch::Tensor& stream) const;

  // Anything within the bounds alike, [rows, A] float32, drawn so too.
  torch::Tensor Anything(int64_t rows, const torch::Tensor& stream) const;

 private:
  SquashedGaussian() = default;

  torch::Tensor low_, high_;      // [A]
  torch::Tensor center_, scale_;  // [A]
  double log_scale_ = 0;          // of all values together
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_SQUASHED_GAUSSIAN_H_
