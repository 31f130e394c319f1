#include "learner/algo/ppo_backend.h"
#include "learner/nn/distributions.h"
#include "learner/rollout/gather.h"

namespace flotilla {
namespace {

class TorchPpoBackend : public PpoBackend {
 public:
  TorchPpoBackend(ActorCritic* net, const v1::PpoConfig& config)
      : net_(net), config_(config) {}

  PpoSums Compute(const PpoBatch& batch) override {
    net_->gradients().zero_();
    if (batch.index.numel() == 0) return {};
    const torch::Device device = net_->device();
    const Rollout& r = *batch.rollout;
    auto pick = [&](const torch::Tensor& flat) {
      return flat.index_select(0, batch.index)
          .to(device, /*non_blocking=*/true);
    };
    const torch::Tensor action = pick(r.action.flatten(0, 1));
    const torch::Tensor old_log_prob = pick(r.log_prob.flatten());
    const torch::Tensor old_value =
        pick(r.value.narrow(0, 0, r.length).flatten());
    const torch::Tensor returns = pick(batch.returns.flatten());
    torch::Tensor advantage = pick(batch.advantage.flatten());
    if (config_.normalize_advantages() && advantage.numel() > 1) {
      advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8);
    }

    const ActorCriticOutput out =
        net_->recurrent()
            ? Replay(batch)
            : net_->Forward(GatherObservations(r, net_->spaces(), batch.index)
                                .to(device));
    const LogProbAndEntropy now = ScoreActions(*net_, out.policy, action);
    const torch::Tensor log_ratio = now.log_prob - old_log_prob;
    const torch::Tensor ratio = log_ratio.exp();
    const torch::Tensor policy_loss =
        torch::max(-advantage * ratio,
                   -advantage *
                       ratio.clamp(1 - batch.clip_ratio, 1 + batch.clip_ratio))
            .sum();
    torch::Tensor error = (out.value - returns).square();
    if (batch.value_clip > 0) {
      const torch::Tensor clipped =
          old_value +
          (out.value - old_value).clamp(-batch.value_clip, batch.value_clip);
      error = torch::max(error, (clipped - returns).square());
    }
    const torch::Tensor value_loss = 0.5 * error.sum();
    const torch::Tensor entropy = now.entropy.sum();
    const torch::Tensor loss = policy_loss - config_.entropy_cost() * entropy +
                               config_.value_cost() * value_loss;
    loss.backward();

    torch::NoGradGuard no_grad;
    // One transfer for all statistics.
    const torch::Tensor sums =
        torch::stack(
            {policy_loss.detach(), value_loss.detach(), entropy.detach(),
             (-log_ratio).sum(), (ratio - 1 - log_ratio).sum(),
             ((ratio - 1).abs() > batch.clip_ratio).sum().to(torch::kFloat32)})
            .to(torch::kCPU)
            .to(torch::kFloat64);
    const double* s = sums.data_ptr<double>();
    return {batch.index.numel(), s[0], s[1], s[2], s[3], s[4], s[5]};
  }

 private:
  // The outputs at batch.index of whole sequences, replayed from where the
  // rollout began.
  ActorCriticOutput Replay(const PpoBatch& batch) {
    const Rollout& r = *batch.rollout;
    const torch::Device device = net_->device();
    const torch::Tensor steps = torch::arange(r.length, torch::kInt32);
    const torch::Tensor all =
        (steps.unsqueeze(1) * r.rows + batch.columns).flatten();  // [T * b]
    Sequences sequences;
    sequences.state = r.initial_state.index_select(0, batch.columns).to(device);
    sequences.keep = (1 - Starts(r).index_select(1, batch.columns))
                         .to(torch::kFloat32)
                         .unsqueeze(2)
                         .to(device);
    ActorCriticOutput out = net_->Forward(
        GatherObservations(r, net_->spaces(), all).to(device), sequences);
    if (batch.index.numel() == all.numel()) return out;
    const torch::Tensor valid =
        r.valid.flatten().index_select(0, all).nonzero().squeeze(1).to(device);
    out.policy = out.policy.index_select(0, valid);
    out.value = out.value.index_select(0, valid);
    return out;
  }

  ActorCritic* const net_;
  const v1::PpoConfig config_;
};

}  // namespace

std::unique_ptr<PpoBackend> MakeTorchPpoBackend(ActorCritic* net,
                                                const v1::PpoConfig& config) {
  return std::make_unique<TorchPpoBackend>(net, config);
}

}  // namespace flotilla
