#include "learner/algo/segment_ppo.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "learner/algo/advantages.h"
#include "learner/algo/policy_gradient.h"
#include "learner/algo/ppo.h"
#include "learner/algo/segment_priorities.h"
#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/nn/action_scorer.h"
#include "services/base/run_length.h"

namespace flotilla {
namespace {

PolicyLoss WithoutNormalization(const v1::RunConfig& config) {
  PolicyLoss loss = PpoLossOf(config.ppo());
  loss.normalize_advantages = false;
  return loss;
}

class SegmentPpo : public PolicyGradient {
 public:
  SegmentPpo(const v1::RunConfig& config, const Spaces& spaces,
             std::unique_ptr<Network> net)
      : PolicyGradient(config, WithoutNormalization, spaces, std::move(net)),
        scorer_(net_.get(), spaces) {
    const int64_t T = config.rollout().length(), B = config.env().num_envs();
    target_ = torch::zeros({T, B}, memory());
    policy_advantage_ = torch::zeros({T, B}, memory());
  }

 private:
  absl::StatusOr<Estimates> Estimate(const Rollout& rollout,
                                     const UpdateContext& context) override;
  PpoBatch NextBatch(int m, Minibatches* minibatches, Estimates* estimates,
                     Random* rng) override;
  void EstimateAgain(Estimates* estimates);

  ActionScorer scorer_;
  double done_ = 0;  // share of the run
  // What is known of each step by now: the policy's and the value's last look
  // at it, with the weights of before that minibatch's gradient step.
  torch::Tensor log_prob_;                   // [T, B] float32
  torch::Tensor target_, policy_advantage_;  // [T, B] float32
  torch::Tensor terminated_;                 // [T, B] uint8
  // The last minibatch's, known from the next on.
  torch::Tensor scored_, scored_log_prob_, scored_value_;  // [M]
  std::vector<int32_t> index_;
};

absl::StatusOr<SegmentPpo::Estimates> SegmentPpo::Estimate(
    const Rollout& r, const UpdateContext& context) {
  done_ = ShareDone(config_, context.update, context.global_step);
  terminated_ = Terminated(r);
  log_prob_ = r.log_prob.clone();
  scored_ = torch::empty({0}, memory().dtype(torch::kInt64));
  scored_log_prob_ = scored_value_ = torch::empty({0}, memory());
  Estimates estimates = {r, torch::zeros_like(r.reward),
                         torch::zeros_like(r.reward)};
  estimates.rollout.value = r.value.clone();
  return estimates;
}

// The advantages and returns of all steps, from what is known of them.
void SegmentPpo::EstimateAgain(Estimates* estimates) {
  const Rollout& r = estimates->rollout;
  EstimateVtrace(r, r.value, log_prob_, terminated_,
                 {.discount = config_.ppo().discount(),
                  .lambda = config_.ppo().gae_lambda(),
                  .rho_clip = config_.ppo().rho_clip(),
                  .c_clip = config_.ppo().c_clip()},
                 &target_, &policy_advantage_);
  estimates->returns = target_;
  estimates->advantage =
      (target_ - r.value.narrow(0, 0, r.length)).masked_fill_(r.valid == 0, 0);
}

PpoBatch SegmentPpo::NextBatch(int, Minibatches*, Estimates* estimates,
                               Random* rng) {
  const Rollout& r = estimates->rollout;
  log_prob_.view({-1}).index_copy_(0, scored_, scored_log_prob_);
  r.value.view({-1}).index_copy_(0, scored_, scored_value_);
  EstimateAgain(estimates);

  const std::vector<double> probabilities = SegmentProbabilities(
      estimates->advantage, config_.ppo().priority_alpha());
  const std::vector<int64_t> segments =
      DrawSegments(probabilities, r.rows / loss_.minibatches, rng);
  index_.clear();
  torch::Tensor weight = torch::zeros({r.rows});
  const uint8_t* valid = Host<uint8_t>(collected().valid);
  for (const int64_t b : segments) {
    weight[b] =
        SegmentWeight(probabilities[b], r.rows, config_.ppo().priority_alpha(),
                      config_.ppo().priority_beta(), done_);
  }
  if (net_->recurrent()) {
    // By step and then by segment, as whole sequences are replayed.
    for (int64_t t = 0; t < r.length; ++t) {
      for (const int64_t b : segments) {
        const int64_t i = t * r.rows + b;
        if (valid[i]) index_.push_back(static_cast<int32_t>(i));
      }
    }
  } else {
    for (const int64_t b : segments) {
      for (int64_t i = b; i < r.length * r.rows; i += r.rows) {
        if (valid[i]) index_.push_back(static_cast<int32_t>(i));
      }
    }
  }
  PpoBatch batch;
  batch.rollout = &r;
  const torch::Device device = memory().device();
  batch.host_index = torch::tensor(index_, torch::kInt32);
  batch.host_columns = torch::tensor(segments, torch::kInt64).to(torch::kInt32);
  batch.index = ToDevice(batch.host_index, device);
  batch.columns = ToDevice(batch.host_columns, device);
  batch.returns = estimates->returns;
  torch::Tensor advantage = estimates->advantage;
  if (config_.ppo().normalize_advantages() && index_.size() > 1) {
    const torch::Tensor drawn =
        advantage.flatten().index_select(0, batch.index);
    advantage = (advantage - drawn.mean()) / (drawn.std() + 1e-8);
  }
  batch.advantage = advantage * ToDevice(weight, device);

  scored_ = batch.index.to(torch::kInt64);
  scored_log_prob_ = torch::empty({scored_.numel()}, memory());
  scored_value_ = torch::empty({scored_.numel()}, memory());
  scorer_.ScoreSteps(r, batch.index, batch.columns, &scored_log_prob_,
                     &scored_value_);
  return batch;
}

}  // namespace

std::unique_ptr<Algorithm> MakeSegmentPpo(const v1::RunConfig& config,
                                          const Spaces& spaces,
                                          std::unique_ptr<Network> net) {
  return std::make_unique<SegmentPpo>(config, spaces, std::move(net));
}

}  // namespace flotilla
