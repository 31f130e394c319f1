#include "learner/nn/action_scorer.h"

#include <algorithm>

#include "learner/nn/distributions.h"
#include "learner/nn/mlp_shape_of.h"
#include "learner/rollout/gather.h"

namespace flotilla {
namespace {

// Observations at a time: stacks of frames are large.
constexpr int64_t kChunk = 512;

}  // namespace

ActionScorer::ActionScorer(const ActorCritic* net) : net_(net) {
  if (const auto shape = MlpShapeOf(*net)) mlp_.emplace(*shape);
}

void ActionScorer::Score(const Rollout& rollout, torch::Tensor* log_prob,
                         torch::Tensor* value) {
  torch::NoGradGuard no_grad;
  if (mlp_) mlp_->SetParameters(net_->parameters().data_ptr<float>());
  const torch::Tensor action = rollout.action.flatten(0, 1);
  const torch::Tensor log_probs = log_prob->view({-1});
  const torch::Tensor values = value->view({-1});
  const int64_t seen = values.numel(), acted = log_probs.numel();
  for (int64_t begin = 0; begin < seen; begin += kChunk) {
    const int64_t count = std::min(kChunk, seen - begin);
    // Nothing was done about the last row.
    const int64_t first = std::min(begin, acted);
    const int64_t decided = std::min(begin + count, acted) - first;
    const torch::Tensor observation =
        net_->spaces().frames
            ? GatherObservations(
                  rollout, net_->spaces(),
                  torch::arange(begin, begin + count, torch::kInt32))
            : rollout.observation.flatten(0, 1).narrow(0, begin, count);
    ScoreChunk(observation, action.narrow(0, first, decided),
               log_probs.narrow(0, first, decided),
               values.narrow(0, begin, count));
  }
}

void ActionScorer::ScoreSteps(const Rollout& rollout,
                              const torch::Tensor& index,
                              torch::Tensor* log_prob, torch::Tensor* value) {
  torch::NoGradGuard no_grad;
  if (mlp_) mlp_->SetParameters(net_->parameters().data_ptr<float>());
  const torch::Tensor action = rollout.action.flatten(0, 1);
  for (int64_t begin = 0; begin < index.numel(); begin += kChunk) {
    const int64_t count = std::min(kChunk, index.numel() - begin);
    const torch::Tensor steps = index.narrow(0, begin, count);
    ScoreChunk(GatherObservations(rollout, net_->spaces(), steps),
               action.index_select(0, steps), log_prob->narrow(0, begin, count),
               value->narrow(0, begin, count));
  }
}

void ActionScorer::ScoreChunk(const torch::Tensor& observation,
                              const torch::Tensor& action,
                              torch::Tensor log_prob, torch::Tensor value) {
  torch::Tensor policy;
  if (mlp_) {
    policy = torch::empty({observation.size(0), net_->spaces().actions});
    mlp_->Forward(observation.data_ptr<float>(), observation.size(0),
                  policy.data_ptr<float>(), value.data_ptr<float>());
  } else {
    const ActorCriticOutput out = net_->Forward(observation.to(net_->device()));
    value.copy_(out.value);
    policy = out.policy;
  }
  const int64_t decided = action.size(0);
  if (decided == 0) return;
  log_prob.copy_(ScoreActions(*net_, policy.narrow(0, 0, decided),
                              action.to(net_->device()))
                     .log_prob);
}

}  // namespace flotilla
