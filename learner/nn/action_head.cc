#include "learner/nn/action_head.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace flotilla {
namespace {

LogProbAndEntropy Categorical(const torch::Tensor& logits,
                              const torch::Tensor& action) {
  const torch::Tensor log_softmax = torch::log_softmax(logits, 1);
  return {log_softmax.gather(1, action).squeeze(1),
          -(log_softmax.exp() * log_softmax).sum(1)};
}

// The same, where forbidden values have logits of minus infinity: 0 log 0 is 0,
// and so is its gradient.
LogProbAndEntropy MaskedCategorical(const torch::Tensor& logits,
                                    const torch::Tensor& allowed,
                                    const torch::Tensor& action) {
  const torch::Tensor log_softmax =
      torch::log_softmax(ForbidValues(logits, allowed), 1);
  const torch::Tensor finite = log_softmax.masked_fill(
      log_softmax == -std::numeric_limits<float>::infinity(), 0.0);
  // An action that was forbidden was not drawn from this: it belongs to a row
  // that is lost.
  return {finite.gather(1, action).squeeze(1),
          -(log_softmax.exp() * finite).sum(1)};
}

LogProbAndEntropy Gaussian(const torch::Tensor& mean,
                           const torch::Tensor& log_std,
                           const torch::Tensor& action) {
  const double half_log_2pi = 0.5 * std::log(2 * std::numbers::pi);
  const torch::Tensor z = (action - mean) * torch::exp(-log_std);
  const torch::Tensor entropy = log_std + 0.5 + half_log_2pi;
  return {(-0.5 * z * z - log_std - half_log_2pi).sum(1),
          log_std.dim() == 1 ? entropy.sum().expand({mean.size(0)})
                             : entropy.sum(1)};
}

bool AllowsNothing(const uint8_t* allowed, int64_t n) {
  return std::all_of(allowed, allowed + n, [](uint8_t a) { return a == 0; });
}

}  // namespace

torch::Tensor ForbidValues(const torch::Tensor& logits,
                           const torch::Tensor& allowed) {
  const torch::Tensor none = allowed.sum(1, /*keepdim=*/true) == 0;
  return logits.masked_fill((allowed == 0).logical_and(none.logical_not()),
                            -std::numeric_limits<float>::infinity());
}

int64_t SampleCategorical(const float* logits, int64_t n,
                          const uint8_t* allowed, bool greedy, Random* rng,
                          float* log_prob) {
  if (allowed != nullptr && AllowsNothing(allowed, n)) allowed = nullptr;
  const auto may = [&](int64_t a) {
    return allowed == nullptr || allowed[a] != 0;
  };
  int64_t best = 0, last = 0;
  while (!may(best)) ++best;
  for (int64_t a = best; a < n; ++a) {
    if (!may(a)) continue;
    last = a;
    if (logits[a] > logits[best]) best = a;
  }
  const float largest = logits[best];
  double sum = 0;
  for (int64_t a = 0; a < n; ++a) {
    if (may(a)) sum += std::exp(logits[a] - largest);
  }
  int64_t chosen = best;
  if (!greedy) {
    double left = rng->Uniform() * sum;
    // The last value takes what rounding leaves over.
    chosen = 0;
    for (; chosen < last; ++chosen) {
      if (!may(chosen)) continue;
      left -= std::exp(logits[chosen] - largest);
      if (left < 0) break;
    }
  }
  *log_prob = logits[chosen] - largest - static_cast<float>(std::log(sum));
  return chosen;
}

ActionHead::ActionHead(const ActionSpace& space)
    : num_values_(space.num_values),
      logits_(space.logits()),
      continuous_(space.continuous) {}

void ActionHead::Sample(const float* outputs, const float* log_std,
                        bool per_row, const uint8_t* mask, int64_t rows,
                        bool greedy, Random* rng,
                        const DecisionOutput& out) const {
  constexpr double kHalfLog2Pi = 0.91893853320467274178;
  int64_t* discrete = out.discrete;
  float* continuous = out.continuous;
  for (int64_t r = 0; r < rows; ++r) {
    float log_prob = 0;
    for (const int64_t n : num_values_) {
      float one;
      *discrete++ = SampleCategorical(outputs, n, mask, greedy, rng, &one);
      log_prob += one;
      outputs += n;
      if (mask != nullptr) mask += n;
    }
    double total = 0;
    for (int64_t a = 0; a < continuous_; ++a) {
      const double z = greedy ? 0.0 : rng->Normal();
      *continuous++ = outputs[a] + static_cast<float>(z * std::exp(log_std[a]));
      total -= 0.5 * z * z + log_std[a] + kHalfLog2Pi;
    }
    outputs += continuous_;
    if (per_row) log_std += continuous_;
    out.log_prob[r] = log_prob + static_cast<float>(total);
  }
}

