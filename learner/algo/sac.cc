#include "learner/algo/sac.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "learner/algo/gradient_step.h"
#include "learner/algo/replay_graphs.h"
#include "learner/algo/replay_share.h"
#include "learner/algo/sac_loss.h"
#include "learner/algo/schedule.h"
#include "learner/cuda/operators.h"
#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/kernels/draws.h"
#include "learner/nn/sac_networks.h"
#include "learner/nn/squashed_gaussian.h"
#include "learner/nn/squashed_policy.h"
#include "learner/replay/replay_buffer.h"
#include "learner/rollout/placement.h"
#include "services/base/random.h"
#include "services/base/run_length.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

class Sac : public Algorithm {
 public:
  Sac(const v1::RunConfig& config, SacActor actor, TwinCritics critics,
      SquashedGaussian gaussian)
      : config_(config),
        gaussian_(std::move(gaussian)),
        actor_(Start(std::move(actor), config, config.seed())),
        critics_(
            Start(std::move(critics), config, HashSeed({config.seed(), 1}))),
        targets_(critics_.Clone()),
        log_alpha_(1, actor_.device()),
        actor_step_(actor_.Flat(), config.optimizer(), config.distributed(),
                    config.runtime().precision()),
        critic_step_(critics_.Flat(), config.optimizer(), config.distributed(),
                     config.runtime().precision()),
        temperature_step_(Temperature(config.sac(), &log_alpha_),
                          config.optimizer(), config.distributed()),
        kernels_(SacKernels::For(actor_, critics_)),
        policy_(&actor_, gaussian_),
        replay_(actor_.spaces(), config.env().num_envs(),
                {.capacity = config.sac().replay_capacity(),
                 .discount = config.sac().discount(),
                 .device = actor_.device(),
                 .memory = MemoryOf(config, actor_.device())}) {
    sums_ = torch::zeros({kSums},
                         torch::dtype(torch::kFloat64).device(actor_.device()));
    if (on_device()) graphs_ = ReplayGraphs::On(actor_.device());
    BeforeCollecting(0);
  }

  void BeforeCollecting(int64_t global_step) override {
    policy_.set_uniform(global_step < config_.sac().learning_starts());
  }

  absl::StatusOr<std::vector<Metric>> Update(
      const Rollout& rollout, const UpdateContext& context) override;

  absl::Status Reconfigure(const v1::RunConfig& config) override {
    config_ = config;
    for (GradientStep* step :
         {&actor_step_, &critic_step_, &temperature_step_}) {
      step->Reconfigure(config.optimizer());
    }
    replay_.set_discount(config.sac().discount());
    if (graphs_ != nullptr) graphs_->Clear();
    return absl::OkStatus();
  }

  Policy* live_policy() override { return &policy_; }
  ReplayBuffer* replay() override { return &replay_; }
  std::unique_ptr<Policy> Freeze() const override {
    return MakeFrozenSquashedPolicy(actor_, gaussian_, policy_.uniform());
  }
  std::unique_ptr<Policy> FreezeForPlay() const override {
    return MakeFrozenSquashedPolicy(actor_, gaussian_, /*uniform=*/false);
  }
  std::vector<NamedTensor> Weights() override { return actor_.Flat().named; }
  std::vector<NamedTensor> State() override;

 private:
  enum Loss { kCritic, kPolicy, kTemperature };
  static constexpr const char* kLossNames[] = {
      "losses/critic_loss", "losses/policy_loss", "losses/temperature_loss"};

  // Of one update; sums over gradient steps.
  struct Totals {
    int learned = 0;       // steps with a sample on any rank
    int reduced = 0;       // all-reduces
    double grad_norm = 0;  // the critics'
    double sync_seconds = 0;
    int64_t sync_bytes = 0;
  };
  struct LearningRates {
    double policy = 0, critics = 0;
  };

