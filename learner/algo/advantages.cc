#include "learner/algo/advantages.h"

#include "learner/device/host.h"
#include "learner/kernels/gae.h"
#include "learner/kernels/vtrace.h"

namespace flotilla {
namespace {

TraceTensors OnDevice(const Rollout& r, const torch::Tensor& value,
                      const torch::Tensor& terminated) {
  return {r.reward, value, terminated, r.truncated, r.bootstrap_value, r.valid};
}

}  // namespace

void EstimateGae(const Rollout& r, const torch::Tensor& terminated,
                 const GaeNumbers& numbers, torch::Tensor* advantage,
                 torch::Tensor* returns) {
  if (!r.valid.is_cpu()) {
    GaeOperator(OnDevice(r, r.value, terminated), numbers.discount,
                numbers.lambda, *advantage, *returns);
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
    VtraceOperator(OnDevice(r, value, terminated), log_prob, r.log_prob,
                   numbers, *target, *advantage);
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
