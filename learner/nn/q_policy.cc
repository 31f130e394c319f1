#include "learner/nn/q_policy.h"

#include <algorithm>
#include <array>
#include <utility>

#include "learner/cuda/operators.h"
#include "learner/cuda/sampling.h"
#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/nn/action_head.h"
#include "learner/nn/frozen_policy.h"
#include "learner/rollout/batch.h"

namespace flotilla {
QPolicy::QPolicy(const QNetwork* net)
    : net_(net),
      first_logit_(FirstLogits(net->spaces().action)),
      first_there_(
          ToDevice(torch::tensor(first_logit_, torch::kInt32), net->device())) {
  if (const std::optional<MlpShape> shape = net->KernelShape()) {
    kernels_.emplace(*shape, /*training=*/false);
  }
}

const float* QPolicy::Values(const Observations& seen) {
  if (kernels_.has_value()) {
    values_.resize(seen.rows * kernels_->shape().actions);
    if (!settled_) {
      kernels_->SetParameters(Host<float>(net_->Flat().parameters));
    }
    settled_ = true;
    kernels_->Values(static_cast<const float*>(seen.leaf[0]), seen.rows,
                     values_.data());
    return values_.data();
  }
  values_on_host_ =
      ToHost(net_->Forward(Borrow(seen, net_->spaces()).To(net_->device())));
  return Host<float>(values_on_host_);
}

void QPolicy::Decide(const Observations& seen, bool greedy, Draws* draws,
                     const DecisionOutput& out) {
  torch::NoGradGuard no_grad;
  const Spaces& spaces = net_->spaces();
  ExploreArgs args;
  args.rows = seen.rows;
  args.choices = spaces.action.choices();
  args.logits = spaces.action.logits();
  args.first_logit = first_logit_.data();
  args.value = Values(seen);
  if (spaces.mask >= 0) {
    args.mask = static_cast<const uint8_t*>(seen.leaf[spaces.mask]);
  }
  std::array<int64_t, 2> stream;
  if (!greedy) {
    stream = draws->Take(seen.rows * noise_size());
    args.stream = stream.data();
  }
  args.epsilon = &epsilon_;
  args.discrete = out.discrete;
  const ExploreKernel kernel{args};
  for (int64_t r = 0; r < seen.rows; ++r) kernel.Row(r);
  std::fill_n(out.log_prob, seen.rows, 0.0f);
  std::fill_n(out.value, seen.rows, 0.0f);
}

void QPolicy::Value(const Observations& seen, float* value) {
  std::fill_n(value, seen.rows, 0.0f);
}

ResidentPolicy::Decision QPolicy::Decide(const Batch& seen,
                                         const torch::Tensor&,
                                         const Chance& chance) const {
  torch::NoGradGuard no_grad;
  const int mask = net_->spaces().mask;
  Decision decision;
  decision.value = torch::zeros({seen.size()}, net_->device());
  if (!chance.stream.defined()) return decision;
  decision.log_prob = decision.value;
  decision.action.discrete =
      ExploreActions(net_->Forward(seen).contiguous(),
                     mask >= 0 ? seen.leaf[mask].contiguous() : torch::Tensor(),
                     first_there_, chance.stream, chance.exploration);
  return decision;
}

std::unique_ptr<Policy> MakeFrozenQPolicy(const QNetwork& net, double epsilon) {
  QNetwork frozen = net.Clone();
  frozen.Settle();
  return std::make_unique<FrozenPolicy<QNetwork, QPolicy>>(
      std::move(frozen), [&](const QNetwork* copy) {
        QPolicy policy(copy);
        policy.set_epsilon(epsilon);
        return policy;
      });
}

}  // namespace flotilla
