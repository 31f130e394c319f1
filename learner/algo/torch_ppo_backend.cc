#include <algorithm>
#include <vector>

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
    const torch::Tensor advantage = Advantage(batch);  // [M]
    PpoSums sums;
    const std::vector<Part> parts = Cut(batch);
    for (const Part& part : parts) {
      if (&part == &parts.back() && batch.before_last_backward) {
        batch.before_last_backward();
      }
      PpoBatch some = batch;
      some.index = part.index;
      some.columns = part.columns;
      sums +=
          Add(some, part.place.defined() ? advantage.index_select(0, part.place)
                                         : advantage);
    }
    return sums;
  }

 private:
  // What goes through the network at once.
  struct Part {
    torch::Tensor index, columns;  // as in PpoBatch
    torch::Tensor place;  // [m] int64  where in batch.index; undefined: all
  };

  // One part, unless that would be more than max_minibatch steps: then parts of
  // at most that many, of whole environments if the network is recurrent.
  std::vector<Part> Cut(const PpoBatch& batch) const {
    const int64_t most = config_.max_minibatch();
    if (most == 0 || batch.index.numel() <= most) {
      return {{batch.index, batch.columns, {}}};
    }
    std::vector<Part> parts;
    if (!net_->recurrent()) {
      const torch::Tensor all =
          torch::arange(batch.index.numel(), torch::kInt64);
      for (const torch::Tensor& place : all.split(most)) {
        parts.push_back({batch.index.index_select(0, place), {}, place});
      }
      return parts;
    }
    const Rollout& r = *batch.rollout;
    const torch::Tensor row = batch.index.remainder(r.rows);
    for (const torch::Tensor& columns :
         batch.columns.split(std::max<int64_t>(1, most / r.length))) {
      const torch::Tensor place =
          torch::isin(row, columns).nonzero().squeeze(1);
      if (place.numel() == 0) continue;
      parts.push_back({batch.index.index_select(0, place), columns, place});
    }
    return parts;
  }

  // As the loss takes them: normalised over the whole batch, if at all.
  torch::Tensor Advantage(const PpoBatch& batch) const {
    const torch::Tensor advantage =
        batch.advantage.flatten().index_select(0, batch.index);
    if (!config_.normalize_advantages() || advantage.numel() < 2) {
      return advantage;
    }
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8);
  }

  // Adds the sum over `batch` of the loss's gradient to what is there.
  PpoSums Add(const PpoBatch& batch, const torch::Tensor& host_advantage) {
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
    const torch::Tensor advantage =
        host_advantage.to(device, /*non_blocking=*/true);

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
