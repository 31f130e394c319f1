#include "learner/algo/policy_gradient.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/algo/schedule.h"
#include "learner/device/host.h"
#include "services/base/random.h"
#include "services/base/run_length.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

// 1 - Var(returns - value) / Var(returns), over valid steps: 1 is a perfect
// value function, 0 no better than a constant.
double ExplainedVariance(const Rollout& rollout, const torch::Tensor& returns) {
  const uint8_t* valid = Host<uint8_t>(rollout.valid);
  const float* v = Host<float>(rollout.value);
  const float* r = Host<float>(returns);
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

}  // namespace

PolicyGradient::PolicyGradient(const v1::RunConfig& config,
                               const PolicyLoss& loss, const Spaces& spaces,
                               std::unique_ptr<Network> net)
    : config_(config),
      loss_(loss),
      spaces_(spaces),
      net_(std::move(net)),
      step_(net_->Flat(), config.optimizer(), config.distributed()) {
  net_->Initialize(config.seed());
  net_->set_bf16(config.runtime().bf16());
  backend_ = net_->KernelShape().has_value()
                 ? MakeKernelPpoBackend(net_.get(), loss_)
                 : MakeTorchPpoBackend(net_.get(), spaces_, loss_);
  policy_ = MakeNetworkPolicy(net_.get(), spaces_);
}

torch::Tensor PolicyGradient::Terminated(const Rollout& rollout) const {
  return loss_.bootstrap_truncation
             ? rollout.terminated
             : torch::bitwise_or(rollout.terminated, rollout.truncated);
}

PpoBatch PolicyGradient::NextBatch(int m, Minibatches* minibatches,
                                   Estimates* estimates, Random* rng) {
  if (m == 0) minibatches->Shuffle(rng);
  const Minibatch part = minibatches->Get(m);
  PpoBatch batch;
  batch.rollout = &estimates->rollout;
  batch.index = part.index;
  batch.columns = part.columns;
  batch.advantage = estimates->advantage;
  batch.returns = estimates->returns;
  return batch;
}

absl::StatusOr<std::vector<Metric>> PolicyGradient::Update(
    const Rollout& rollout, const UpdateContext& context) {
  const double factor =
      ScheduleFactor(config_.optimizer(),
                     ShareDone(config_, context.update, context.global_step));
  const double learning_rate = config_.optimizer().learning_rate() * factor;
  const double clip_factor = loss_.anneal_clip ? factor : 1.0;
  ASSIGN_OR_RETURN(Estimates estimates, Estimate(rollout, context));

  Minibatches minibatches(rollout, loss_.minibatches, net_->recurrent());
  PpoSums sums;
  double grad_norm = 0, sync_seconds = 0;
  int64_t sync_bytes = 0;
  int steps = 0;
  Random rng(SamplingSeed(HashSeed({config_.seed(), 1}),
                          context.collective->rank(), context.update));
  for (int epoch = 0; epoch < loss_.epochs; ++epoch) {
    double kl = 0;
    for (int m = 0; m < loss_.minibatches; ++m) {
      PpoBatch batch = NextBatch(m, &minibatches, &estimates, &rng);
      batch.clip_ratio = loss_.clip_ratio * clip_factor;
      batch.value_clip = loss_.value_clip * clip_factor;
      const double samples = static_cast<double>(batch.index.numel());
      batch.before_last_backward = [&] {
        step_.BeforeLastBackward(context.collective, samples);
      };
      const PpoSums minibatch = backend_->Compute(batch);
      const absl::StatusOr<GradientStep::Result> applied = step_.Apply(
          context.collective, samples, minibatch.approx_kl, learning_rate);
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
    if (loss_.target_kl > 0 && kl > loss_.target_kl) break;
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
      {"losses/explained_variance",
       ExplainedVariance(estimates.rollout, estimates.returns)},
      {"losses/grad_norm", grad_norm / std::max(1, steps)},
      {"sync/all_reduce_ms", 1e3 * sync_seconds / std::max(1, steps)},
      {"sync/bytes", static_cast<double>(sync_bytes)}};
}

}  // namespace flotilla
