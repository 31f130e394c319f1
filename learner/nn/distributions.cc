#include "learner/nn/distributions.h"

#include <cmath>
#include <numbers>

namespace flotilla {
namespace {

LogProbAndEntropy Categorical(const torch::Tensor& logits,
                              const torch::Tensor& action) {
  const torch::Tensor log_softmax = torch::log_softmax(logits, 1);
  return {log_softmax.gather(1, action.unsqueeze(1)).squeeze(1),
          -(log_softmax.exp() * log_softmax).sum(1)};
}

LogProbAndEntropy Gaussian(const torch::Tensor& mean,
                           const torch::Tensor& log_std,
                           const torch::Tensor& action) {
  const double half_log_2pi = 0.5 * std::log(2 * std::numbers::pi);
  const torch::Tensor z = (action - mean) * torch::exp(-log_std);
  const torch::Tensor entropy = (log_std + 0.5 + half_log_2pi).sum();
  return {(-0.5 * z * z - log_std - half_log_2pi).sum(1),
          entropy.expand({mean.size(0)})};
}

}  // namespace

LogProbAndEntropy ScoreActions(const ActorCritic& net,
                               const torch::Tensor& policy,
                               const torch::Tensor& action) {
  return net.spaces().continuous ? Gaussian(policy, net.log_std(), action)
                                 : Categorical(policy, action);
}

}  // namespace flotilla
