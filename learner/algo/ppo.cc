#include "learner/algo/ppo.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "learner/algo/policy_gradient.h"
#include "learner/algo/segment_ppo.h"
#include "learner/kernels/gae.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

// The advantages (A - mean) / sqrt(var + 1e-5) with the mean and variance over
// the valid steps of all ranks, as DD-PPO's get_advantages has it: two
// reductions, of the sum and then of the squared deviations.
absl::Status NormalizeOverRanks(const Rollout& rollout, Collective* collective,
                                torch::Tensor* advantage) {
  const torch::Tensor valid = rollout.valid.to(torch::kFloat64);
  const torch::Tensor a = advantage->to(torch::kFloat64) * valid;
  const torch::Tensor sums = torch::stack({valid.sum(), a.sum()});
  RETURN_IF_ERROR(collective->AllReduceSum(sums));
  const double n = std::max(1.0, sums[0].item<double>());
  const double mean = sums[1].item<double>() / n;
  const torch::Tensor squares =
      ((a - mean).square() * valid).sum().reshape({1});
  RETURN_IF_ERROR(collective->AllReduceSum(squares));
  const double variance = squares[0].item<double>() / n;
  advantage->sub_(mean).mul_(1 / std::sqrt(variance + 1e-5));
  return absl::OkStatus();
}

// How the backend is to see it: advantages normalised over ranks are left
// alone.
v1::PpoConfig BackendConfig(v1::PpoConfig config) {
  if (config.normalize_advantages_over_ranks()) {
    config.set_normalize_advantages(false);
  }
  return config;
}

class Ppo : public PolicyGradient {
 public:
  Ppo(const v1::RunConfig& config, ActorCritic net)
      : PolicyGradient(config, BackendConfig(config.ppo()), std::move(net)) {
    const int64_t T = config.rollout().length(), B = config.env().num_envs();
    advantage_ = torch::zeros({T, B});
    returns_ = torch::zeros({T, B});
  }

 private:
  absl::StatusOr<Estimates> Estimate(const Rollout& rollout,
                                     const UpdateContext& context) override;

  torch::Tensor advantage_, returns_;  // [T, B] float32
};

absl::StatusOr<Ppo::Estimates> Ppo::Estimate(const Rollout& r,
                                             const UpdateContext& context) {
  const torch::Tensor terminated = Terminated(r);
  GaeInput input;
  input.length = r.length;
  input.rows = r.rows;
  input.reward = r.reward.data_ptr<float>();
  input.value = r.value.data_ptr<float>();
  input.terminated = terminated.data_ptr<uint8_t>();
  input.truncated = r.truncated.data_ptr<uint8_t>();
  input.bootstrap_value = r.bootstrap_value.data_ptr<float>();
  input.valid = r.valid.data_ptr<uint8_t>();
  input.discount = static_cast<float>(loss_.discount());
  input.lambda = static_cast<float>(loss_.gae_lambda());
  GeneralizedAdvantages(input, advantage_.data_ptr<float>(),
                        returns_.data_ptr<float>());
  const v1::PpoConfig& ppo = config_.ppo();
  if (ppo.normalize_advantages() && ppo.normalize_advantages_over_ranks()) {
    RETURN_IF_ERROR(NormalizeOverRanks(r, context.collective, &advantage_));
  }
  return Estimates{r, advantage_, returns_};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Algorithm>> MakePpo(const v1::RunConfig& config,
                                                   const Spaces& spaces,
                                                   torch::Device device) {
  ASSIGN_OR_RETURN(ActorCritic net,
                   ActorCritic::Make(spaces, config.model(), device));
  if (config.ppo().minibatch() == v1::SEGMENTS) {
    return MakeSegmentPpo(config, std::move(net));
  }
  return std::unique_ptr<Algorithm>(new Ppo(config, std::move(net)));
}

}  // namespace flotilla