  template <typename Net>
  static Net Start(Net net, const v1::RunConfig& config, uint64_t seed) {
    net.Initialize(seed);
    net.set_bf16(config.runtime().precision() == v1::BF16);
    return net;
  }
  static const FlatParameters& Temperature(const v1::SacConfig& sac,
                                           FlatParameters* log_alpha) {
    log_alpha->Take("log_alpha", {1});
    log_alpha->parameters.fill_(std::log(sac.initial_temperature()));
    return *log_alpha;
  }

  SacNetworks Networks() const {
    return {actor_, critics_, targets_, gaussian_, log_alpha_.parameters};
  }
  double TargetEntropy() const {
    return config_.sac().has_target_entropy()
               ? config_.sac().target_entropy()
               : -static_cast<double>(gaussian_.values());
  }
  LearningRates RatesAt(double done) const;
  int64_t GradientSteps(int64_t global_step) const;
  absl::Status StepOnce(bool may_contribute, const LearningRates& rates,
                        Draws* draws, Collective* collective, Totals* totals);
  // [2, N, A] where the networks are: of actions that follow, and that might have
  // been.
  torch::Tensor DrawNoise(Draws* draws) const;
  using Recorded = GradientStep::Recorded;
  // Of the gradient step on a draw, or without one (null), what each is a sum over:
  // the critics' loss and q, the policy's loss and log-probabilities, the
  // temperature's loss [5]; undefined if no rank had samples. `noise` is [2, N, A].
  // Of kGradient the two gradients are graphs.
  absl::StatusOr<torch::Tensor> Learn(const ReplayBatch* batch,
                                      const torch::Tensor& noise,
                                      const LearningRates& rates,
                                      Recorded recorded, Collective* collective,
                                      Totals* totals);
  // All of it as one graph, of an algorithm that has them.
  absl::StatusOr<torch::Tensor> LearnAsGraph(const ReplayBatch& batch,
                                             const torch::Tensor& noise,
                                             const LearningRates& rates,
                                             Collective* collective,
                                             Totals* totals);
  GradientStep& StepOf(Loss loss) {
    return loss == kCritic   ? critic_step_
           : loss == kPolicy ? actor_step_
                             : temperature_step_;
  }
  // Takes gradients whose loss is `sum` [1] over this rank's samples. Returns
  // whether any rank had samples. On a device the host learns of the rest in
  // Finish, and waits only where this rank has none.
  absl::StatusOr<bool> Apply(Loss loss, Collective* collective, double samples,
                             const torch::Tensor& sum, double learning_rate,
                             Totals* totals);
  absl::Status NotFinite(Loss loss, double mean, const absl::Status& status);
  // Reads all that an update reports, and Alpha: [kSums + 1] float64 on the host.
  absl::StatusOr<torch::Tensor> Finish(Totals* totals);
  bool on_device() const { return !actor_.device().is_cpu(); }

  v1::RunConfig config_;
  const SquashedGaussian gaussian_;
  SacActor actor_;
  TwinCritics critics_, targets_;
  FlatParameters log_alpha_;
  GradientStep actor_step_, critic_step_, temperature_step_;
  const std::unique_ptr<SacKernels> kernels_;  // null: Torch's operations
  SquashedPolicy policy_;
  ReplayBuffer replay_;
  // By Loss its means over all ranks' samples; then this rank's q and
  // log-probabilities, and samples of all ranks. [kSums] float64 on the networks'
  // device.
  enum { kQ = kTemperature + 1, kLogProb, kSamples, kSums };
  torch::Tensor sums_;
  std::unique_ptr<ReplayGraphs> graphs_;            // null: there are none
  enum { kCriticGraph, kPolicyGraph, kStepGraph };  // what is asked of them
};

std::vector<NamedTensor> Sac::State() {
  std::vector<NamedTensor> state = critics_.Flat().named;
  for (const NamedTensor& t : targets_.Flat().named) {
    state.push_back({"target." + t.name, t.tensor});
  }
  state.push_back(log_alpha_.named[0]);
  const std::pair<std::string, GradientStep*> steps[] = {
      {"actor.", &actor_step_},
      {"critics.", &critic_step_},
      {"temperature.", &temperature_step_}};
  for (const auto& [prefix, step] : steps) {
    for (const NamedTensor& t : step->State()) {
      state.push_back({prefix + t.name, t.tensor});
    }
  }
  return state;
}

