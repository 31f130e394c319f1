#include "learner/algo/ppo.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "learner/algo/advantages.h"
#include "learner/algo/policy_gradient.h"
#include "learner/algo/segment_ppo.h"
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
  if (!sums.is_cpu()) {
    // The same without reading a number of the device.
    const torch::Tensor count = sums[0].clamp_min(1);
    const torch::Tensor offset = sums[1] / count;
    const torch::Tensor around =
        ((a - offset).square() * valid).sum().reshape({1});
    RETURN_IF_ERROR(collective->AllReduceSum(around));
    advantage->sub_(offset).mul_((around[0] / count + 1e-5).rsqrt());
    return absl::OkStatus();
  }
  const double n = std::max(1.0, sums[0].item<double>());
  const double mean = sums[1].item<double>() / n;
  const torch::Tensor squares =
      ((a - mean).square() * valid).sum().reshape({1});
  RETURN_IF_ERROR(collective->AllReduceSum(squares));
  const double variance = squares[0].item<double>() / n;
  advantage->sub_(mean).mul_(1 / std::sqrt(variance + 1e-5));
  return absl::OkStatus();
}

// What the backend is to do itself: advantages normalised over ranks are left
// alone.
PolicyLoss BackendLoss(const v1::RunConfig& config) {
  PolicyLoss loss = PpoLossOf(config.ppo());
  if (config.ppo().normalize_advantages_over_ranks()) {
    loss.normalize_advantages = false;
  }
  return loss;
}

class Ppo : public PolicyGradient {
 public:
  Ppo(const v1::RunConfig& config, const Spaces& spaces,
      std::unique_ptr<Network> net)
      : PolicyGradient(config, BackendLoss, spaces, std::move(net)) {
    const int64_t T = config.rollout().length(), B = config.env().num_envs();
    advantage_ = torch::zeros({T, B}, memory());
    returns_ = torch::zeros({T, B}, memory());
  }

 private:
  absl::StatusOr<Estimates> Estimate(const Rollout& rollout,
                                     const UpdateContext& context) override;

  torch::Tensor advantage_, returns_;  // [T, B] float32
};

absl::StatusOr<Ppo::Estimates> Ppo::Estimate(const Rollout& r,
                                             const UpdateContext& context) {
  const v1::PpoConfig& ppo = config_.ppo();
  EstimateGae(r, Terminated(r),
              {.discount = ppo.discount(), .lambda = ppo.gae_lambda()},
              &advantage_, &returns_);
  if (ppo.normalize_advantages() && ppo.normalize_advantages_over_ranks()) {
    RETURN_IF_ERROR(NormalizeOverRanks(r, context.collective, &advantage_));
  }
  return Estimates{r, advantage_, returns_};
}

}  // namespace

PolicyLoss PpoLossOf(const v1::PpoConfig& config) {
  PolicyLoss loss;
  loss.clip_ratio = config.clip_ratio();
  loss.value_clip = config.value_clip();
  loss.entropy_cost = config.entropy_cost();
  loss.value_cost = config.value_cost();
  loss.epochs = config.epochs();
  loss.minibatches = config.minibatches();
  loss.max_minibatch = config.max_minibatch();
  loss.normalize_advantages = config.normalize_advantages();
  loss.target_kl = config.target_kl();
  loss.anneal_clip = config.anneal_clip();
  loss.bootstrap_truncation = config.bootstrap_truncation();
  return loss;
}

absl::StatusOr<std::unique_ptr<Algorithm>> MakePpo(const v1::RunConfig& config,
                                                   const Spaces& spaces,
                                                   torch::Device device) {
  ASSIGN_OR_RETURN(std::unique_ptr<Network> net,
                   MakeNetwork(spaces, config.model(), device));
  if (config.ppo().minibatch() == v1::SEGMENTS) {
    return MakeSegmentPpo(config, spaces, std::move(net));
  }
  return std::unique_ptr<Algorithm>(new Ppo(config, spaces, std::move(net)));
}

}  // namespace flotilla
