#include "learner/algo/segment_ppo.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "learner/algo/advantages.h"
#include "learner/algo/policy_gradient.h"
#include "learner/algo/ppo.h"
#include "learner/algo/segment_priorities.h"
#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/kernels/draws.h"
#include "learner/nn/action_scorer.h"
#include "services/base/random.h"
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
    for (torch::Tensor* one :
         {&log_prob_, &target_, &policy_advantage_, &advantage_}) {
      *one = torch::zeros({T, B}, memory());
    }
    value_ = torch::zeros({T + 1, B}, memory());
    steps_ = (torch::arange(T, memory().dtype(torch::kInt64)) * B).unsqueeze(1);
  }

 private:
  absl::StatusOr<Estimates> Estimate(const Rollout& rollout,
                                     const UpdateContext& context) override;
  PpoBatch NextBatch(int m, Minibatches* minibatches, Estimates* estimates,
                     Random* rng) override;
  void DrawNumbers(const UpdateContext& context);
  void EstimateAgain(const Rollout& rollout);
  // Which steps `segments` [b] int64 have, by t and then in this order.
  void Select(const torch::Tensor& segments, PpoBatch* batch) const;
  // The m-th minibatch's, multiplied by what each segment weighs.
  torch::Tensor Advantages(const torch::Tensor& index,
                           const torch::Tensor& segments,
                           const torch::Tensor& probabilities) const;

  ActionScorer scorer_;
  torch::Tensor steps_;  // [T, 1] int64  t * B
  double done_ = 0;      // share of the run
  bool whole_ = true;    // no step of the rollout was lost
  // Of each minibatch, and how many there were.
  torch::Tensor exponential_;  // [epochs * minibatches, B] float64
  int64_t drawn_ = 0;
  // What is known of each step by now: the policy's and the value's last look
  // at it, with the weights of before that minibatch's gradient step. All in one
  // place for ever, as graphs read it.
  torch::Tensor log_prob_;                   // [T, B] float32
  torch::Tensor value_;                      // [T + 1, B] float32
  torch::Tensor target_, policy_advantage_;  // [T, B] float32
  torch::Tensor advantage_;                  // [T, B] float32  the minibatch's
  torch::Tensor terminated_;                 // [T, B] uint8
  // The last minibatch's, known from the next on.
  torch::Tensor scored_, scored_log_prob_, scored_value_;  // [M]
};

// All of an update in one copy.
void SegmentPpo::DrawNumbers(const UpdateContext& context) {
  Draws draws(SamplingSeed(HashSeed({config_.seed(), 1}),
                           context.collective->rank(), context.update));
  const torch::Device device = memory().device();
  const torch::Tensor drawn =
      Staging({int64_t{loss_.epochs} * loss_.minibatches, value_.size(1)},
              torch::kFloat64, device);
  double* const numbers = Host<double>(drawn);
  std::generate_n(numbers, drawn.numel(),
                  [&] { return -std::log1p(-draws.Uniform()); });
  exponential_ = ToDevice(drawn, device);
  drawn_ = 0;
}

absl::StatusOr<SegmentPpo::Estimates> SegmentPpo::Estimate(
    const Rollout& r, const UpdateContext& context) {
  done_ = ShareDone(config_, context.update, context.global_step);
  DrawNumbers(context);
  const uint8_t* const valid = Host<uint8_t>(collected().valid);
  whole_ = std::find(valid, valid + collected().valid.numel(), 0) ==
           valid + collected().valid.numel();
  terminated_ = Terminated(r);
  log_prob_.copy_(r.log_prob);
  value_.copy_(r.value);
  scored_ = torch::empty({0}, memory().dtype(torch::kInt64));
  scored_log_prob_ = scored_value_ = torch::empty({0}, memory());
  Estimates estimates = {r, advantage_, target_};
  estimates.rollout.value = value_;
  return estimates;
}

// What all steps are worth, from what is known of them.
void SegmentPpo::EstimateAgain(const Rollout& r) {
  log_prob_.view({-1}).index_copy_(0, scored_, scored_log_prob_);
  value_.view({-1}).index_copy_(0, scored_, scored_value_);
  EstimateVtrace(r, value_, log_prob_, terminated_,
                 {.discount = config_.ppo().discount(),
                  .lambda = config_.ppo().gae_lambda(),
                  .rho_clip = config_.ppo().rho_clip(),
                  .c_clip = config_.ppo().c_clip()},
                 &target_, &policy_advantage_);
  advantage_.copy_(
      (target_ - value_.narrow(0, 0, r.length)).masked_fill_(r.valid == 0, 0));
}

void SegmentPpo::Select(const torch::Tensor& segments, PpoBatch* batch) const {
  const torch::Device device = memory().device();
  torch::Tensor index = (steps_ + segments).flatten().to(torch::kInt32);
  batch->columns = segments.to(torch::kInt32);
  const bool in_parts =
      loss_.max_minibatch > 0 && index.numel() > loss_.max_minibatch;
  if (!whole_ || in_parts) {
    // Which steps those are, or how many, the host has to know.
    batch->host_columns = batch->columns;
    ToHost({&index, &batch->host_columns});
    batch->host_index = index.masked_select(
        collected().valid.flatten().index_select(0, index) != 0);
    index = ToDevice(batch->host_index, device);
  }
  batch->index = index;
}

torch::Tensor SegmentPpo::Advantages(const torch::Tensor& index,
                                     const torch::Tensor& segments,
                                     const torch::Tensor& probabilities) const {
  torch::Tensor weight = torch::zeros_like(probabilities);
  weight.index_copy_(
      0, segments,
      SegmentWeights(probabilities.index_select(0, segments),
                     probabilities.numel(), config_.ppo().priority_alpha(),
                     config_.ppo().priority_beta(), done_));
  torch::Tensor advantage = advantage_;
  if (config_.ppo().normalize_advantages() && index.numel() > 1) {
    const torch::Tensor drawn = advantage.flatten().index_select(0, index);
    advantage = (advantage - drawn.mean()) / (drawn.std() + 1e-8);
  }
  return advantage * weight.to(torch::kFloat32);
}

PpoBatch SegmentPpo::NextBatch(int, Minibatches*, Estimates* estimates,
                               Random*) {
  const Rollout& r = estimates->rollout;
  EstimateAgain(r);
  const torch::Tensor probabilities =
      SegmentProbabilities(advantage_, config_.ppo().priority_alpha());
  const torch::Tensor segments = DrawSegments(
      probabilities, r.rows / loss_.minibatches, exponential_[drawn_++]);

  PpoBatch batch;
  batch.rollout = &r;
  Select(segments, &batch);
  advantage_.copy_(Advantages(batch.index, segments, probabilities));
  batch.advantage = advantage_;
  batch.returns = target_;
  batch.stays = true;

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
