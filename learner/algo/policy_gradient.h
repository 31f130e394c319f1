#ifndef FLOTILLA_LEARNER_ALGO_POLICY_GRADIENT_H_
#define FLOTILLA_LEARNER_ALGO_POLICY_GRADIENT_H_

#include <memory>
#include <vector>

#include "learner/algo/algorithm.h"
#include "learner/algo/gradient_step.h"
#include "learner/algo/minibatch_graphs.h"
#include "learner/algo/minibatches.h"
#include "learner/algo/policy_loss.h"
#include "learner/algo/ppo_backend.h"
#include "learner/nn/network.h"
#include "learner/nn/policies.h"
#include "services/base/random.h"
#include "services/env/spaces.h"

namespace flotilla {

// What PPO, APPO and IMPALA share: an actor-critic, its optimizer, and epochs
// of minibatches of PPO's loss. They differ in what a step is worth (Estimate)
// and in the loss's numbers.
//
// A minibatch is drawn from the valid steps alone (minibatches.h), so ranks may
// differ in samples and never in the number of gradient steps. Recurrent
// networks replay whole environments from the rollout's initial state
// (ppo_atari_lstm.py; DD-PPO, Wijmans et al. 2020): no gradient passes the
// rollout's begin. target_kl uses the KL of all ranks' last minibatch.
//
// Metrics are means over the update's minibatches: losses/policy_loss,
// losses/value_loss, losses/entropy, losses/old_approx_kl, losses/approx_kl,
// losses/clipfrac, losses/explained_variance, losses/grad_norm; the wait for
// the all-reduces of one gradient step, sync/all_reduce_ms; and of the whole
// update sync/bytes.
//
// On a device the rollout is copied there once (runtime.rollouts_on), and the host
// waits once an update, for what it reports; with target_kl once an epoch too. A
// gradient step is one launch of a graph there, but for what ranks exchange and do
// with it.
class PolicyGradient : public Algorithm {
 public:
  absl::StatusOr<std::vector<Metric>> Update(
      const Rollout& rollout, const UpdateContext& context) final;

  absl::Status Reconfigure(const v1::RunConfig& config) override;
  Policy* live_policy() override { return policy_.get(); }
  std::unique_ptr<Policy> Freeze() const override {
    return MakeFrozenPolicy(*net_, spaces_);
  }
  std::vector<NamedTensor> Weights() override { return net_->Named(); }
  std::vector<NamedTensor> State() override { return step_.State(); }
  void StateWasReplaced() override { policy_->Refresh(); }

 protected:
  // What a configuration makes of the loss.
  using LossOf = PolicyLoss (*)(const v1::RunConfig&);

  PolicyGradient(const v1::RunConfig& config, LossOf loss_of,
                 const Spaces& spaces, std::unique_ptr<Network> net);

  // A rollout and what its steps are worth.
  struct Estimates {
    Rollout rollout;  // log_prob and value are those the loss compares with
    torch::Tensor advantage;  // [T, B] float32
    torch::Tensor returns;    // [T, B] float32  what the value aims at
  };
  // `rollout` lies in memory().
  virtual absl::StatusOr<Estimates> Estimate(const Rollout& rollout,
                                             const UpdateContext& context) = 0;

  // What the m-th gradient step of an epoch learns from: by default the m-th of
  // `minibatches`, shuffled for each epoch. `estimates` may change with it.
  virtual PpoBatch NextBatch(int m, Minibatches* minibatches,
                             Estimates* estimates, Random* rng);

  // Where nothing is to be bootstrapped from, [T, B] uint8: also at time limits
  // unless loss.bootstrap_truncation.
  torch::Tensor Terminated(const Rollout& rollout) const;

  // float32, where rollouts lie while they are learned from.
  torch::TensorOptions memory() const { return memory_; }
  // That rollout as it was collected, on the host.
  const Rollout& collected() const { return *collected_; }

  v1::RunConfig config_;
  const LossOf loss_of_;
  PolicyLoss loss_;  // of config_
  const Spaces spaces_;
  const std::unique_ptr<Network> net_;

 private:
  // What an update's minibatches came to so far.
  struct Sums {
    PpoSums losses;
    double grad_norm = 0, sync_seconds = 0;
    int64_t sync_bytes = 0;
    int steps = 0;
    double kl = 0;  // of the last step, over all ranks
  };
  // One gradient step. Where the network is on a device, the host does not know
  // before Finish what came of it. Errors: as Update.
  absl::Status Step(const PpoBatch& batch, const UpdateContext& context,
                    double learning_rate, Sums* sums);
  // Each waits for the device once. `moments` comes to the host too.
  void ReadKl(Sums* sums) const;
  absl::Status Finish(Sums* sums, torch::Tensor* moments);
  // In memory().
  const Rollout& Resident(const Rollout& rollout);

  // Step on a device.
  absl::Status StepLater(const PpoBatch& batch, const UpdateContext& context,
                         double learning_rate);
  // Whether a graph may do what StepLater does with `batch`.
  bool MayRecord(const PpoBatch& batch, Collective* collective) const;

  const torch::TensorOptions memory_;
  const Rollout* collected_ = nullptr;
  Rollout resident_;  // if memory_ is a device's
  GradientStep step_;
  std::unique_ptr<PpoBackend> backend_;
  torch::Tensor sums_;  // on a device: what is behind PpoSums' `samples`
  std::unique_ptr<MinibatchGraphs> graphs_;  // null: none are to be had
  std::unique_ptr<NetworkPolicy> policy_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_POLICY_GRADIENT_H_