Sac::LearningRates Sac::RatesAt(double done) const {
  const v1::SacConfig& sac = config_.sac();
  const double policy = config_.optimizer().learning_rate();
  const double factor = ScheduleFactor(config_.optimizer(), done);
  return {.policy = factor * policy,
          .critics = factor * (sac.has_critic_learning_rate()
                                   ? sac.critic_learning_rate()
                                   : policy)};
}

// The same on every rank: nothing here depends on what was collected.
int64_t Sac::GradientSteps(int64_t global_step) const {
  const v1::SacConfig& sac = config_.sac();
  if (global_step < sac.learning_starts()) return 0;
  if (sac.updates_per_rollout() > 0) return sac.updates_per_rollout();
  return int64_t{config_.rollout().length()} * config_.env().num_envs();
}

absl::Status Sac::NotFinite(Loss loss, double mean,
                            const absl::Status& status) {
  if (!absl::IsInternal(status)) return status;
  return absl::InternalError(absl::StrCat(kLossNames[loss], " is ", mean,
                                          " here: ", status.message()));
}

absl::StatusOr<bool> Sac::Apply(Loss loss, Collective* collective,
                                double samples, const torch::Tensor& sum,
                                double learning_rate, Totals* totals) {
  GradientStep& step = StepOf(loss);
  if (on_device()) {
    RETURN_IF_ERROR(step.ApplyLater(collective, samples, sum, learning_rate));
    torch::Tensor outcome = step.Outcome();
    sums_.narrow(0, loss, 1)
        .add_(outcome.narrow(0, 1, 1) / outcome.narrow(0, 0, 1).clamp_min(1));
    if (loss == kCritic) {
      sums_.narrow(0, kSamples, 1).add_(outcome.narrow(0, 0, 1));
    }
    if (samples > 0) return true;
    outcome = ToHost(outcome);
    return Host<double>(outcome)[0] > 0;
  }
  const double mine = *Host<float>(sum);
  const absl::StatusOr<GradientStep::Result> applied =
      step.Apply(collective, samples, mine, learning_rate);
  if (!applied.ok()) {
    return NotFinite(loss, mine / std::max(1.0, samples), applied.status());
  }
  totals->sync_seconds += applied->sync_seconds;
  totals->sync_bytes += applied->sync_bytes;
  if (applied->samples == 0) return false;
  if (loss == kCritic) {
    totals->grad_norm += applied->grad_norm;
    Host<double>(sums_)[kSamples] += applied->samples;
  }
  Host<double>(sums_)[loss] += applied->extra / applied->samples;
  return true;
}

