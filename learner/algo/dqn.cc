#include "learner/algo/dqn.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/algo/gradient_step.h"
#include "learner/algo/replay_graphs.h"
#include "learner/algo/replay_share.h"
#include "learner/algo/schedule.h"
#include "learner/algo/td_loss.h"
#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/kernels/draws.h"
#include "learner/nn/q_policy.h"
#include "learner/replay/replay_buffer.h"
#include "learner/rollout/placement.h"
#include "services/base/random.h"
#include "services/base/run_length.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

ReplayBuffer::Options ReplayOptions(const v1::RunConfig& config,
                                    torch::Device device) {
  const v1::DqnConfig& dqn = config.dqn();
  return {.capacity = dqn.replay_capacity(),
          .n_step = dqn.n_step(),
          .discount = dqn.discount(),
          .priority_alpha = dqn.priority_alpha(),
          .device = device,
          .memory = MemoryOf(config, device)};
}

class Dqn : public Algorithm {
 public:
  Dqn(const v1::RunConfig& config, QNetwork net)
      : config_(config),
        net_(Start(config, std::move(net))),
        target_(net_.Clone()),
        step_(net_.Flat(), config.optimizer(), config.distributed(),
              config.runtime().precision()),
        policy_(&net_),
        replay_(net_.spaces(), config.env().num_envs(),
                ReplayOptions(config, net_.device())) {
    if (const std::optional<MlpShape> shape = net_.KernelShape()) {
      kernels_.emplace(*shape);
    }
    if (!net_.device().is_cpu()) {
      graphs_ = ReplayGraphs::On(net_.device());
      there_ = torch::zeros(
          {3}, torch::dtype(torch::kFloat64).device(net_.device()));
    }
    if (const auto weight = net_.WidestWeight()) {
      step_.MayFactor(weight->leaf, weight->dtype, config.dqn().batch_size());
    }
    BeforeCollecting(0);
    StateWasReplaced();
  }

  void BeforeCollecting(int64_t global_step) override {
    policy_.set_epsilon(EpsilonAt(config_.dqn(), global_step));
  }

  absl::StatusOr<std::vector<Metric>> Update(
      const Rollout& rollout, const UpdateContext& context) override;

  absl::Status Reconfigure(const v1::RunConfig& config) override {
    config_ = config;
    step_.Reconfigure(config.optimizer());
    replay_.set_discount(config.dqn().discount());
    if (graphs_ != nullptr) graphs_->Clear();
    return absl::OkStatus();
  }

  Policy* live_policy() override { return &policy_; }
  ReplayBuffer* replay() override { return &replay_; }
  void StateWasReplaced() override {
    net_.Settle();
    policy_.Unsettle();
    TargetWasReplaced();
  }
  std::unique_ptr<Policy> Freeze() const override {
    return MakeFrozenQPolicy(net_, policy_.epsilon());
  }
  std::unique_ptr<Policy> FreezeForPlay() const override {
    return MakeFrozenQPolicy(net_, config_.dqn().epsilon_end());
  }
  std::vector<NamedTensor> Weights() override { return net_.Named(); }
  std::vector<NamedTensor> State() override {
    std::vector<NamedTensor> state = step_.State();
    for (const NamedTensor& t : target_.Named()) {
      state.push_back({"target." + t.name, t.tensor});
    }
    return state;
  }

 private:
  // Of one update; sums over gradient steps.
  struct Totals {
    double samples = 0;  // of all ranks
    int learned = 0;     // steps with a sample on any rank
    double loss = 0;     // means over all ranks' samples
    double q = 0;        // sums over this rank's
    double grad_norm = 0;
    double sync_seconds = 0;
    int64_t sync_bytes = 0;
  };
  // Without a batch this rank has nothing to give.
  absl::Status StepOnce(const ReplayBatch* batch, double learning_rate,
                        Collective* collective, Totals* totals);
  // The same on a device: the host waits for nothing before Finish, but where it has
  // the replay, for errors, by which priorities go. A rank that has nothing to give
  // asks whether others had.
  absl::Status StepLater(const ReplayBatch* batch, double learning_rate,
                         Collective* collective, Totals* totals);
  // The gradient and the step on a device, as a graph where it can be. Returns what
  // ComputeTdGradientThere does.
  absl::StatusOr<torch::Tensor> Learn(const ReplayBatch& batch,
                                      double learning_rate,
                                      Collective* collective);
  // Takes the step, and adds what is reported to there_.
  absl::Status ApplyLater(const torch::Tensor& sums, int64_t samples,
                          double learning_rate, Collective* collective);
  absl::Status Finish(Totals* totals);

  // After step `count`.
  void UpdateTargetAt(int64_t count);
  void TargetWasReplaced() {
    target_.Settle();
    if (kernels_.has_value()) kernels_->SetTarget(target_);
  }

