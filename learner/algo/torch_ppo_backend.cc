#include <vector>

#include "learner/algo/batch_parts.h"
#include "learner/algo/ppo_backend.h"
#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/nn/action_head.h"
#include "learner/nn/replay_sequences.h"

namespace flotilla {
namespace {

class TorchPpoBackend : public PpoBackend {
 public:
  TorchPpoBackend(const Network* net, const Spaces& spaces,
                  const PolicyLoss& loss)
      : net_(net), mask_(spaces.mask), head_(spaces.action), loss_(loss) {}

  void set_loss(const PolicyLoss& loss) override { loss_ = loss; }

  PpoSums Compute(const PpoBatch& batch) override {
    // One transfer for all statistics.
    const torch::Tensor sums = ToHost(ComputeLater(batch));
    const double* s = Host<double>(sums);
    return {batch.index.numel(), s[0], s[1], s[2], s[3], s[4], s[5]};
  }

  torch::Tensor ComputeLater(const PpoBatch& batch) override {
    net_->gradients().zero_();
    if (batch.index.numel() == 0) {
      return torch::zeros({kSums},
                          net_->gradients().options().dtype(torch::kFloat64));
    }
    const torch::Tensor advantage = Advantage(batch);  // [M]
    torch::Tensor sums;
    const std::vector<BatchPart> parts =
        CutBatch(batch, net_->recurrent(), loss_.max_minibatch);
    for (const BatchPart& part : parts) {
      if (&part == &parts.back() && batch.before_last_backward) {
        batch.before_last_backward();
      }
      const torch::Tensor one =
          Add(part.batch, part.place.defined()
                              ? advantage.index_select(0, part.place)
                              : advantage);
      sums = sums.defined() ? sums + one : one;
    }
    return sums;
  }

 private:
  // As the loss takes them: normalised over the whole batch, if at all.
  torch::Tensor Advantage(const PpoBatch& batch) const {
    const torch::Tensor advantage =
        batch.advantage.flatten().index_select(0, batch.index);
    if (!loss_.normalize_advantages || advantage.numel() < 2) {
      return advantage;
    }
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8);
  }

  // Adds the sum over `batch` of the loss's gradient to what is there, and returns
  // what it sums besides.
  torch::Tensor Add(const PpoBatch& batch,
                    const torch::Tensor& given_advantage) {
    const torch::Device device = net_->device();
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
    const torch::Tensor advantage = ToDevice(given_advantage, device);

    const auto [out, observation] =
        RunSteps(*net_, *batch.rollout, batch.index, batch.columns);
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
    const torch::Tensor loss = policy_loss - loss_.entropy_cost * entropy +
                               loss_.value_cost * value_loss;
    loss.backward();

    torch::NoGradGuard no_grad;
    return torch::stack({policy_loss.detach(), value_loss.detach(),
                         entropy.detach(), (-log_ratio).sum(),
                         (ratio - 1 - log_ratio).sum(),
                         ((ratio - 1).abs() > batch.clip_ratio)
                             .sum()
                             .to(torch::kFloat32)})
        .to(torch::kFloat64);
  }

  const Network* const net_;
  const int mask_;  // of Spaces.observation; below 0: none
  const ActionHead head_;
  PolicyLoss loss_;
};

}  // namespace

std::unique_ptr<PpoBackend> MakeTorchPpoBackend(const Network* net,
                                                const Spaces& spaces,
                                                const PolicyLoss& loss) {
  return std::make_unique<TorchPpoBackend>(net, spaces, loss);
}

}  // namespace flotilla