// Which all-reduces there are depends on nothing that ranks do not share.
absl::StatusOr<torch::Tensor> Sac::Learn(const ReplayBatch* batch,
                                         const torch::Tensor& noise,
                                         const LearningRates& rates,
                                         Recorded recorded,
                                         Collective* collective,
                                         Totals* totals) {
  const v1::SacConfig& sac = config_.sac();
  const double samples = batch == nullptr ? 0 : sac.batch_size();
  const auto gradient_of = [&](const auto& compute, int graph,
                               GradientStep* step, const FlatParameters& flat) {
    if (batch == nullptr) {
      flat.gradients.zero_();
      return torch::zeros({2}, actor_.device());
    }
    if (recorded == Recorded::kGradient) {
      return graphs_->Run(*batch, noise, graph, compute);
    }
    if (kernels_ == nullptr) step->BeforeLastBackward(collective, samples);
    return compute(*batch, noise);
  };
  const torch::Tensor critic = gradient_of(
      [this](const ReplayBatch& of, const torch::Tensor& drawn) {
        return kernels_ != nullptr
                   ? kernels_->CriticGradient(Networks(), of, drawn[0])
                   : ComputeCriticGradient(Networks(), of, drawn[0]);
      },
      kCriticGraph, &critic_step_, critics_.Flat());
  ASSIGN_OR_RETURN(const bool anybody,
                   Apply(kCritic, collective, samples, critic.narrow(0, 0, 1),
                         rates.critics, totals));
  if (!anybody) return torch::Tensor();

  const torch::Tensor policy = gradient_of(
      [this](const ReplayBatch& of, const torch::Tensor& drawn) {
        return kernels_ != nullptr
                   ? kernels_->PolicyGradient(Networks(), of, drawn[1])
                   : ComputePolicyGradient(Networks(), of, drawn[1]);
      },
      kPolicyGraph, &actor_step_, actor_.Flat());
  RETURN_IF_ERROR(Apply(kPolicy, collective, samples, policy.narrow(0, 0, 1),
                        rates.policy, totals)
                      .status());
  torch::Tensor temperature = torch::zeros({1}, actor_.device());
  if (sac.learn_temperature()) {
    temperature = ComputeTemperatureGradient(log_alpha_, policy.narrow(0, 1, 1),
                                             samples, TargetEntropy());
    RETURN_IF_ERROR(Apply(kTemperature, collective, samples, temperature,
                          rates.critics, totals)
                        .status());
  }
  torch::NoGradGuard no_grad;
  torch::Tensor target = targets_.Flat().parameters;
  target.lerp_(critics_.Flat().parameters, sac.tau());
  sums_.narrow(0, kQ, 1).add_(critic.narrow(0, 1, 1));
  sums_.narrow(0, kLogProb, 1).add_(policy.narrow(0, 1, 1));
  return torch::cat({critic, policy, temperature});
}

absl::StatusOr<torch::Tensor> Sac::LearnAsGraph(const ReplayBatch& batch,
                                                const torch::Tensor& noise,
                                                const LearningRates& rates,
                                                Collective* collective,
                                                Totals* totals) {
  critic_step_.SetLearningRate(rates.critics);
  actor_step_.SetLearningRate(rates.policy);
  temperature_step_.SetLearningRate(rates.critics);
  absl::Status status;
  const torch::Tensor sums = graphs_->Run(
      batch, noise, kStepGraph,
      [&](const ReplayBatch& of, const torch::Tensor& drawn) {
        const absl::StatusOr<torch::Tensor> learned =
            Learn(&of, drawn, rates, Recorded::kNothing, collective, totals);
        status = learned.status();
        return status.ok() ? *learned : torch::Tensor();
      });
  RETURN_IF_ERROR(status);
  const double samples = config_.sac().batch_size();
  critic_step_.AppliedAgain(samples, sums.narrow(0, 0, 1));
  actor_step_.AppliedAgain(samples, sums.narrow(0, 2, 1));
  if (config_.sac().learn_temperature()) {
    temperature_step_.AppliedAgain(samples, sums.narrow(0, 4, 1));
  }
  return sums;
}

torch::Tensor Sac::DrawNoise(Draws* draws) const {
  const int64_t N = config_.sac().batch_size(), A = gaussian_.values();
  const torch::Tensor noise = NormalDraws(static_cast<int64_t>(draws->seed()),
                                          static_cast<int64_t>(draws->place()),
                                          {2, N, A}, actor_.device());
  draws->Skip(static_cast<uint64_t>(noise.numel()));
  return noise;
}

absl::Status Sac::StepOnce(bool may_contribute, const LearningRates& rates,
                           Draws* draws, Collective* collective,
                           Totals* totals) {
  const v1::SacConfig& sac = config_.sac();
  ReplayBatch batch;
  torch::Tensor drawn;
  const bool has_samples =
      may_contribute && replay_.Sample(sac.batch_size(), 0, draws, &batch);
  Recorded recorded = Recorded::kNothing;
  if (has_samples) {
    drawn = DrawNoise(draws);
    if (graphs_ != nullptr) recorded = critic_step_.MayRecord(*collective);
  }
  ASSIGN_OR_RETURN(const torch::Tensor sums,
                   recorded == Recorded::kAll
                       ? LearnAsGraph(batch, drawn, rates, collective, totals)
                       : Learn(has_samples ? &batch : nullptr, drawn, rates,
                               recorded, collective, totals));
  ++totals->reduced;
  if (!sums.defined()) return absl::OkStatus();
  totals->reduced += sac.learn_temperature() ? 2 : 1;
  ++totals->learned;
  return absl::OkStatus();
}

