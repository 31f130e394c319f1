#include "learner/algo/sac.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/algo/gradient_step.h"
#include "learner/algo/replay_share.h"
#include "learner/algo/sac_loss.h"
#include "learner/algo/schedule.h"
#include "learner/device/transfer.h"
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
        actor_step_(actor_.Flat(), config.optimizer(), config.distributed()),
        critic_step_(critics_.Flat(), config.optimizer(), config.distributed()),
        temperature_step_(Temperature(config.sac(), &log_alpha_),
                          config.optimizer(), config.distributed()),
        policy_(&actor_, gaussian_),
        replay_(actor_.spaces(), config.env().num_envs(),
                {.capacity = config.sac().replay_capacity(),
                 .discount = config.sac().discount(),
                 .device = actor_.device(),
                 .memory = MemoryOf(config, actor_.device())}) {
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
    return absl::OkStatus();
  }

  Policy* live_policy() override { return &policy_; }
  ReplayBuffer* replay() override { return &replay_; }
  std::unique_ptr<Policy> Freeze() const override {
    return MakeFrozenSquashedPolicy(actor_, gaussian_, policy_.uniform());
  }
  std::vector<NamedTensor> Weights() override { return actor_.Flat().named; }
  std::vector<NamedTensor> State() override;

 private:
  // Of one update; sums over gradient steps.
  struct Totals {
    int64_t samples = 0;                      // of this rank
    int learned = 0;                          // steps with a sample on any rank
    int reduced = 0;                          // all-reduces
    double critic_loss = 0, policy_loss = 0;  // means over all ranks' samples
    double q = 0, log_prob = 0;               // over this rank's
    double grad_norm = 0;                     // the critics'
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
                        Random* rng, const at::Generator& noise,
                        Collective* collective, Totals* totals);
  absl::StatusOr<GradientStep::Result> Apply(
      GradientStep* step, const std::string& loss_name, Collective* collective,
      double samples, double loss, double learning_rate, Totals* totals);

  v1::RunConfig config_;
  const SquashedGaussian gaussian_;
  SacActor actor_;
  TwinCritics critics_, targets_;
  FlatParameters log_alpha_;
  GradientStep actor_step_, critic_step_, temperature_step_;
  SquashedPolicy policy_;
  ReplayBuffer replay_;
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

// With `loss`, the sum over this rank's samples, on its way.
absl::StatusOr<GradientStep::Result> Sac::Apply(
    GradientStep* step, const std::string& loss_name, Collective* collective,
    double samples, double loss, double learning_rate, Totals* totals) {
  const absl::StatusOr<GradientStep::Result> applied =
      step->Apply(collective, samples, loss, learning_rate);
  if (absl::IsInternal(applied.status())) {
    return absl::InternalError(
        absl::StrCat(loss_name, " is ", loss / std::max(1.0, samples),
                     " here: ", applied.status().message()));
  }
  RETURN_IF_ERROR(applied.status());
  ++totals->reduced;
  totals->sync_seconds += applied->sync_seconds;
  totals->sync_bytes += applied->sync_bytes;
  return applied;
}

// Which all-reduces there are depends on nothing that ranks do not share.
absl::Status Sac::StepOnce(bool may_contribute, const LearningRates& rates,
                           Random* rng, const at::Generator& noise,
                           Collective* collective, Totals* totals) {
  const v1::SacConfig& sac = config_.sac();
  ReplayBatch batch;
  torch::Tensor drawn;  // [2, N, A]
  int64_t mine = 0;
  if (may_contribute && replay_.Sample(sac.batch_size(), 0, rng, &batch)) {
    mine = sac.batch_size();
    drawn = ToDevice(torch::randn({2, mine, gaussian_.values()}, noise),
                     actor_.device());
  }
  const auto samples = static_cast<double>(mine);

  CriticSums critic;
  if (mine > 0) {
    critic_step_.BeforeLastBackward(collective, samples);
    critic = ComputeCriticGradient(Networks(), batch, drawn[0]);
  } else {
    critics_.Flat().gradients.zero_();
  }
  ASSIGN_OR_RETURN(const GradientStep::Result of_critics,
                   Apply(&critic_step_, "losses/critic_loss", collective,
                         samples, critic.loss, rates.critics, totals));
  if (of_critics.samples == 0) return absl::OkStatus();  // on any rank
  totals->grad_norm += of_critics.grad_norm;

  PolicySums policy;
  if (mine > 0) {
    actor_step_.BeforeLastBackward(collective, samples);
    policy = ComputePolicyGradient(Networks(), batch, drawn[1]);
  } else {
    actor_.Flat().gradients.zero_();
  }
  ASSIGN_OR_RETURN(const GradientStep::Result of_policy,
                   Apply(&actor_step_, "losses/policy_loss", collective,
                         samples, policy.loss, rates.policy, totals));

  if (sac.learn_temperature()) {
    const double loss = ComputeTemperatureGradient(log_alpha_, policy.log_prob,
                                                   samples, TargetEntropy());
    RETURN_IF_ERROR(Apply(&temperature_step_, "losses/temperature_loss",
                          collective, samples, loss, rates.critics, totals)
                        .status());
  }
  {
    torch::NoGradGuard no_grad;
    torch::Tensor target = targets_.Flat().parameters;
    target.lerp_(critics_.Flat().parameters, sac.tau());
  }
  ++totals->learned;
  totals->samples += mine;
  totals->critic_loss += of_critics.extra / of_critics.samples;
  totals->policy_loss += of_policy.extra / of_policy.samples;
  totals->q += critic.q;
  totals->log_prob += policy.log_prob;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Metric>> Sac::Update(const Rollout& rollout,
                                                const UpdateContext& context) {
  replay_.Add(rollout);
  const LearningRates rates =
      RatesAt(ShareDone(config_, context.update, context.global_step));
  Random rng(SamplingSeed(HashSeed({config_.seed(), 2}),
                          context.collective->rank(), context.update));
  const at::Generator noise = at::detail::createCPUGenerator(rng.Next());
  const bool may_contribute =
      MayContribute(replay_, config_.sac(), context.collective->world_size());
  Totals totals;
  const int64_t steps = GradientSteps(context.global_step);
  for (int64_t i = 0; i < steps; ++i) {
    RETURN_IF_ERROR(StepOnce(may_contribute, rates, &rng, noise,
                             context.collective, &totals));
  }
  const double learned = std::max(1, totals.learned);
  const auto samples =
      static_cast<double>(std::max<int64_t>(1, totals.samples));
  return std::vector<Metric>{
      {"charts/learning_rate", rates.policy},
      {"losses/critic_loss", totals.critic_loss / learned},
      {"losses/policy_loss", totals.policy_loss / learned},
      {"losses/temperature", log_alpha_.parameters.exp().item<double>()},
      {"losses/entropy", -totals.log_prob / samples},
      {"losses/q_values", totals.q / samples},
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
