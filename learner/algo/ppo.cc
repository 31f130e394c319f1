#include "learner/algo/ppo.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/algo/gradient_step.h"
#include "learner/algo/minibatches.h"
#include "learner/algo/ppo_backend.h"
#include "learner/algo/schedule.h"
#include "learner/kernels/gae.h"
#include "learner/nn/mlp_shape_of.h"
#include "learner/nn/policies.h"
#include "services/base/random.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

// 1 - Var(returns - value) / Var(returns), over valid steps: 1 is a perfect
// value function, 0 no better than a constant.
double ExplainedVariance(const Rollout& rollout, const torch::Tensor& returns) {
  const uint8_t* valid = rollout.valid.data_ptr<uint8_t>();
  const float* v = rollout.value.data_ptr<float>();
  const float* r = returns.data_ptr<float>();
  double n = 0, sum = 0, squares = 0, error_sum = 0, error_squares = 0;
  for (int64_t i = 0; i < rollout.valid.numel(); ++i) {
    if (!valid[i]) continue;
    const double error = r[i] - v[i];
    ++n;
    sum += r[i];
    squares += static_cast<double>(r[i]) * r[i];
    error_sum += error;
    error_squares += error * error;
  }
  n = std::max(1.0, n);
  const double variance = squares / n - (sum / n) * (sum / n);
  const double left = error_squares / n - (error_sum / n) * (error_sum / n);
  return variance > 0 ? 1 - left / variance : 0;
}

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

// Adds to `status` which of this rank's losses is to blame, if one is.
absl::Status WhatIsNotFinite(const PpoSums& sums, const absl::Status& status) {
  const Metric losses[] = {{"losses/policy_loss", sums.policy_loss},
                           {"losses/value_loss", sums.value_loss},
                           {"losses/entropy", sums.entropy}};
  for (const Metric& loss : losses) {
    if (!std::isfinite(loss.value)) {
      return absl::InternalError(absl::StrCat(loss.name, " is ", loss.value,
                                              " here: ", status.message()));
    }
  }
  return absl::InternalError(
      absl::StrCat("the losses of this rank are finite: ", status.message()));
}

class Ppo : public Algorithm {
 public:
  Ppo(const v1::RunConfig& config, ActorCritic net)
      : config_(config),
        net_(std::move(net)),
        step_(&net_, config.optimizer()) {
    net_.Initialize(config.seed());
    net_.set_bf16(config.runtime().bf16());
    backend_ = MlpShapeOf(net_).has_value()
                   ? MakeKernelPpoBackend(&net_, BackendConfig(config.ppo()))
                   : MakeTorchPpoBackend(&net_, BackendConfig(config.ppo()));
    policy_ = MakeNetworkPolicy(&net_);
    const int64_t T = config.rollout().length(), B = config.env().num_envs();
    advantage_ = torch::zeros({T, B});
    returns_ = torch::zeros({T, B});
  }

  absl::StatusOr<std::vector<Metric>> Update(
      const Rollout& rollout, const UpdateContext& context) override;

  Policy* live_policy() override { return policy_.get(); }
  std::unique_ptr<Policy> Freeze() const override {
    return MakeFrozenPolicy(net_);
  }
  std::vector<NamedTensor> Weights() override { return net_.Named(); }
  std::vector<NamedTensor> State() override { return step_.State(); }
  void StateWasReplaced() override { policy_->Refresh(); }

 private:
  void Advantages(const Rollout& rollout);

  const v1::RunConfig config_;
  ActorCritic net_;
  GradientStep step_;
  std::unique_ptr<PpoBackend> backend_;
  std::unique_ptr<NetworkPolicy> policy_;
  torch::Tensor advantage_, returns_;  // [T, B] float32
};

void Ppo::Advantages(const Rollout& r) {
  // Without bootstrapping, a time limit ends an episode like any other end.
  const torch::Tensor terminated =
      config_.ppo().bootstrap_truncation()
          ? r.terminated
          : torch::bitwise_or(r.terminated, r.truncated);
  GaeInput input;
  input.length = r.length;
  input.rows = r.rows;
  input.reward = r.reward.data_ptr<float>();
  input.value = r.value.data_ptr<float>();
  input.terminated = terminated.data_ptr<uint8_t>();
  input.truncated = r.truncated.data_ptr<uint8_t>();
  input.bootstrap_value = r.bootstrap_value.data_ptr<float>();
  input.valid = r.valid.data_ptr<uint8_t>();
  input.discount = static_cast<float>(config_.ppo().discount());
  input.lambda = static_cast<float>(config_.ppo().gae_lambda());
  GeneralizedAdvantages(input, advantage_.data_ptr<float>(),
                        returns_.data_ptr<float>());
}

