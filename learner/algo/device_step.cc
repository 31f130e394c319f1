#include "learner/algo/device_step.h"

#include "learner/algo/muon.h"
#include "learner/cuda/operators.h"

namespace flotilla {

AdamOptions AdamOptionsOf(const v1::OptimizerConfig& config) {
  const bool rmsprop = config.type() == v1::RMSPROP;
  AdamOptions options;
  options.beta1 = rmsprop ? 0 : config.beta1();
  options.beta2 = config.beta2();
  options.epsilon = config.epsilon();
  options.max_grad_norm = config.max_grad_norm();
  options.correct_bias = !rmsprop;
  return options;
}

DeviceStep::DeviceStep(const FlatParameters& net,
                       const v1::OptimizerConfig& config,
                       const torch::Tensor& moment1,
                       const torch::Tensor& moment2)
    : net_(net), config_(config), moment1_(moment1), moment2_(moment2) {
  const auto options = torch::device(net.device());
  done_ = torch::zeros({2}, options.dtype(torch::kFloat64));
  count_ = torch::zeros({1}, options.dtype(torch::kFloat64));
  learning_rate_ = torch::zeros({1}, options.dtype(torch::kFloat64));
}

void DeviceStep::Begin(int64_t count) {
  done_.zero_();
  count_.fill_(count);
}

void DeviceStep::SetLearningRate(double learning_rate) {
  if (learning_rate == host_learning_rate_) return;
  learning_rate_.fill_(learning_rate);
  host_learning_rate_ = learning_rate;
}

void DeviceStep::Step(double divisor) { Take({}, divisor); }

void DeviceStep::Step(const torch::Tensor& divisor) { Take(divisor, 1); }

void DeviceStep::Take(const torch::Tensor& divisor, double host_divisor) {
  torch::NoGradGuard no_grad;
  if (config_.type() == v1::MUON) {
    return TakeMuon(divisor.defined() ? divisor
                                      : torch::full({}, host_divisor,
                                                    net_.gradients.options()));
  }
  AdamOperator({.gradient = net_.gradients,
                .parameters = net_.parameters,
                .moment1 = moment1_,
                .moment2 = moment2_,
                .done = done_,
                .count = count_,
                .learning_rate = learning_rate_,
                .divisor = divisor,
                .host_divisor = host_divisor},
               AdamOptionsOf(config_));
}

// The gradients over the divisor, clipped: a step, which is taken back if it was
// not to be.
void DeviceStep::TakeMuon(const torch::Tensor& divisor) {
  const torch::Tensor by = divisor.clamp_min(1);
  const torch::Tensor norm = torch::linalg_vector_norm(net_.gradients);
  const torch::Tensor norms = done_[0];
  norms.add_(norm / by);
  // A sum that is not finite stays so, and that minus itself is no number.
  const torch::Tensor skip = (norms - norms).ne(0).logical_or_(divisor.eq(0));
  const torch::Tensor taken = skip.logical_not().to(torch::kFloat64);
  done_[1].add_(taken);
  count_.add_(taken);
  const double most = config_.max_grad_norm();
  const torch::Tensor scale =
      most > 0 ? torch::max(norm.add(by, 1e-6).mul_(1 / most), by) : by;
  torch::Tensor parameters = net_.parameters, gradient = net_.gradients;
  const torch::Tensor before = parameters.clone(), buffer = moment1_.clone();
  gradient.div_(scale);
  MuonStep(net_, config_.beta1(), host_learning_rate_, /*bfloat16=*/false,
           &moment1_);
  parameters.copy_(torch::where(skip, before, parameters));
  moment1_.copy_(torch::where(skip, buffer, moment1_));
}

}  // namespace flotilla