absl::StatusOr<torch::Tensor> Sac::Finish(Totals* totals) {
  torch::NoGradGuard no_grad;
  const Loss losses[] = {kCritic, kPolicy, kTemperature};
  std::vector<torch::Tensor> pieces = {
      sums_, log_alpha_.parameters.exp().to(torch::kFloat64)};
  if (on_device()) {
    for (const Loss loss : losses) pieces.push_back(StepOf(loss).Outcome());
  }
  const torch::Tensor all = ToHost(torch::cat(pieces));
  const double* outcome = Host<double>(all) + sums_.numel() + 1;
  for (const Loss loss : losses) {
    if (!on_device()) break;
    const absl::StatusOr<GradientStep::Result> done =
        StepOf(loss).Finish(outcome);
    if (!done.ok()) {
      return NotFinite(loss, outcome[1] / std::max(1.0, outcome[0]),
                       done.status());
    }
    totals->sync_seconds += done->sync_seconds;
    totals->sync_bytes += done->sync_bytes;
    if (loss == kCritic) totals->grad_norm = done->grad_norm;
    outcome += GradientStep::kOutcome;
  }
  return all;
}

absl::StatusOr<std::vector<Metric>> Sac::Update(const Rollout& rollout,
                                                const UpdateContext& context) {
  replay_.Add(rollout);
  const LearningRates rates =
      RatesAt(ShareDone(config_, context.update, context.global_step));
  Draws draws(SamplingSeed(HashSeed({config_.seed(), 2}),
                           context.collective->rank(), context.update));
  const bool may_contribute =
      MayContribute(replay_, config_.sac(), context.collective->world_size());
  Totals totals;
  sums_.zero_();
  if (on_device()) {
    for (const Loss loss : {kCritic, kPolicy, kTemperature}) {
      StepOf(loss).Begin();
    }
  }
  const int64_t steps = GradientSteps(context.global_step);
  for (int64_t i = 0; i < steps; ++i) {
    RETURN_IF_ERROR(
        StepOnce(may_contribute, rates, &draws, context.collective, &totals));
  }
  ASSIGN_OR_RETURN(const torch::Tensor read, Finish(&totals));
  const double* sums = Host<double>(read);
  const double learned = std::max(1, totals.learned);
  // The mean over ranks of what they report is that of all samples.
  const double part =
      context.collective->world_size() / std::max(1.0, sums[kSamples]);
  return std::vector<Metric>{
      {"charts/learning_rate", rates.policy},
      {"losses/critic_loss", sums[kCritic] / learned},
      {"losses/policy_loss", sums[kPolicy] / learned},
      {"losses/temperature", sums[kSums]},
      {"losses/entropy", -sums[kLogProb] * part},
      {"losses/q_values", sums[kQ] * part},
      {"losses/grad_norm", totals.grad_norm / learned},
      {"replay/size", static_cast<double>(replay_.size())},
      {"sync/all_reduce_ms",
       1e3 * totals.sync_seconds / std::max(1, totals.reduced)},
      {"sync/bytes", static_cast<double>(totals.sync_bytes)}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Algorithm>> MakeSac(const v1::RunConfig& config,
                                                   const Spaces& spaces,
                                                   torch::Device device) {
  ASSIGN_OR_RETURN(SquashedGaussian gaussian,
                   SquashedGaussian::Make(spaces.action, device));
  ASSIGN_OR_RETURN(SacActor actor,
                   SacActor::Make(spaces, config.model(), device));
  ASSIGN_OR_RETURN(TwinCritics critics,
                   TwinCritics::Make(spaces, config.model(), device));
  return std::unique_ptr<Algorithm>(new Sac(
      config, std::move(actor), std::move(critics), std::move(gaussian)));
}

}  // namespace flotilla
