#include "learner/nn/q_policy.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "learner/device/host.h"
#include "learner/device/transfer.h"
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
      *chosen++ = random ? allowed[rng->Below(allowed.size())]
                         : *std::max_element(allowed.begin(), allowed.end(),
                                             [&](int64_t a, int64_t b) {
                                               return row[a] < row[b];
                                             });
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

std::unique_ptr<Policy> MakeFrozenQPolicy(const QNetwork& net, double epsilon) {
  return std::make_unique<FrozenPolicy<QNetwork, QPolicy>>(
      net.Clone(), [&](const QNetwork* copy) {
        QPolicy policy(copy);
        policy.set_epsilon(epsilon);
        return policy;
      });
}

}  // namespace flotilla
