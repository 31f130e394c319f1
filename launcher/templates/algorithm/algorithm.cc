// An algorithm for Flotilla: custom.library. README.md says how to build and train
// it.
//
// It is A2C (Mnih et al. 2016): one gradient step on each rollout, by policy and
// value. Change Loss, or what Update does; collecting, averaging gradients over
// learners, checkpoints, evaluation and recovery are done for you.

#include "learner/algo/algorithm.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "learner/algo/algorithm_plugin.h"
#include "learner/algo/gradient_step.h"
#include "learner/algo/minibatches.h"
#include "learner/algo/schedule.h"
#include "learner/device/host.h"
#include "learner/kernels/gae.h"
#include "learner/nn/action_head.h"
#include "learner/nn/network.h"
#include "learner/nn/policies.h"
#include "learner/nn/replay_sequences.h"
#include "services/base/run_length.h"
#include "services/base/status_macros.h"

namespace {

using namespace flotilla;

// What custom.options may hold, with what holds where it does not.
class Traits : public CustomAlgorithm {
 public:
  std::vector<CustomOption> Options() const override {
    return {{"discount", "0.99", "what a reward one step later is worth"},
            {"gae_lambda", "1.0", "how far advantages look ahead"},
            {"entropy_cost", "0.01", "weight of the policy's entropy"},
            {"value_cost", "0.5", "weight of the value loss"}};
  }
};

class A2c : public Algorithm {
 public:
  A2c(const v1::RunConfig& config, const Spaces& spaces,
      std::unique_ptr<Network> net)
      : config_(config),
        spaces_(spaces),
        head_(spaces.action),
        net_(std::move(net)),
        step_(net_->Flat(), config.optimizer(), config.distributed()) {
    net_->Initialize(config.seed());
    policy_ = MakeNetworkPolicy(net_.get(), spaces_);
  }

  absl::StatusOr<std::vector<Metric>> Update(
      const Rollout& rollout, const UpdateContext& context) override {
    const auto [advantage, returns] = Advantages(rollout);
    // All valid steps of the rollout at once. Every rank takes this one step,
    // however many samples it has.
    Minibatches whole(rollout, /*count=*/1, net_->recurrent());
    const Minibatch batch = whole.Get(0);
    const int64_t samples = batch.index.numel();
    net_->gradients().zero_();
    double loss = 0;
    if (samples > 0) {
      const torch::Tensor sum =
          Loss(rollout, batch, advantage.flatten(), returns.flatten());
      sum.backward();
      loss = sum.item<double>() / static_cast<double>(samples);
    }
    const double rate =
        config_.optimizer().learning_rate() *
        ScheduleFactor(config_.optimizer(),
                       ShareDone(config_, context.update, context.global_step));
    ASSIGN_OR_RETURN(
        const GradientStep::Result step,
        step_.Apply(context.collective, static_cast<double>(samples),
                    /*extra=*/0, rate));
    policy_->Refresh();
    return std::vector<Metric>{{"charts/learning_rate", rate},
                               {"losses/loss", loss},
                               {"losses/grad_norm", step.grad_norm}};
  }

  // What `flotilla set` changes while the run goes on.
  absl::Status Reconfigure(const v1::RunConfig& config) override {
    config_ = config;
    step_.Reconfigure(config.optimizer());
    return absl::OkStatus();
  }

  Policy* live_policy() override { return policy_.get(); }
  std::unique_ptr<Policy> Freeze() const override {
    return MakeFrozenPolicy(*net_, spaces_);
  }
  std::vector<NamedTensor> Weights() override { return net_->Named(); }
  std::vector<NamedTensor> State() override { return step_.State(); }
  void StateWasReplaced() override { policy_->Refresh(); }

 private:
  // The sum, not the mean, over the batch: samples are averaged over all ranks.
  torch::Tensor Loss(const Rollout& rollout, const Minibatch& batch,
                     const torch::Tensor& advantages,
                     const torch::Tensor& returns) const {
    const Replayed now = RunSteps(*net_, rollout, batch.index, batch.columns);
    const auto pick = [&](const torch::Tensor& flat) {
      return flat.index_select(0, batch.index).to(net_->device());
    };
    const Actions action = rollout.action.Map(
        [&](const torch::Tensor& t) { return pick(t.flatten(0, 1)); });
    const LogProbAndEntropy policy =
        head_.Evaluate(now.output.policy, now.output.log_std,
                       spaces_.mask >= 0 ? now.observation.leaf[spaces_.mask]
                                         : torch::Tensor(),
                       action);
    const torch::Tensor error = now.output.value - pick(returns);
    return (-pick(advantages) * policy.log_prob).sum() +
           traits_.Number(config_, "value_cost") * 0.5 * error.square().sum() -
           traits_.Number(config_, "entropy_cost") * policy.entropy.sum();
  }

  // Schulman et al. 2016, from the values that the actor estimated; [T, B] both.
  std::pair<torch::Tensor, torch::Tensor> Advantages(const Rollout& r) const {
    const torch::Tensor advantage = torch::zeros({r.length, r.rows});
    const torch::Tensor returns = torch::zeros({r.length, r.rows});
    GaeInput input;
    input.length = r.length;
    input.rows = r.rows;
    input.reward = Host<float>(r.reward);
    input.value = Host<float>(r.value);
    input.terminated = Host<uint8_t>(r.terminated);
    input.truncated = Host<uint8_t>(r.truncated);
    input.bootstrap_value = Host<float>(r.bootstrap_value);
    input.valid = Host<uint8_t>(r.valid);
    input.discount = static_cast<float>(traits_.Discount(config_));
    input.lambda = static_cast<float>(traits_.Number(config_, "gae_lambda"));
    GeneralizedAdvantages(input, Host<float>(advantage), Host<float>(returns));
    return {advantage, returns};
  }

  const Traits traits_;
  v1::RunConfig config_;
  const Spaces spaces_;
  const ActionHead head_;
  const std::unique_ptr<Network> net_;
  GradientStep step_;
  std::unique_ptr<NetworkPolicy> policy_;
};

absl::StatusOr<std::unique_ptr<Algorithm>> Make(const v1::RunConfig& config,
                                                const Spaces& spaces,
                                                torch::Device device) {
  ASSIGN_OR_RETURN(std::unique_ptr<Network> net,
                   MakeNetwork(spaces, config.model(), device));
  return std::unique_ptr<Algorithm>(new A2c(config, spaces, std::move(net)));
}

}  // namespace

FLOTILLA_ALGORITHM(Traits, Make);
