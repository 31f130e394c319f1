#include "learner/nn/action_head.h"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "learner/cuda/operators.h"
#include "learner/cuda/sampling.h"
#include "learner/device/transfer.h"

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

}  // namespace

torch::Tensor ForbidValues(const torch::Tensor& logits,
                           const torch::Tensor& allowed) {
  const torch::Tensor none = allowed.sum(1, /*keepdim=*/true) == 0;
  return logits.masked_fill((allowed == 0).logical_and(none.logical_not()),
                            -std::numeric_limits<float>::infinity());
}

std::vector<int32_t> FirstLogits(const ActionSpace& space) {
  std::vector<int32_t> first = {0};
  for (const int64_t n : space.num_values) {
    first.push_back(first.back() + static_cast<int32_t>(n));
  }
  return first;
}

ActionHead::ActionHead(const ActionSpace& space, torch::Device device)
    : num_values_(space.num_values),
      logits_(space.logits()),
      continuous_(space.continuous),
      first_logit_(FirstLogits(space)),
      first_there_(
          ToDevice(torch::tensor(first_logit_, torch::kInt32), device)) {}

void ActionHead::Sample(const float* outputs, const float* log_std,
                        bool per_row, const uint8_t* mask, int64_t rows,
                        bool greedy, Draws* draws,
                        const DecisionOutput& out) const {
  SampleArgs args;
  args.rows = rows;
  args.choices = static_cast<int64_t>(num_values_.size());
  args.logits = logits_;
  args.continuous = continuous_;
  args.first_logit = first_logit_.data();
  args.policy = outputs;
  args.log_std = log_std;
  args.log_std_per_row = per_row;
  args.mask = mask;
  std::array<int64_t, 2> stream;
  if (!greedy) {
    stream = draws->Take(rows * (args.choices + continuous_));
    args.stream = stream.data();
  }
  args.discrete = out.discrete;
  args.action = out.continuous;
  args.log_prob = out.log_prob;
  const SampleKernel kernel{args};
  for (int64_t r = 0; r < rows; ++r) kernel.Row(r);
}

std::pair<Actions, torch::Tensor> ActionHead::SampleOnDevice(
    const torch::Tensor& outputs, const torch::Tensor& log_std,
    const torch::Tensor& mask, const torch::Tensor& stream) const {
  SampleInput in;
  in.policy = outputs.contiguous();
  if (log_std.defined()) in.log_std = log_std.contiguous();
  if (mask.defined()) in.mask = mask.contiguous();
  in.first_logit = first_there_;
  in.stream = stream;
  const SampledActions drawn = SampleActions(in);
  Actions action;
  if (!num_values_.empty()) action.discrete = drawn.discrete;
  if (continuous_ > 0) action.continuous = drawn.continuous;
  return {action, drawn.log_prob};
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
