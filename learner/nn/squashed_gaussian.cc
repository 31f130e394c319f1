#include "learner/nn/squashed_gaussian.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "absl/status/status.h"
#include "services/algorithms/algorithm_traits.h"

namespace flotilla {
namespace {

const double kHalfLog2Pi = 0.5 * std::log(2 * std::numbers::pi);

}  // namespace

absl::StatusOr<SquashedGaussian> SquashedGaussian::Make(
    const ActionSpace& space, torch::Device device) {
  const std::string problem = ActionsProblem(
      *FindAlgorithm("sac"), space.choices() > 0, space.low, space.high);
  if (!problem.empty()) return absl::InvalidArgumentError(problem);
  SquashedGaussian made;
  std::vector<float> center, scale;
  for (int64_t a = 0; a < space.continuous; ++a) {
    const float low = space.low[a], high = space.high[a];
    center.push_back(low + (high - low) / 2);
    scale.push_back((high - low) / 2);
    made.log_scale_ += std::log(static_cast<double>(scale.back()));
  }
  made.low_ = space.low;
  made.high_ = space.high;
  made.center_ = torch::tensor(center).to(device);
  made.scale_ = torch::tensor(scale).to(device);
  return made;
}

SquashedGaussian::Drawn SquashedGaussian::Draw(
    const torch::Tensor& mean, const torch::Tensor& log_std,
    const torch::Tensor& noise) const {
  const torch::Tensor u = mean + log_std.exp() * noise;
  // log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), without the
  // cancellation where tanh is close to 1.
  const torch::Tensor log_slope =
      2 * (std::numbers::ln2 - u - torch::softplus(-2 * u));
  const torch::Tensor each =
      -0.5 * noise * noise - log_std - kHalfLog2Pi - log_slope;
  return {center_ + scale_ * u.tanh(), each.sum(1) - log_scale_};
}

void SquashedGaussian::Sample(const float* mean, const float* log_std,
                              int64_t rows, Random* rng, float* action) const {
  const int64_t A = values();
  for (int64_t i = 0; i < rows * A; ++i) {
    const float low = low_[i % A], high = high_[i % A];
    double u = mean[i];
    if (rng != nullptr) u += std::exp(double{log_std[i]}) * rng->Normal();
    // Rounding may lead out of the bounds.
    action[i] = std::clamp(
        static_cast<float>(low + (double{high} - low) * (std::tanh(u) + 1) / 2),
        low, high);
  }
}

void SquashedGaussian::SampleUniformly(int64_t rows, Random* rng,
                                       float* action) const {
  const int64_t A = values();
  for (int64_t i = 0; i < rows * A; ++i) {
    const float low = low_[i % A], high = high_[i % A];
    action[i] =
        std::clamp(static_cast<float>(rng->Uniform(low, high)), low, high);
  }
}

}  // namespace flotilla
