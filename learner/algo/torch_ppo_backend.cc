#include <algorithm>
#include <vector>

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
    const std::vector<Part> parts = Cut(batch);
    for (const Part& part : parts) {
      if (&part == &parts.back() && batch.before_last_backward) {
        batch.before_last_backward();
      }
      PpoBatch some = batch;
      some.index = part.index;
      some.columns = part.columns;
      const torch::Tensor one =
          Add(some, part.place.defined() ? advantage.index_select(0, part.place)
                                         : advantage);
      sums = sums.defined() ? sums + one : one;
    }
    return sums;
  }

 private:
  // What goes through the network at once, where the batch is.
  struct Part {
    torch::Tensor index, columns;  // as in PpoBatch
    torch::Tensor place;  // [m] int64  where in batch.index; undefined: all
  };

  // One part, unless that would be more than max_minibatch steps: then parts of
  // at most that many, of whole environments if the network is recurrent.
  std::vector<Part> Cut(const PpoBatch& batch) const {
    const int64_t most = loss_.max_minibatch;
    if (most == 0 || batch.index.numel() <= most) {
      return {{batch.index, batch.columns, {}}};
    }
    std::vector<Part> parts;
    if (!net_->recurrent()) {
      const torch::Tensor all = torch::arange(
          batch.index.numel(), batch.index.options().dtype(torch::kInt64));
      for (const torch::Tensor& place : all.split(most)) {
        parts.push_back({batch.index.index_select(0, place), {}, place});
      }
      return parts;
    }
    const Rollout& r = *batch.rollout;
    // How long a part is, the host has to know.
    const torch::Device device = batch.index.device();
    const torch::Tensor index =
        device.is_cpu() ? batch.index : batch.host_index;
    const torch::Tensor row = index.remainder(r.rows);
    for (const torch::Tensor& columns :
         (device.is_cpu() ? batch.columns : batch.host_columns)
             .split(std::max<int64_t>(1, most / r.length))) {
      const torch::Tensor place =
          torch::isin(row, columns).nonzero().squeeze(1);
      if (place.numel() == 0) continue;
      parts.push_back({ToDevice(index.index_select(0, place), device),
                       ToDevice(columns, device), ToDevice(place, device)});
    }
    return parts;
  }

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