  static QNetwork Start(const v1::RunConfig& config, QNetwork net) {
    net.Initialize(config.seed());
    net.set_bf16(config.runtime().precision() == v1::BF16);
    return net;
  }

  v1::RunConfig config_;
  QNetwork net_;
  QNetwork target_;
  std::optional<TdKernels> kernels_;
  GradientStep step_;
  QPolicy policy_;
  ReplayBuffer replay_;
  std::unique_ptr<ReplayGraphs> graphs_;  // null: there are none
  // On a device, until Finish: loss, q and samples of Totals, [3] float64.
  torch::Tensor there_;
};

absl::Status WhatIsNotFinite(double td_loss, const absl::Status& status) {
  if (!absl::IsInternal(status)) return status;
  return absl::InternalError(
      absl::StrCat("losses/td_loss is ", td_loss, " here: ", status.message()));
}

absl::Status Dqn::StepOnce(const ReplayBatch* batch, double learning_rate,
                           Collective* collective, Totals* totals) {
  const v1::DqnConfig& dqn = config_.dqn();
  TdSums sums;
  const int64_t mine = batch == nullptr ? 0 : dqn.batch_size();
  GradientFactors* const factors = step_.BeginFactors(*collective);
  if (batch == nullptr) {
    net_.Flat().gradients.zero_();
    if (factors != nullptr) factors->SetNothing();
  } else if (kernels_.has_value()) {
    sums = kernels_->Compute(net_, *batch, dqn);
  } else {
    step_.BeforeLastBackward(collective, dqn.batch_size());
    sums = ComputeTdGradient(net_, target_, *batch, dqn, factors);
  }
  const absl::StatusOr<GradientStep::Result> applied = step_.Apply(
      collective, static_cast<double>(mine), sums.loss, learning_rate);
  if (!applied.ok()) {
    return WhatIsNotFinite(sums.loss / std::max<int64_t>(1, mine),
                           applied.status());
  }
  if (mine > 0) replay_.SetErrors(batch->id, sums.error);
  totals->samples += applied->samples;
  totals->q += sums.q;
  totals->sync_seconds += applied->sync_seconds;
  totals->sync_bytes += applied->sync_bytes;
  if (applied->samples == 0) return absl::OkStatus();
  ++totals->learned;
  totals->loss += applied->extra / applied->samples;
  totals->grad_norm += applied->grad_norm;
  UpdateTargetAt(step_.count());
  return absl::OkStatus();
}

absl::Status Dqn::ApplyLater(const torch::Tensor& sums, int64_t samples,
                             double learning_rate, Collective* collective) {
  RETURN_IF_ERROR(step_.ApplyLater(collective, static_cast<double>(samples),
                                   sums.narrow(0, 0, 1), learning_rate));
  // Of all ranks' samples.
  const torch::Tensor outcome = step_.Outcome();
  const torch::Tensor all = outcome.narrow(0, 0, 1);
  there_.add_(torch::cat(
      {outcome.narrow(0, 1, 1) / all.clamp_min(1), sums.narrow(0, 1, 1), all}));
  return absl::OkStatus();
}

absl::StatusOr<torch::Tensor> Dqn::Learn(const ReplayBatch& batch,
                                         double learning_rate,
                                         Collective* collective) {
  using Recorded = GradientStep::Recorded;
  const int64_t samples = config_.dqn().batch_size();
  const Recorded recorded =
      graphs_ == nullptr ? Recorded::kNothing : step_.MayRecord(*collective);
  const bool all = recorded == Recorded::kAll;
  absl::Status applied;
  const auto learn = [&](const ReplayBatch& of, const torch::Tensor&) {
    const torch::Tensor sums =
        ComputeTdGradientThere(net_, target_, of, config_.dqn());
    if (all) applied = ApplyLater(sums, samples, learning_rate, collective);
    return sums;
  };
  torch::Tensor sums;
  if (recorded == Recorded::kNothing) {
    step_.BeforeLastBackward(collective, static_cast<double>(samples));
    sums = learn(batch, {});
  } else {
    step_.SetLearningRate(learning_rate);
    // With peers and alone are not the same: they come and go.
    sums = graphs_->Run(batch, {}, all ? 1 : 0, learn);
  }
  if (all) {
    step_.AppliedAgain(static_cast<double>(samples), sums.narrow(0, 0, 1));
  } else {
    applied = ApplyLater(sums, samples, learning_rate, collective);
  }
  RETURN_IF_ERROR(applied);
  return sums;
}

