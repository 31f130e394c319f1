#include "learner/algo/device_step.h"

#include <algorithm>

#include "learner/algo/muon.h"

namespace flotilla {
namespace {

// As many steps as change the correction of bias at all, in float32.
constexpr int64_t kMostCorrected = int64_t{1} << 22;

}  // namespace

DeviceStep::DeviceStep(const FlatParameters& net,
                       const v1::OptimizerConfig& config,
                       const torch::Tensor& moment1,
                       const torch::Tensor& moment2)
    : net_(net), config_(config), moment1_(moment1), moment2_(moment2) {
  const auto options = torch::device(net.device());
  done_ = torch::zeros({2}, options.dtype(torch::kFloat64));
  norms_ = done_[0];
  steps_ = done_[1];
  count_ = torch::zeros({1}, options);
  learning_rate_ = torch::zeros({}, options);
}

void DeviceStep::Begin(int64_t count) {
  done_.zero_();
  count_.fill_(std::min(count, kMostCorrected));
}

void DeviceStep::Step(double divisor, double learning_rate) {
  torch::NoGradGuard no_grad;
  const double most = config_.max_grad_norm();
  const torch::Tensor norm = torch::linalg_vector_norm(net_.gradients);
  norms_.add_(norm, 1 / divisor);
  // The gradient over the divisor, clipped: over the divisor alone where
  // (norm / divisor + 1e-6) / most is below 1.
  const torch::Tensor scale =
      most > 0 ? norm.add(1e-6 * divisor).mul_(1 / most).clamp_min_(divisor)
               : torch::full({}, divisor, norm.options());
  // A sum that is not finite stays so, and that minus itself is no number.
  Take(scale, (norms_ - norms_).ne(0), learning_rate);
}

void DeviceStep::Step(const torch::Tensor& divisor, double learning_rate) {
  torch::NoGradGuard no_grad;
  const double most = config_.max_grad_norm();
  const torch::Tensor by = divisor.clamp_min(1);
  const torch::Tensor norm = torch::linalg_vector_norm(net_.gradients);
  norms_.add_(norm / by);
  const torch::Tensor scale =
      most > 0 ? torch::max(norm.add(by, 1e-6).mul_(1 / most), by) : by;
  Take(scale, (norms_ - norms_).ne(0).logical_or_(divisor.eq(0)),
       learning_rate);
}

void DeviceStep::Take(const torch::Tensor& scale, const torch::Tensor& skip,
                      double learning_rate) {
  const torch::Tensor skipped = skip.to(torch::kFloat32);
  const torch::Tensor taken = 1 - skipped;
  steps_.add_(taken);
  count_.add_(taken);
  if (config_.type() != v1::ADAM) {
    return TakeUnfused(scale, skip, learning_rate);
  }
  if (learning_rate != last_learning_rate_) {
    learning_rate_.fill_(learning_rate);
    last_learning_rate_ = learning_rate;
  }
  at::_fused_adam_({net_.parameters}, {net_.gradients}, {moment1_}, {moment2_},
                   {}, {count_}, learning_rate_, config_.beta1(),
                   config_.beta2(), /*weight_decay=*/0, config_.epsilon(),
                   /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/scale,
                   /*found_inf=*/skipped);
}

// A step, which is taken back if it was not to be.
void DeviceStep::TakeUnfused(const torch::Tensor& scale,
                             const torch::Tensor& skip, double learning_rate) {
  torch::Tensor state[] = {net_.parameters, moment1_, moment2_};
  torch::Tensor before[3];
  for (int i = 0; i < 3; ++i) before[i] = state[i].clone();
  torch::Tensor gradient = net_.gradients;
  gradient.div_(scale);
  if (config_.type() == v1::MUON) {
    MuonStep(net_, config_.beta1(), learning_rate, &moment1_);
  } else {
    moment2_.mul_(config_.beta2())
        .addcmul_(gradient, gradient, 1 - config_.beta2());
    state[0].addcdiv_(gradient, moment2_.sqrt().add_(config_.epsilon()),
                      -learning_rate);
  }
  for (int i = 0; i < 3; ++i) {
    state[i].copy_(torch::where(skip, before[i], state[i]));
  }
}

}  // namespace flotilla
