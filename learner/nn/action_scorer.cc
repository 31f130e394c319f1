#include "learner/nn/action_scorer.h"

#include <algorithm>

#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/nn/replay_sequences.h"

namespace flotilla {
namespace {

// Observations at a time: stacks of frames are large.
constexpr int64_t kChunk = 512;

// Where the rollout is, as its indices are.
torch::Tensor Steps(const Rollout& rollout, int64_t begin, int64_t count) {
  return torch::arange(
      begin, begin + count,
      torch::dtype(torch::kInt32).device(rollout.valid.device()));
}

void Store(const torch::Tensor& from, torch::Tensor to) {
  to.copy_(to.is_cpu() ? ToHost(from) : from);
}

// Of an observation without stacks, as it lies.
Batch InPlace(const Rollout& rollout, int64_t begin, int64_t count) {
  Batch batch;
  for (int i = 0; i < rollout.observation.num_leaves(); ++i) {
    batch.leaf.push_back(
        rollout.observation.leaf(i).flatten(0, 1).narrow(0, begin, count));
  }
  return batch;
}

Actions Flat(const Rollout& rollout) {
  return rollout.action.Map(
      [](const torch::Tensor& t) { return t.flatten(0, 1); });
}

}  // namespace

ActionScorer::ActionScorer(const Network* net, const Spaces& spaces)
    : net_(net), spaces_(spaces), head_(spaces.action) {
  if (const auto shape = net->KernelShape()) mlp_.emplace(*shape);
}

void ActionScorer::Score(const Rollout& rollout, torch::Tensor* log_prob,
                         torch::Tensor* value) {
  torch::NoGradGuard no_grad;
  if (mlp_) mlp_->SetParameters(Host<float>(net_->parameters()));
  const torch::Tensor log_probs = log_prob->view({-1});
  const torch::Tensor values = value->view({-1});
  const int64_t seen = values.numel(), acted = log_probs.numel();
  const Actions action = Flat(rollout);
  if (net_->recurrent()) {
    const torch::Tensor columns = Steps(rollout, 0, rollout.rows);
    const Batch all =
        SequenceBatch(rollout, columns, rollout.length + 1, net_->device());
    const NetworkOutput out = net_->Forward(
        all, SequencesOf(rollout, columns, rollout.length + 1, net_->device()));
    Store(out.value, values);
    NetworkOutput decided = out;
    decided.policy = out.policy.narrow(0, 0, acted);
    if (out.log_std.defined() && out.log_std.dim() > 1) {
      decided.log_std = out.log_std.narrow(0, 0, acted);
    }
    Store(LogProb(decided, all.Narrow(0, acted), action), log_probs);
    return;
  }
  for (int64_t begin = 0; begin < seen; begin += kChunk) {
    const int64_t count = std::min(kChunk, seen - begin);
    // Nothing was done about the last row.
    const int64_t first = std::min(begin, acted);
    const int64_t decided = std::min(begin + count, acted) - first;
    ScoreChunk(mlp_ ? InPlace(rollout, begin, count)
                    : rollout.observation.Gather(Steps(rollout, begin, count),
                                                 net_->device()),
               action.Map([&](const torch::Tensor& t) {
                 return t.narrow(0, first, decided);
               }),
               log_probs.narrow(0, first, decided),
               values.narrow(0, begin, count));
  }
}

void ActionScorer::ScoreSteps(const Rollout& rollout,
                              const torch::Tensor& index,
                              const torch::Tensor& columns,
                              torch::Tensor* log_prob, torch::Tensor* value) {
  torch::NoGradGuard no_grad;
  if (mlp_) mlp_->SetParameters(Host<float>(net_->parameters()));
  const Actions action = Flat(rollout);
  const auto some = [&](const torch::Tensor& steps) {
    return action.Map(
        [&](const torch::Tensor& t) { return t.index_select(0, steps); });
  };
  if (net_->recurrent()) {
    const Replayed replayed = ReplaySequences(*net_, rollout, index, columns);
    Store(replayed.output.value, *value);
    Store(LogProb(replayed.output, replayed.observation, some(index)),
          *log_prob);
    return;
  }
  for (int64_t begin = 0; begin < index.numel(); begin += kChunk) {
    const int64_t count = std::min(kChunk, index.numel() - begin);
    const torch::Tensor steps = index.narrow(0, begin, count);
    ScoreChunk(rollout.observation.Gather(steps, net_->device()), some(steps),
               log_prob->narrow(0, begin, count),
               value->narrow(0, begin, count));
  }
}

torch::Tensor ActionScorer::LogProb(const NetworkOutput& output,
                                    const Batch& observation,
                                    const Actions& action) const {
  const torch::Device device = output.policy.device();
  const torch::Tensor mask =
      spaces_.mask >= 0 ? observation.leaf[spaces_.mask] : torch::Tensor();
  return head_
      .Evaluate(output.policy, output.log_std, mask,
                action.Map([&](const torch::Tensor& t) {
                  return ToDevice(t, device);
                }))
      .log_prob;
}

void ActionScorer::ScoreChunk(const Batch& observation, const Actions& action,
                              torch::Tensor log_prob, torch::Tensor value) {
  const int64_t seen = value.numel(), decided = log_prob.numel();
  NetworkOutput out;
  if (mlp_) {
    out.policy = torch::empty({seen, head_.num_outputs()});
    // A kernel's network has one log_std, whatever it sees.
    mlp_->Forward(Host<float>(observation.leaf[0]), seen,
                  Host<float>(out.policy), Host<float>(value));
    if (spaces_.action.continuous > 0) {
      out.log_std = net_->parameters().narrow(0, 0, spaces_.action.continuous);
    }
  } else {
    out = net_->Forward(observation);
    Store(out.value, value);
  }
  if (decided == 0) return;
  out.policy = out.policy.narrow(0, 0, decided);
  if (out.log_std.defined() && out.log_std.dim() > 1) {
    out.log_std = out.log_std.narrow(0, 0, decided);
  }
  Store(LogProb(out, observation.Narrow(0, decided), action), log_prob);
}

}  // namespace flotilla
