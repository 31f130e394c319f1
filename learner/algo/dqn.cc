#include "learner/algo/dqn.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/algo/gradient_step.h"
#include "learner/algo/replay_share.h"
#include "learner/algo/schedule.h"
#include "learner/algo/td_loss.h"
#include "learner/device/host.h"
#include "learner/nn/q_policy.h"
#include "learner/replay/replay_buffer.h"
#include "services/base/random.h"
#include "services/base/run_length.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

ReplayBuffer::Options ReplayOptions(const v1::DqnConfig& dqn,
                                    torch::Device device) {
  return {.capacity = dqn.replay_capacity(),
          .n_step = dqn.n_step(),
          .discount = dqn.discount(),
          .priority_alpha = dqn.priority_alpha(),
          .device = device};
}

class Dqn : public Algorithm {
 public:
  Dqn(const v1::RunConfig& config, QNetwork net)
      : config_(config),
        net_(Start(config, std::move(net))),
        target_(net_.Clone()),
        step_(net_.Flat(), config.optimizer(), config.distributed()),
        policy_(&net_),
        replay_(net_.spaces(), config.env().num_envs(),
                ReplayOptions(config.dqn(), net_.device())) {
    if (const std::optional<MlpShape> shape = net_.KernelShape()) {
      kernels_.emplace(*shape);
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
    return absl::OkStatus();
  }

  Policy* live_policy() override { return &policy_; }
  ReplayBuffer* replay() override { return &replay_; }
  void StateWasReplaced() override {
    net_.Settle();
    TargetWasReplaced();
  }
  std::unique_ptr<Policy> Freeze() const override {
    return MakeFrozenQPolicy(net_, policy_.epsilon());
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
};

absl::StatusOr<std::vector<Metric>> Dqn::Update(const Rollout& rollout,
                                                const UpdateContext& context) {
  const v1::DqnConfig& dqn = config_.dqn();
  const double done = ShareDone(config_, context.update, context.global_step);
  const double learning_rate = config_.optimizer().learning_rate() *
                               ScheduleFactor(config_.optimizer(), done);
  const double beta = dqn.priority_beta() + done * (1 - dqn.priority_beta());
  replay_.Add(rollout);

  Random rng(SamplingSeed(HashSeed({config_.seed(), 2}),
                          context.collective->rank(), context.update));
  const bool may_contribute =
      MayContribute(replay_, config_.dqn(), context.collective->world_size());
  double loss = 0, q = 0, grad_norm = 0, sync_seconds = 0;
  int64_t sync_bytes = 0, samples = 0;
  int steps = 0, learned = 0;
  if (context.global_step >= dqn.learning_starts()) {
    steps = dqn.updates_per_rollout();
  }
  net_.Unsettle();
  for (int i = 0; i < steps; ++i) {
    ReplayBatch batch;
    TdSums sums;
    int64_t mine = 0;
    if (may_contribute &&
        replay_.Sample(dqn.batch_size(), beta, &rng, &batch)) {
      if (kernels_.has_value()) {
        sums = kernels_->Compute(net_, batch, dqn);
      } else {
        step_.BeforeLastBackward(context.collective, dqn.batch_size());
        sums = ComputeTdGradient(net_, target_, batch, dqn);
      }
      mine = dqn.batch_size();
    } else {
      net_.Flat().gradients.zero_();
    }
    const absl::StatusOr<GradientStep::Result> applied =
        step_.Apply(context.collective, static_cast<double>(mine), sums.loss,
                    learning_rate);
    if (absl::IsInternal(applied.status())) {
      return absl::InternalError(absl::StrCat(
          "losses/td_loss is ", sums.loss / std::max<int64_t>(1, mine),
          " here: ", applied.status().message()));
    }
    RETURN_IF_ERROR(applied.status());
    if (mine > 0) replay_.SetErrors(batch.id, Host<float>(sums.error));
    samples += mine;
    q += sums.q;
    sync_seconds += applied->sync_seconds;
    sync_bytes += applied->sync_bytes;
    if (applied->samples == 0) continue;
    ++learned;
    loss += applied->extra / applied->samples;
    grad_norm += applied->grad_norm;
    if (step_.count() % dqn.target_update_every() == 0) {
      torch::NoGradGuard no_grad;
      target_.Flat().parameters.copy_(net_.Flat().parameters);
      TargetWasReplaced();
    }
  }
  net_.Settle();
  return std::vector<Metric>{
      {"charts/learning_rate", learning_rate},
      {"charts/epsilon", EpsilonAt(dqn, context.global_step)},
      {"losses/td_loss", loss / std::max(1, learned)},
      {"losses/q_values", q / std::max<int64_t>(1, samples)},
      {"losses/grad_norm", grad_norm / std::max(1, learned)},
      {"replay/size", static_cast<double>(replay_.size())},
      {"sync/all_reduce_ms", 1e3 * sync_seconds / std::max(1, steps)},
      {"sync/bytes", static_cast<double>(sync_bytes)}};
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
