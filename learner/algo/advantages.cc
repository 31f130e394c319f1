#include "learner/algo/advantages.h"

#include "learner/device/host.h"
#include "learner/kernels/gae.h"
#include "learner/kernels/vtrace.h"

namespace flotilla {
namespace {

// x(t) + c(t) x(t + 1) + c(t) c(t + 1) x(t + 2) + ..., for x and c [T, B]: every
// round doubles how many terms are summed. (Hillis and Steele 1986)
torch::Tensor SumBackwards(torch::Tensor x, torch::Tensor c) {
  const int64_t T = x.size(0);
  for (int64_t d = 1; d < T; d *= 2) {
    const torch::Tensor sum = torch::addcmul(
        x.narrow(0, 0, T - d), c.narrow(0, 0, T - d), x.narrow(0, d, T - d));
    x = torch::cat({sum, x.narrow(0, T - d, d)});
    // Later rows have all of their terms.
    const int64_t left = T - 2 * d;
    if (left > 0) c = c.narrow(0, 0, left) * c.narrow(0, d, left);
  }
  return x;
}

// The parts that both kinds of estimate are made of, on a device, in float64 and
// [T, B].
struct Parts {
  torch::Tensor valid;  // bool
  torch::Tensor value;  // v(t), 0 where not valid
  torch::Tensor
      delta;  // reward(t) + discount next(t) - v(t), 0 where not valid
  torch::Tensor trace;  // discount lambda where the sum goes on, else 0
};

Parts PartsOf(const Rollout& r, const torch::Tensor& all_values,
              const torch::Tensor& terminated, double discount, double lambda) {
  const int64_t T = r.length;
  Parts p;
  p.valid = r.valid != 0;
  const torch::Tensor zero =
      torch::zeros({}, p.valid.options().dtype(torch::kFloat64));
  const torch::Tensor values = all_values.to(torch::kFloat64);
  const torch::Tensor terminal = terminated != 0, limited = r.truncated != 0;
  const torch::Tensor next =
      torch::where(terminal, zero,
                   torch::where(limited, r.bootstrap_value.to(torch::kFloat64),
                                values.narrow(0, 1, T)));
  // What is not valid may be anything, also not a number.
  p.value = torch::where(p.valid, values.narrow(0, 0, T), zero);
  p.delta = torch::where(
      p.valid, r.reward.to(torch::kFloat64) + discount * next - p.value, zero);
  const torch::Tensor goes_on =
      terminal.logical_or(limited).logical_not_().logical_and_(p.valid);
  goes_on.narrow(0, 0, T - 1).logical_and_(p.valid.narrow(0, 1, T - 1));
  goes_on[T - 1].zero_();
  p.trace = goes_on.to(torch::kFloat64).mul_(discount * lambda);
  return p;
}

}  // namespace

void EstimateGae(const Rollout& r, const torch::Tensor& terminated,
                 const GaeNumbers& numbers, torch::Tensor* advantage,
                 torch::Tensor* returns) {
  if (!r.valid.is_cpu()) {
    torch::NoGradGuard no_grad;
    const Parts p =
        PartsOf(r, r.value, terminated, numbers.discount, numbers.lambda);
    const torch::Tensor sum = SumBackwards(p.delta, p.trace);
    advantage->copy_(sum);
    returns->copy_(sum + p.value);
    return;
  }
  GaeInput input;
  input.length = r.length;
  input.rows = r.rows;
  input.reward = Host<float>(r.reward);
  input.value = Host<float>(r.value);
  input.terminated = Host<uint8_t>(terminated);
  input.truncated = Host<uint8_t>(r.truncated);
  input.bootstrap_value = Host<float>(r.bootstrap_value);
  input.valid = Host<uint8_t>(r.valid);
  input.discount = static_cast<float>(numbers.discount);
  input.lambda = static_cast<float>(numbers.lambda);
  GeneralizedAdvantages(input, Host<float>(*advantage), Host<float>(*returns));
}

void EstimateVtrace(const Rollout& r, const torch::Tensor& value,
                    const torch::Tensor& log_prob,
                    const torch::Tensor& terminated,
                    const VtraceNumbers& numbers, torch::Tensor* target,
                    torch::Tensor* advantage) {
  if (!r.valid.is_cpu()) {
    torch::NoGradGuard no_grad;
    const Parts p =
        PartsOf(r, value, terminated, numbers.discount, numbers.lambda);
    const torch::Tensor ratio = (log_prob - r.log_prob)
                                    .to(torch::kFloat64)
                                    .exp()
                                    .masked_fill(p.valid.logical_not(), 0);
    const torch::Tensor error =
        SumBackwards(ratio.clamp_max(numbers.rho_clip) * p.delta,
                     ratio.clamp_max(numbers.c_clip) * p.trace);
    // trace(t) (target(t + 1) - value(t + 1)); the last row's trace is 0.
    const torch::Tensor later = p.trace * error.roll(-1, 0);
    target->copy_(error + p.value);
    advantage->copy_(ratio.clamp_max(numbers.pg_rho_clip) * (p.delta + later));
    return;
  }
  VtraceInput input;
  input.length = r.length;
  input.rows = r.rows;
  input.reward = Host<float>(r.reward);
  input.value = Host<float>(value);
  input.log_prob = Host<float>(log_prob);
  input.actor_log_prob = Host<float>(r.log_prob);
  input.terminated = Host<uint8_t>(terminated);
  input.truncated = Host<uint8_t>(r.truncated);
  input.bootstrap_value = Host<float>(r.bootstrap_value);
  input.valid = Host<uint8_t>(r.valid);
  input.discount = static_cast<float>(numbers.discount);
  input.lambda = static_cast<float>(numbers.lambda);
  input.rho_clip = static_cast<float>(numbers.rho_clip);
  input.c_clip = static_cast<float>(numbers.c_clip);
  input.pg_rho_clip = static_cast<float>(numbers.pg_rho_clip);
  Vtrace(input, Host<float>(*target), Host<float>(*advantage));
}

}  // namespace flotilla
