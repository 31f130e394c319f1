#ifndef FLOTILLA_LEARNER_NN_SQUASHED_GAUSSIAN_H_
#define FLOTILLA_LEARNER_NN_SQUASHED_GAUSSIAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "learner/torch.h"
#include "services/base/random.h"
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

  int64_t values() const { return static_cast<int64_t>(low_.size()); }  // A

  // With gradients by `mean` and `log_std`; all are [M, A] on the device.
  Drawn Draw(const torch::Tensor& mean, const torch::Tensor& log_std,
             const torch::Tensor& noise) const;

  // Rows on the host: drawn with one normal number a value, or, if `rng` is
  // null, those of the means.
  void Sample(const float* mean,     // [R, A]
              const float* log_std,  // [R, A]
              int64_t rows, Random* rng, float* action) const;

  // Uniform within the bounds: one number a value.
  void SampleUniformly(int64_t rows, Random* rng, float* action) const;

 private:
  SquashedGaussian() = default;

  std::vector<float> low_, high_;  // [A]
  torch::Tensor center_, scale_;   // [A]
  double log_scale_ = 0;           // of all values together
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_SQUASHED_GAUSSIAN_H_
