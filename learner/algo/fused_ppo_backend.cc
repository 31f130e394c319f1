#include <cstdint>
#include <vector>

#include "learner/algo/partwise_ppo_backend.h"
#include "learner/cuda/operators.h"
#include "learner/device/transfer.h"
#include "learner/nn/action_head.h"
#include "learner/nn/replay_sequences.h"

namespace flotilla {
namespace {

class FusedPpoBackend : public PartwisePpoBackend {
 public:
  FusedPpoBackend(const Network* net, const Spaces& spaces,
                  const PolicyLoss& loss)
      : PartwisePpoBackend(net, loss),
        mask_(spaces.mask),
        seen_(spaces.encoded().at(0)),
        first_logit_(
            ToDevice(torch::tensor(FirstLogits(spaces.action), torch::kInt32),
                     net->device())) {}

 private:
  // Their mean and scale, if they are to be normalised.
  torch::Tensor Advantages(const PpoBatch& batch) const override {
    if (!loss().normalize_advantages) return {};
    return ToDevice(
        AdvantageScaleOperator(batch.advantage.flatten(), batch.index),
        net().device());
  }

  torch::Tensor Add(const Part& part,
                    const torch::Tensor& mean_and_scale) const override {
    if (const auto shape = net().DeviceShape()) {
      return AddMlp(*shape, part.batch, mean_and_scale);
    }
    const auto [out, observation] = RunSteps(
        net(), *part.batch.rollout, part.batch.index, part.batch.columns);
    const PpoLossOutput loss =
        Loss(part.batch, out, observation, mean_and_scale);
    std::vector<torch::Tensor> roots, slopes;
    const auto add = [&](const torch::Tensor& root,
                         const torch::Tensor& slope) {
      if (!root.defined() || !root.requires_grad()) return;
      roots.push_back(root);
      slopes.push_back(root.dim() < slope.dim() ? slope.sum(0) : slope);
    };
    add(out.policy, loss.policy_slope);
    add(out.log_std, loss.log_std_slope);
    add(out.value, loss.value_slope);
    torch::autograd::backward(roots, slopes);
    return loss.sums;
  }

  // The same of an MLP, whose gradient is an operator too: autograd has no part in it,
  // and gradients in buckets leave when all are there.
  torch::Tensor AddMlp(const MlpShape& shape, const PpoBatch& batch,
                       const torch::Tensor& mean_and_scale) const {
    torch::NoGradGuard no_grad;
    const Batch observation =
        batch.rollout->observation.Gather(batch.index, net().device());
    torch::Tensor seen = observation.leaf[seen_];
    if (seen.dim() > 2) seen = seen.flatten(1);
    const torch::Tensor& parameters = net().parameters();
    const MlpOutputs mlp =
        MlpForwardOperator(shape, parameters, seen, /*keep=*/true);
    NetworkOutput out;
    out.policy = mlp.policy;
    out.value = mlp.value;
    if (shape.continuous) out.log_std = parameters.narrow(0, 0, shape.actions);
    const PpoLossOutput loss = Loss(batch, out, observation, mean_and_scale);
    MlpBackwardOperator(
        shape, parameters, seen, mlp.kept,
        {.policy = loss.policy_slope,
         .value = loss.value_slope,
         .log_std = shape.continuous ? loss.log_std_slope : torch::Tensor()},
        net().gradients());
    return loss.sums;
  }

  PpoLossOutput Loss(const PpoBatch& batch, const NetworkOutput& out,
                     const Batch& observation,
                     const torch::Tensor& mean_and_scale) const {
    torch::NoGradGuard no_grad;
    const torch::Device device = net().device();
    const Rollout& r = *batch.rollout;
    // The operator picks from a rollout on the device; from one on the host only
    // what is picked goes there.
    const bool there = batch.index.device() == device;
    const auto pick = [&](const torch::Tensor& steps) {
      const torch::Tensor flat = steps.flatten(0, 1);
      return there ? flat : RowsToDevice(flat, batch.index, device);
    };
    const Actions action = r.action.Map(pick);
    PpoLossInput in;
    in.policy = out.policy.detach().contiguous();
    if (out.log_std.defined()) in.log_std = out.log_std.detach().contiguous();
    in.value = out.value.detach().contiguous();
    if (mask_ >= 0) in.mask = observation.leaf[mask_];
    in.first_logit = first_logit_;
    if (there) in.index = batch.index;
    in.discrete = action.discrete;
    in.continuous = action.continuous;
    in.log_prob = pick(r.log_prob);
    in.old_value = pick(r.value.narrow(0, 0, r.length));
    in.returns = pick(batch.returns);
    in.advantage = pick(batch.advantage);
    in.mean_and_scale = mean_and_scale;
    in.clip_ratio = batch.clip_ratio;
    in.value_clip = batch.value_clip;
    in.entropy_cost = loss().entropy_cost;
    in.value_cost = loss().value_cost;
    return PpoLossOperator(in);
  }

  const int mask_;  // of Spaces.observation; below 0: none
  const int seen_;  // of the same, by an MLP
  const torch::Tensor first_logit_;
};

}  // namespace

std::unique_ptr<PpoBackend> MakeFusedPpoBackend(const Network* net,
                                                const Spaces& spaces,
                                                const PolicyLoss& loss) {
  return std::make_unique<FusedPpoBackend>(net, spaces, loss);
}

}  // namespace flotilla