std::pair<Actions, torch::Tensor> ActionHead::SampleOnDevice(
    const torch::Tensor& outputs, const torch::Tensor& log_std,
    const torch::Tensor& mask, const torch::Tensor& noise) const {
  const int64_t K = static_cast<int64_t>(num_values_.size());
  Actions action;
  std::vector<torch::Tensor> chosen;
  torch::Tensor log_prob;  // [R] float64
  const auto add = [&](const torch::Tensor& one) {
    log_prob = log_prob.defined() ? log_prob + one : one;
  };
  int64_t first = 0;
  for (int64_t i = 0; i < K; ++i) {
    const int64_t n = num_values_[i];
    torch::Tensor logits = outputs.narrow(1, first, n);
    torch::Tensor last;  // takes what rounding leaves over
    if (mask.defined()) {
      const torch::Tensor allowed = mask.narrow(1, first, n);
      logits = ForbidValues(logits, allowed);
      last = torch::where(allowed.sum(1, /*keepdim=*/true) == 0, n - 1,
                          (allowed.flip(1) == 0)
                              .to(torch::kInt64)
                              .cumprod(1)
                              .sum(1, /*keepdim=*/true)
                              .neg_()
                              .add_(n - 1));
    }
    const torch::Tensor relative = logits - logits.amax(1, /*keepdim=*/true);
    const torch::Tensor below =
        relative.exp().to(torch::kFloat64).cumsum(1);  // [R, n]
    const torch::Tensor sum = below.narrow(1, n - 1, 1);
    torch::Tensor value =
        (below <= sum * noise.narrow(1, i, 1)).sum(1, /*keepdim=*/true);
    value = last.defined() ? torch::min(value, last) : value.clamp_max_(n - 1);
    add((relative.gather(1, value).to(torch::kFloat64) - sum.log()).squeeze(1));
    chosen.push_back(value);
    first += n;
  }
  if (K > 0) action.discrete = K == 1 ? chosen[0] : torch::cat(chosen, 1);
  if (continuous_ > 0) {
    const double half_log_2pi = 0.5 * std::log(2 * std::numbers::pi);
    const torch::Tensor z = noise.narrow(1, K, continuous_);
    const torch::Tensor deviation = log_std.exp();
    action.continuous = outputs.narrow(1, first, continuous_) +
                        (z * deviation).to(torch::kFloat32);
    add((z.square() * -0.5 - log_std - half_log_2pi).sum(1));
  }
  return {action, log_prob.to(torch::kFloat32)};
}

LogProbAndEntropy ActionHead::Evaluate(const torch::Tensor& outputs,
                                       const torch::Tensor& log_std,
                                       const torch::Tensor& mask,
                                       const Actions& action) const {
  LogProbAndEntropy all;
  const auto add = [&](const LogProbAndEntropy& one) {
    all.log_prob =
        all.log_prob.defined() ? all.log_prob + one.log_prob : one.log_prob;
    all.entropy =
        all.entropy.defined() ? all.entropy + one.entropy : one.entropy;
  };
  const auto columns = [&](const torch::Tensor& t, int64_t first, int64_t n) {
    return n == t.size(1) ? t : t.narrow(1, first, n);
  };
  int64_t first = 0;
  for (size_t i = 0; i < num_values_.size(); ++i) {
    const int64_t n = num_values_[i];
    const torch::Tensor logits = columns(outputs, first, n);
    const torch::Tensor taken =
        columns(action.discrete, static_cast<int64_t>(i), 1);
    add(mask.defined()
            ? MaskedCategorical(logits, columns(mask, first, n), taken)
            : Categorical(logits, taken));
    first += n;
  }
  if (continuous_ > 0) {
    add(Gaussian(columns(outputs, first, continuous_), log_std,
                 action.continuous));
  }
  return all;
}

}  // namespace flotilla
