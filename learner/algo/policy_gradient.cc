#include "learner/algo/policy_gradient.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/algo/schedule.h"
#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/rollout/placement.h"
#include "services/base/random.h"
#include "services/base/run_length.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

// Of returns R and errors R - value over valid steps, [5] float64 where they are:
// how many, and of both the sum and the sum of squares.
torch::Tensor Moments(const Rollout& rollout, const torch::Tensor& returns) {
  if (!returns.is_cpu()) {
    const torch::Tensor skip = rollout.valid == 0;
    const torch::Tensor r = returns.to(torch::kFloat64).masked_fill(skip, 0);
    const torch::Tensor error =
        (returns - rollout.value.narrow(0, 0, rollout.length))
            .to(torch::kFloat64)
            .masked_fill(skip, 0);
    return torch::stack({skip.logical_not().sum().to(torch::kFloat64), r.sum(),
                         r.square().sum(), error.sum(), error.square().sum()});
  }
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
  return torch::tensor({n, sum, squares, error_sum, error_squares},
                       torch::kFloat64);
}

// 1 - Var(returns - value) / Var(returns), over valid steps: 1 is a perfect
// value function, 0 no better than a constant.
double ExplainedVariance(const torch::Tensor& moments) {
  const double* m = Host<double>(moments);
  const double n = std::max(1.0, m[0]);
  const double variance = m[2] / n - (m[1] / n) * (m[1] / n);
  const double left = m[4] / n - (m[3] / n) * (m[3] / n);
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

PolicyGradient::PolicyGradient(const v1::RunConfig& config, LossOf loss_of,
                               const Spaces& spaces,
                               std::unique_ptr<Network> net)
    : config_(config),
      loss_of_(loss_of),
      loss_(loss_of(config)),
      spaces_(spaces),
      net_(std::move(net)),
      memory_(torch::device(MemoryOf(config, net_->device()))),
      step_(net_->Flat(), config.optimizer(), config.distributed(),
            config.runtime().precision()) {
  net_->Initialize(config.seed());
  net_->set_bf16(config.runtime().precision() == v1::BF16);
  backend_ = net_->KernelShape().has_value()
                 ? MakeKernelPpoBackend(net_.get(), spaces_, loss_)
             : net_->device().is_cpu()
                 ? MakeTorchPpoBackend(net_.get(), spaces_, loss_)
                 : MakeFusedPpoBackend(net_.get(), spaces_, loss_);
  policy_ = MakeNetworkPolicy(net_.get(), spaces_);
  if (net_->device().is_cpu()) return;
  sums_ = torch::zeros({PpoBackend::kSums},
                       net_->parameters().options().dtype(torch::kFloat64));
  graphs_ = MinibatchGraphs::On(net_->device());
}

absl::Status PolicyGradient::Reconfigure(const v1::RunConfig& config) {
  config_ = config;
  loss_ = loss_of_(config);
  step_.Reconfigure(config.optimizer());
  backend_->set_loss(loss_);
  if (graphs_ != nullptr) graphs_->Clear();
  return absl::OkStatus();
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
  batch.host_index = part.host_index;
  batch.host_columns = part.host_columns;
  batch.advantage = estimates->advantage;
  batch.returns = estimates->returns;
  batch.stays = true;
  return batch;
}

const Rollout& PolicyGradient::Resident(const Rollout& rollout) {
  collected_ = &rollout;
  if (memory_.device().is_cpu()) return rollout;
  if (rollout.there != nullptr) {
    UploadOutcomes(rollout, rollout.there.get());
    return *rollout.there;
  }
  if (resident_.length != rollout.length || resident_.rows != rollout.rows) {
    resident_ = MakeRolloutOn(memory_.device(), spaces_, rollout.length,
                              rollout.rows, net_->state_size());
  }
  Upload(rollout, &resident_);
  return resident_;
}

absl::Status PolicyGradient::Step(const PpoBatch& batch,
                                  const UpdateContext& context,
                                  double learning_rate, Sums* sums) {
  const double samples = static_cast<double>(batch.index.numel());
  ++sums->steps;
  if (!net_->device().is_cpu()) {
    sums->losses.samples += batch.index.numel();
    return StepLater(batch, context, learning_rate);
  }
  const PpoSums losses = backend_->Compute(batch);
  const absl::StatusOr<GradientStep::Result> applied =
      step_.Apply(context.collective, samples, losses.approx_kl, learning_rate);
  if (absl::IsInternal(applied.status())) {
    return WhatIsNotFinite(losses, applied.status());
  }
  RETURN_IF_ERROR(applied.status());
  sums->losses += losses;
  sums->sync_seconds += applied->sync_seconds;
  sums->sync_bytes += applied->sync_bytes;
  sums->grad_norm += applied->grad_norm;
  sums->kl = applied->samples > 0 ? applied->extra / applied->samples : 0;
  return absl::OkStatus();
}

bool PolicyGradient::MayRecord(const PpoBatch& batch,
                               Collective* collective) const {
  // Parts of a minibatch come from the host.
  const bool whole =
      loss_.max_minibatch == 0 || batch.index.numel() <= loss_.max_minibatch;
  return graphs_ != nullptr && batch.stays && !batch.index.is_cpu() &&
         batch.index.numel() > 0 && whole &&
         step_.MayRecord(*collective) != GradientStep::Recorded::kNothing;
}

absl::Status PolicyGradient::StepLater(const PpoBatch& batch,
                                       const UpdateContext& context,
                                       double learning_rate) {
  const auto samples = static_cast<double>(batch.index.numel());
  const auto compute = [&](const PpoBatch& of) {
    torch::Tensor losses = backend_->ComputeLater(of);
    sums_.add_(losses);
    return losses;
  };
  const auto kl = [](const torch::Tensor& losses) {
    return losses.narrow(0, 4, 1);
  };
  if (!MayRecord(batch, context.collective)) {
    const torch::Tensor losses = compute(batch);
    return step_.ApplyLater(context.collective, samples, kl(losses),
                            learning_rate);
  }
  step_.SetLearningRate(learning_rate);
  const bool all =
      step_.MayRecord(*context.collective) == GradientStep::Recorded::kAll;
  absl::Status applied;
  const torch::Tensor losses =
      graphs_->Run(batch, {all ? 1.0 : 0.0}, [&](const PpoBatch& of) {
        torch::Tensor done = compute(of);
        if (all) {
          applied = step_.ApplyLater(context.collective, samples, kl(done),
                                     learning_rate);
        }
        return done;
      });
  if (all) {
    step_.AppliedAgain(samples, kl(losses));
    return applied;
  }
  return step_.ApplyLater(context.collective, samples, kl(losses),
                          learning_rate);
}

void PolicyGradient::ReadKl(Sums* sums) const {
  const torch::Tensor outcome = ToHost(step_.Outcome());
  const double* o = Host<double>(outcome);
  sums->kl = o[0] > 0 ? o[1] / o[0] : 0;
}

absl::Status PolicyGradient::Finish(Sums* sums, torch::Tensor* moments) {
  std::vector<torch::Tensor> pieces = {step_.Outcome(), sums_};
  if (!moments->is_cpu()) pieces.push_back(*moments);
  const torch::Tensor all = ToHost(torch::cat(pieces));
  const double* outcome = Host<double>(all);
  const double* s = outcome + GradientStep::kOutcome;
  sums->losses = {sums->losses.samples, s[0], s[1], s[2], s[3], s[4], s[5]};
  if (!moments->is_cpu()) {
    *moments = all.narrow(0, GradientStep::kOutcome + PpoBackend::kSums,
                          moments->numel());
  }
  const absl::StatusOr<GradientStep::Result> done = step_.Finish(outcome);
  if (!done.ok()) return WhatIsNotFinite(sums->losses, done.status());
  sums->grad_norm = done->grad_norm;
  sums->sync_seconds = done->sync_seconds;
  sums->sync_bytes = done->sync_bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Metric>> PolicyGradient::Update(
    const Rollout& rollout, const UpdateContext& context) {
  const double factor =
      ScheduleFactor(config_.optimizer(),
                     ShareDone(config_, context.update, context.global_step));
  const double learning_rate = config_.optimizer().learning_rate() * factor;
  const double clip_factor = loss_.anneal_clip ? factor : 1.0;
  ASSIGN_OR_RETURN(Estimates estimates, Estimate(Resident(rollout), context));

  const bool later = !net_->device().is_cpu();
  Minibatches minibatches(rollout, loss_.minibatches, net_->recurrent(),
                          memory_.device());
  Sums sums;
  if (later) {
    step_.Begin();
    sums_.zero_();
  }
  Random rng(SamplingSeed(HashSeed({config_.seed(), 1}),
                          context.collective->rank(), context.update));
  for (int epoch = 0; epoch < loss_.epochs; ++epoch) {
    for (int m = 0; m < loss_.minibatches; ++m) {
      PpoBatch batch = NextBatch(m, &minibatches, &estimates, &rng);
      batch.clip_ratio = loss_.clip_ratio * clip_factor;
      batch.value_clip = loss_.value_clip * clip_factor;
      const double samples = static_cast<double>(batch.index.numel());
      batch.before_last_backward = [&] {
        step_.BeforeLastBackward(context.collective, samples);
      };
      RETURN_IF_ERROR(Step(batch, context, learning_rate, &sums));
    }
    if (loss_.target_kl <= 0) continue;
    if (later) ReadKl(&sums);
    // Reduced, so every rank stops here or none does.
    if (sums.kl > loss_.target_kl) break;
  }
  torch::Tensor moments = Moments(estimates.rollout, estimates.returns);
  if (later) RETURN_IF_ERROR(Finish(&sums, &moments));
  policy_->Refresh();

  const PpoSums& losses = sums.losses;
  const auto samples = static_cast<double>(losses.samples);
  const double n = std::max(1.0, samples);
  return std::vector<Metric>{
      {"charts/learning_rate", learning_rate},
      {"losses/policy_loss", losses.policy_loss / n, samples},
      {"losses/value_loss", losses.value_loss / n, samples},
      {"losses/entropy", losses.entropy / n, samples},
      {"losses/old_approx_kl", losses.old_approx_kl / n, samples},
      {"losses/approx_kl", losses.approx_kl / n, samples},
      {"losses/clipfrac", losses.clipped / n, samples},
      {"losses/explained_variance", ExplainedVariance(moments), samples},
      {"losses/grad_norm", sums.grad_norm / std::max(1, sums.steps)},
      {"sync/all_reduce_ms", 1e3 * sums.sync_seconds / std::max(1, sums.steps)},
      {"sync/bytes", static_cast<double>(sums.sync_bytes)}};
}

}  // namespace flotilla