absl::StatusOr<std::vector<Metric>> Ppo::Update(const Rollout& rollout,
                                                const UpdateContext& context) {
  const v1::PpoConfig& ppo = config_.ppo();
  const double factor =
      ScheduleFactor(config_.optimizer().schedule(), context.global_step,
                     config_.total_env_steps());
  const double learning_rate = config_.optimizer().learning_rate() * factor;
  const double clip_factor = ppo.anneal_clip() ? factor : 1.0;
  Advantages(rollout);
  if (ppo.normalize_advantages() && ppo.normalize_advantages_over_ranks()) {
    RETURN_IF_ERROR(
        NormalizeOverRanks(rollout, context.collective, &advantage_));
  }

  Minibatches minibatches(rollout, ppo.minibatches(), net_.recurrent());
  PpoBatch batch;
  batch.rollout = &rollout;
  batch.advantage = advantage_;
  batch.returns = returns_;
  batch.clip_ratio = ppo.clip_ratio() * clip_factor;
  batch.value_clip = ppo.value_clip() * clip_factor;
  PpoSums sums;
  double grad_norm = 0, sync_seconds = 0;
  int64_t sync_bytes = 0;
  int steps = 0;
  Random rng(SamplingSeed(HashSeed({config_.seed(), 1}),
                          context.collective->rank(), context.update));
  for (int epoch = 0; epoch < ppo.epochs(); ++epoch) {
    minibatches.Shuffle(&rng);
    double kl = 0;
    for (int m = 0; m < minibatches.count(); ++m) {
      const Minibatch part = minibatches.Get(m);
      batch.index = part.index;
      batch.columns = part.columns;
      const PpoSums minibatch = backend_->Compute(batch);
      const absl::StatusOr<GradientStep::Result> applied = step_.Apply(
          context.collective, static_cast<double>(part.index.numel()),
          minibatch.approx_kl, learning_rate);
      if (absl::IsInternal(applied.status())) {
        return WhatIsNotFinite(minibatch, applied.status());
      }
      RETURN_IF_ERROR(applied.status());
      const GradientStep::Result& step = *applied;
      sums += minibatch;
      sync_seconds += step.sync_seconds;
      sync_bytes += step.sync_bytes;
      grad_norm += step.grad_norm;
      kl = step.samples > 0 ? step.extra / step.samples : 0;
      ++steps;
    }
    // Reduced, so every rank stops here or none does.
    if (ppo.target_kl() > 0 && kl > ppo.target_kl()) break;
  }
  policy_->Refresh();

  const double n = std::max<int64_t>(1, sums.samples);
  return std::vector<Metric>{
      {"charts/learning_rate", learning_rate},
      {"losses/policy_loss", sums.policy_loss / n},
      {"losses/value_loss", sums.value_loss / n},
      {"losses/entropy", sums.entropy / n},
      {"losses/old_approx_kl", sums.old_approx_kl / n},
      {"losses/approx_kl", sums.approx_kl / n},
      {"losses/clipfrac", sums.clipped / n},
      {"losses/explained_variance", ExplainedVariance(rollout, returns_)},
      {"losses/grad_norm", grad_norm / std::max(1, steps)},
      {"sync/all_reduce_ms", 1e3 * sync_seconds / std::max(1, steps)},
      {"sync/bytes", static_cast<double>(sync_bytes)},
      {"policy/lag_mean", 0.0}};  // collected by the policy it improves
}

}  // namespace

absl::StatusOr<std::unique_ptr<Algorithm>> MakePpo(const v1::RunConfig& config,
                                                   const Spaces& spaces,
                                                   torch::Device device) {
  ASSIGN_OR_RETURN(ActorCritic net,
                   ActorCritic::Make(spaces, config.model(), device));
  return std::unique_ptr<Algorithm>(new Ppo(config, std::move(net)));
}

}  // namespace flotilla
