#include "learner/nn/squashed_gaussian.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "absl/status/status.h"
#include "learner/cuda/operators.h"
#include "learner/device/host.h"
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
  made.low_ = torch::tensor(space.low);
  made.high_ = torch::tensor(space.high);
  made.center_ = torch::tensor(center);
  made.scale_ = torch::tensor(scale);
  return made.On(device);
}

SquashedGaussian SquashedGaussian::On(torch::Device device) const {
  SquashedGaussian there = *this;
  for (torch::Tensor* t :
       {&there.low_, &there.high_, &there.center_, &there.scale_}) {
    *t = t->to(device);
  }
  return there;
}

ActionRange SquashedGaussian::range() const {
  return {.center = Host<float>(center_),
          .scale = Host<float>(scale_),
          .log_scale = static_cast<float>(log_scale_)};
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

torch::Tensor SquashedGaussian::Sample(const torch::Tensor& mean,
                                       const torch::Tensor& log_std,
                                       const torch::Tensor& stream) const {
  return SquashedActions(
      {mean.contiguous(), log_std.contiguous(), low_, high_, stream},
      mean.size(0));
}

torch::Tensor SquashedGaussian::Anything(int64_t rows,
                                         const torch::Tensor& stream) const {
  return SquashedActions({{}, {}, low_, high_, stream}, rows);
}

}  // namespace flotilla
