#include "learner/algo/partwise_ppo_backend.h"
#include "learner/device/transfer.h"
#include "learner/nn/action_head.h"
#include "learner/nn/replay_sequences.h"

namespace flotilla {
namespace {

class TorchPpoBackend : public PartwisePpoBackend {
 public:
  TorchPpoBackend(const Network* net, const Spaces& spaces,
                  const PolicyLoss& loss)
      : PartwisePpoBackend(net, loss),
        mask_(spaces.mask),
        head_(spaces.action) {}

 private:
  // As the loss takes them: normalised over the whole batch, if at all.
  torch::Tensor Advantages(const PpoBatch& batch) const override {
    const torch::Tensor advantage =
        batch.advantage.flatten().index_select(0, batch.index);
    if (!loss().normalize_advantages || advantage.numel() < 2) {
      return advantage;
    }
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8);
  }

  torch::Tensor Add(const Part& part,
                    const torch::Tensor& advantages) const override {
    const PpoBatch& batch = part.batch;
    const torch::Device device = net().device();
    const Rollout& r = *batch.rollout;
    auto pick = [&](const torch::Tensor& flat) {
      return RowsToDevice(flat, batch.index, device);
    };
    const Actions action = r.action.Map(
        [&](const torch::Tensor& t) { return pick(t.flatten(0, 1)); });
    const torch::Tensor old_log_prob = pick(r.log_prob.flatten());
    const torch::Tensor old_value =
        pick(r.value.narrow(0, 0, r.length).flatten());
    const torch::Tensor returns = pick(batch.returns.flatten());
    const torch::Tensor advantage =
        ToDevice(part.place.defined() ? advantages.index_select(0, part.place)
                                      : advantages,
                 device);

    const auto [out, observation] =
        RunSteps(net(), *batch.rollout, batch.index, batch.columns);
    const LogProbAndEntropy now = head_.Evaluate(
        out.policy, out.log_std,
        mask_ >= 0 ? observation.leaf[mask_] : torch::Tensor(), action);
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
    const torch::Tensor sum = policy_loss - loss().entropy_cost * entropy +
                              loss().value_cost * value_loss;
    sum.backward();

    torch::NoGradGuard no_grad;
    return torch::stack({policy_loss.detach(), value_loss.detach(),
                         entropy.detach(), (-log_ratio).sum(),
                         (ratio - 1 - log_ratio).sum(),
                         ((ratio - 1).abs() > batch.clip_ratio)
                             .sum()
                             .to(torch::kFloat32)})
        .to(torch::kFloat64);
  }

  const int mask_;  // of Spaces.observation; below 0: none
  const ActionHead head_;
};

}  // namespace

std::unique_ptr<PpoBackend> MakeTorchPpoBackend(const Network* net,
                                                const Spaces& spaces,
                                                const PolicyLoss& loss) {
  return std::make_unique<TorchPpoBackend>(net, spaces, loss);
}

}  // namespace flotilla
