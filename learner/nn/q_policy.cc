#include "learner/nn/q_policy.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/nn/action_head.h"
#include "learner/nn/frozen_policy.h"
#include "learner/rollout/batch.h"

namespace flotilla {
namespace {

// Of `n` values those that `mask` (or null) allows; all, if that is none.
void AllowedValues(const uint8_t* mask, int64_t n,
                   std::vector<int64_t>* allowed) {
  allowed->clear();
  for (int64_t a = 0; a < n; ++a) {
    if (mask == nullptr || mask[a] != 0) allowed->push_back(a);
  }
  if (!allowed->empty()) return;
  allowed->resize(n);
  std::iota(allowed->begin(), allowed->end(), 0);
}

// Of as many values as `mask` [R, n] int64 allows, or all, if that is none, the one
// at the share `part` [R, 1] float64 of them: [R, 1] int64.
torch::Tensor NthAllowed(const torch::Tensor& mask, const torch::Tensor& part) {
  const torch::Tensor none = mask.sum(1, /*keepdim=*/true) == 0;
  const torch::Tensor up_to = (mask != 0).logical_or(none).cumsum(1);  // [R, n]
  const torch::Tensor nth =
      (part * up_to.narrow(1, mask.size(1) - 1, 1)).to(torch::kInt64);
  return (up_to <= nth).sum(1, /*keepdim=*/true);
}

}  // namespace

QPolicy::QPolicy(const QNetwork* net) : net_(net) {
  if (const std::optional<MlpShape> shape = net->KernelShape()) {
    kernels_.emplace(*shape, /*training=*/false);
  }
}

const float* QPolicy::Values(const Observations& seen) {
  if (kernels_.has_value()) {
    values_.resize(seen.rows * kernels_->shape().actions);
    kernels_->SetParameters(Host<float>(net_->Flat().parameters));
    kernels_->Values(static_cast<const float*>(seen.leaf[0]), seen.rows,
                     values_.data());
    return values_.data();
  }
  values_on_host_ =
      ToHost(net_->Forward(Borrow(seen, net_->spaces()).To(net_->device())));
  return Host<float>(values_on_host_);
}

void QPolicy::Decide(const Observations& seen, bool greedy, Random* rng,
                     const DecisionOutput& out) {
  torch::NoGradGuard no_grad;
  const Spaces& spaces = net_->spaces();
  const float* row = Values(seen);
  const auto* mask = spaces.mask >= 0
                         ? static_cast<const uint8_t*>(seen.leaf[spaces.mask])
                         : nullptr;
  int64_t* chosen = out.discrete;
  std::vector<int64_t> allowed;
  for (int64_t r = 0; r < seen.rows; ++r) {
    const bool random = !greedy && rng->Uniform() < epsilon_;
    for (const int64_t n : spaces.action.num_values) {
      AllowedValues(mask, n, &allowed);
      *chosen++ =
          random ? allowed[static_cast<size_t>(
                       rng->Uniform() * static_cast<double>(allowed.size()))]
                 : *std::max_element(
                       allowed.begin(), allowed.end(),
                       [&](int64_t a, int64_t b) { return row[a] < row[b]; });
      row += n;
      if (mask != nullptr) mask += n;
    }
  }
  std::fill_n(out.log_prob, seen.rows, 0.0f);
  std::fill_n(out.value, seen.rows, 0.0f);
}

void QPolicy::Value(const Observations& seen, float* value) {
  std::fill_n(value, seen.rows, 0.0f);
}

void QPolicy::DrawNoise(int64_t rows, Random* rng, double* noise) const {
  const int64_t K = net_->spaces().action.choices();
  for (int64_t r = 0; r < rows; ++r) {
    const bool random = rng->Uniform() < epsilon_;
    *noise++ = random ? 1 : 0;
    for (int64_t i = 0; i < K; ++i) *noise++ = random ? rng->Uniform() : 0;
  }
}

ResidentPolicy::Decision QPolicy::Decide(const Batch& seen,
                                         const torch::Tensor&,
                                         const torch::Tensor& noise) const {
  torch::NoGradGuard no_grad;
  const Spaces& spaces = net_->spaces();
  Decision decision;
  decision.value = torch::zeros({seen.size()}, net_->device());
  if (!noise.defined()) return decision;
  decision.log_prob = decision.value;
  const torch::Tensor values = net_->Forward(seen);
  const torch::Tensor random = noise.narrow(1, 0, 1) > 0;  // [R, 1]
  std::vector<torch::Tensor> chosen;
  int64_t first = 0;
  for (const int64_t n : spaces.action.num_values) {
    torch::Tensor q = values.narrow(1, first, n);
    const torch::Tensor part =
        noise.narrow(1, 1 + static_cast<int64_t>(chosen.size()), 1);
    torch::Tensor any;  // [R, 1]
    if (spaces.mask >= 0) {
      const torch::Tensor mask =
          seen.leaf[spaces.mask].narrow(1, first, n).to(torch::kInt64);
      q = ForbidValues(q, mask);
      any = NthAllowed(mask, part);
    } else {
      any = (part * static_cast<double>(n)).to(torch::kInt64);
    }
    chosen.push_back(torch::where(random, any, q.argmax(1, /*keepdim=*/true)));
    first += n;
  }
  decision.action.discrete =
      chosen.size() == 1 ? chosen[0] : torch::cat(chosen, 1);
  return decision;
}

std::unique_ptr<Policy> MakeFrozenQPolicy(const QNetwork& net, double epsilon) {
  return std::make_unique<FrozenPolicy<QNetwork, QPolicy>>(
      net.Clone(), [&](const QNetwork* copy) {
        QPolicy policy(copy);
        policy.set_epsilon(epsilon);
        return policy;
      });
}

}  // namespace flotilla