absl::Status Dqn::StepLater(const ReplayBatch* batch, double learning_rate,
                            Collective* collective, Totals* totals) {
  if (batch == nullptr) {
    net_.Flat().gradients.zero_();
    RETURN_IF_ERROR(ApplyLater(torch::zeros({2}, net_.device()), 0,
                               learning_rate, collective));
    // Whether any rank had samples, which those that have know.
    const torch::Tensor outcome = ToHost(step_.Outcome());
    if (Host<double>(outcome)[0] == 0) return absl::OkStatus();
  } else {
    ASSIGN_OR_RETURN(const torch::Tensor sums,  // loss, q, errors
                     Learn(*batch, learning_rate, collective));
    const int64_t samples = config_.dqn().batch_size();
    replay_.SetErrors(batch->id, sums.narrow(0, 2, samples));
  }
  UpdateTargetAt(step_.count() + ++totals->learned);
  return absl::OkStatus();
}

absl::Status Dqn::Finish(Totals* totals) {
  const torch::Tensor all = ToHost(torch::cat({step_.Outcome(), there_}));
  const double* sums = Host<double>(all) + GradientStep::kOutcome;
  totals->loss = sums[0];
  totals->q = sums[1];
  totals->samples = sums[2];
  const absl::StatusOr<GradientStep::Result> done =
      step_.Finish(Host<double>(all));
  if (!done.ok()) return WhatIsNotFinite(totals->loss, done.status());
  totals->grad_norm = done->grad_norm;
  totals->sync_seconds = done->sync_seconds;
  totals->sync_bytes = done->sync_bytes;
  return absl::OkStatus();
}

void Dqn::UpdateTargetAt(int64_t count) {
  if (count % config_.dqn().target_update_every() != 0) return;
  torch::NoGradGuard no_grad;
  target_.Flat().parameters.copy_(net_.Flat().parameters);
  TargetWasReplaced();
}

absl::StatusOr<std::vector<Metric>> Dqn::Update(const Rollout& rollout,
                                                const UpdateContext& context) {
  const v1::DqnConfig& dqn = config_.dqn();
  const double done = ShareDone(config_, context.update, context.global_step);
  const double learning_rate = config_.optimizer().learning_rate() *
                               ScheduleFactor(config_.optimizer(), done);
  const double beta = dqn.priority_beta() + done * (1 - dqn.priority_beta());
  replay_.Add(rollout);

  Draws draws(SamplingSeed(HashSeed({config_.seed(), 2}),
                           context.collective->rank(), context.update));
  const bool may_contribute =
      MayContribute(replay_, config_.dqn(), context.collective->world_size());
  Totals totals;
  int steps = 0;
  if (context.global_step >= dqn.learning_starts()) {
    steps = dqn.updates_per_rollout();
  }
  const bool later = steps > 0 && !net_.device().is_cpu();
  if (later) {
    step_.Begin();
    there_.zero_();
  }
  net_.Unsettle();
  policy_.Unsettle();
  ReplayBatch batch;
  for (int i = 0; i < steps; ++i) {
    const bool drawn = may_contribute &&
                       replay_.Sample(dqn.batch_size(), beta, &draws, &batch);
    const ReplayBatch* const mine = drawn ? &batch : nullptr;
    RETURN_IF_ERROR(
        later ? StepLater(mine, learning_rate, context.collective, &totals)
              : StepOnce(mine, learning_rate, context.collective, &totals));
  }
  if (later) RETURN_IF_ERROR(Finish(&totals));
  net_.Settle();
  // The mean over ranks of what they report is that of all samples.
  const double ranks = context.collective->world_size();
  return std::vector<Metric>{
      {"charts/learning_rate", learning_rate},
      {"charts/epsilon", EpsilonAt(dqn, context.global_step)},
      {"losses/td_loss", totals.loss / std::max(1, totals.learned)},
      {"losses/q_values", ranks * totals.q / std::max(1.0, totals.samples)},
      {"losses/grad_norm", totals.grad_norm / std::max(1, totals.learned)},
      {"replay/size", static_cast<double>(replay_.size())},
      {"sync/all_reduce_ms", 1e3 * totals.sync_seconds / std::max(1, steps)},
      {"sync/bytes", static_cast<double>(totals.sync_bytes)}};
}

}  // namespace

double EpsilonAt(const v1::DqnConfig& config, int64_t global_step) {
  return config.epsilon_end() +
         (config.epsilon_start() - config.epsilon_end()) *
             std::exp(-static_cast<double>(global_step) /
                      config.epsilon_decay_steps());
}

absl::StatusOr<std::unique_ptr<Algorithm>> MakeDqn(const v1::RunConfig& config,
                                                   const Spaces& spaces,
                                                   torch::Device device) {
  ASSIGN_OR_RETURN(
      QNetwork net,
      QNetwork::Make(spaces, config.model(), config.dqn().dueling(), device));
  return std::unique_ptr<Algorithm>(new Dqn(config, std::move(net)));
}

}  // namespace flotilla
