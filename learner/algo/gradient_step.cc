#include "learner/algo/gradient_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "learner/algo/muon.h"
#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/kernels/adam.h"
#include "services/base/status_macros.h"

namespace flotilla {

GradientStep::GradientStep(const FlatParameters& net,
                           const v1::OptimizerConfig& config,
                           const v1::DistributedConfig& distributed,
                           v1::Precision precision)
    : net_(net),
      tail_(net.gradient_message.narrow(0, net.size(), FlatParameters::kTail)),
      config_(config),
      by_ranks_(distributed.gradient_mean() == v1::BY_RANKS),
      type_(distributed.gradient_type()),
      bfloat16_(precision == v1::BF16),
      buckets_(distributed.gradients() == v1::BUCKETS
                   ? std::make_unique<GradientBuckets>(
                         net.leaf, net.gradients,
                         GradientBuckets::Options{
                             .bucket_bytes = distributed.bucket_bytes(),
                             .type = type_,
                             .has_gradient = nullptr})
                   : nullptr),
      moment1_(torch::zeros_like(net.parameters)),
      moment2_(torch::zeros_like(net.parameters)),
      step_(torch::zeros({1}, torch::kInt64)),
      later_(net.device().is_cpu() ? nullptr
                                   : std::make_unique<DeviceStep>(
                                         net, config, moment1_, moment2_)) {}

void GradientStep::Reconfigure(const v1::OptimizerConfig& config) {
  config_ = config;
  if (later_ != nullptr) later_->Reconfigure(config);
}

void GradientStep::BeforeLastBackward(Collective* collective, double samples) {
  if (buckets_ != nullptr && collective->has_group()) {
    buckets_->Begin(collective, Scale(samples));
  }
}

void GradientStep::MayFactor(size_t leaf, torch::Dtype dtype, int64_t rows) {
  // Rows of bfloat16 would be rounded once more, by what a rank's are scaled by.
  const bool exact = !by_ranks_ || dtype == torch::kFloat32;
  const bool may = buckets_ == nullptr && type_ == v1::GRADIENT_FLOAT32 &&
                   has_kernels() && exact;
  factors_.reset();
  if (may) factors_.emplace(net_, leaf, dtype, rows);
}

GradientFactors* GradientStep::BeginFactors(const Collective& collective) {
  factored_ = factors_.has_value() && collective.on_one_host() &&
              factors_->Pays(collective.world_size());
  if (!factored_) return nullptr;
  factors_->Begin(collective.rank(), collective.world_size());
  return &*factors_;
}

double GradientStep::Scale(double samples) const {
  return by_ranks_ && samples > 0 ? 1 / samples : 1;
}

// The gradients and the tail behind them, over all ranks. Kernels want `squares` of them,
// which are taken where each part is summed.
absl::Status GradientStep::Sum(Collective* collective, double samples,
                               std::optional<double>* squares) {
  const double scale = Scale(samples);
  if (buckets_ != nullptr) {
    RETURN_IF_ERROR(buckets_->Finish(collective, scale));
    return collective->AllReduceSum(tail_);
  }
  torch::Tensor gradients = net_.gradients;
  ForGradients([&](int64_t first, int64_t count) {
    if (scale != 1) gradients.narrow(0, first, count).mul_(scale);
  });
  if (factored_) {
    const int64_t end = factors_->first() + factors_->size();
    *squares = 0;
    RETURN_IF_ERROR(SumPart(collective, 0, factors_->first(), &**squares));
    RETURN_IF_ERROR(GatherFactors(collective, scale));
    RETURN_IF_ERROR(SumPart(collective, end,
                            net_.gradient_message.numel() - end, &**squares));
    // What one rank makes of them is what all step by.
    const torch::Tensor all = torch::empty({1}, torch::kFloat64);
    *Host<double>(all) = **squares + factors_->SumOfSquares();
    RETURN_IF_ERROR(collective->Broadcast(all, /*root=*/0));
    *squares = *Host<double>(all);
    return absl::OkStatus();
  }
  if (type_ == v1::GRADIENT_FLOAT32 && has_kernels()) {
    *squares = 0;
    return SumPart(collective, 0, net_.gradient_message.numel(), &**squares);
  }
  if (type_ == v1::GRADIENT_FLOAT32) {
    return collective->AllReduceSum(net_.gradient_message);
  }
  RETURN_IF_ERROR(AllReduceGradients(gradients, type_, collective));
  return collective->AllReduceSum(tail_);
}

absl::Status GradientStep::SumPart(Collective* collective, int64_t first,
                                   int64_t count, double* squares) {
  static_assert(Collective::kSummedPart == kSquaresPart);
  const float* const gradient = Host<float>(net_.gradients) + first;
  const int64_t gradients = net_.size() - first;  // without the tail
  double sum = 0;
  const absl::Status status = collective->AllReduceSumByParts(
      net_.gradient_message.narrow(0, first, count),
      [&](int64_t at, int64_t size) {
        // The tail may be all there is.
        sum += SumOfSquares(gradient + at, std::min(size, gradients - at));
      });
  *squares += sum;
  return status;
}

absl::Status GradientStep::GatherFactors(Collective* collective, double scale) {
  if (scale != 1) factors_->from_y(collective->rank()).mul_(scale);
  for (int rank = 0; rank < collective->world_size(); ++rank) {
    RETURN_IF_ERROR(collective->Broadcast(factors_->x(rank), rank));
    RETURN_IF_ERROR(collective->Broadcast(factors_->from_y(rank), rank));
  }
  return absl::OkStatus();
}

template <typename Use>
void GradientStep::ForGradients(Use use) const {
  if (!factored_) return use(0, net_.size());
  const int64_t end = factors_->first() + factors_->size();
  use(0, factors_->first());
  use(end, net_.size() - end);
}

absl::StatusOr<GradientStep::Result> GradientStep::Apply(Collective* collective,
                                                         double samples,
                                                         double extra,
                                                         double learning_rate) {
  torch::NoGradGuard no_grad;
  const int64_t P = net_.size();
  const absl::Cleanup done = [this] { factored_ = false; };
  Result result{.samples = samples, .extra = extra};
  double divisor = samples;
  std::optional<double> squares;
  if (collective->has_group()) {
    const float mine[] = {static_cast<float>(samples),
                          static_cast<float>(extra), samples > 0 ? 1.0f : 0.0f};
    static_assert(std::size(mine) == FlatParameters::kTail);
    if (tail_.is_cpu()) {
      std::copy(std::begin(mine), std::end(mine), Host<float>(tail_));
    } else {
      tail_.copy_(ToDevice(torch::tensor(torch::ArrayRef<float>(mine)),
                           tail_.device()));
    }
    const auto begin = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(Sum(collective, samples, &squares));
    result.sync_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
            .count();
    result.sync_bytes =
        static_cast<int64_t>(tail_.nbytes()) +
        (factored_
             ? GradientBytes(P - factors_->size(), type_) + factors_->bytes()
             : GradientBytes(P, type_));
    const torch::Tensor summed = ToHost(tail_);
    result.samples = Host<float>(summed)[0];
    result.extra = Host<float>(summed)[1];
    divisor = by_ranks_ ? Host<float>(summed)[2] : result.samples;
  }
  if (result.samples == 0) return result;

  result.grad_norm = has_kernels()
                         ? StepWithKernels(divisor, learning_rate, squares)
                         : StepWithTorch(divisor, learning_rate);
  if (!std::isfinite(result.grad_norm)) return NotFinite(result.grad_norm);
  return result;
}

void GradientStep::Begin() {
  later_->Begin(count());
  last_ = torch::zeros({1}, moment1_.options());
  last_samples_ = 0;
  sync_seconds_ = 0;
  sync_bytes_ = 0;
}

absl::Status GradientStep::ApplyLater(Collective* collective, double samples,
                                      const torch::Tensor& extra,
                                      double learning_rate) {
  torch::NoGradGuard no_grad;
  later_->SetLearningRate(learning_rate);
  if (!collective->has_group()) {
    AppliedAgain(samples, extra);
    if (samples > 0) later_->Step(samples);
    return absl::OkStatus();
  }
  tail_.narrow(0, 0, 1).fill_(samples);
  tail_.narrow(0, 1, 1).copy_(extra);
  tail_.narrow(0, 2, 1).fill_(samples > 0 ? 1 : 0);
  const auto begin = std::chrono::steady_clock::now();
  std::optional<double> squares;
  RETURN_IF_ERROR(Sum(collective, samples, &squares));
  sync_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
  sync_bytes_ +=
      GradientBytes(net_.size(), type_) + static_cast<int64_t>(tail_.nbytes());
  last_ = tail_.narrow(0, 0, 2);
  later_->Step(tail_[by_ranks_ ? 2 : 0]);
  return absl::OkStatus();
}

GradientStep::Recorded GradientStep::MayRecord(
    const Collective& collective) const {
  // Alone nothing leaves, but what they hold on to adds gradients up on the stream
  // that they were made on, which is not the one that is recorded.
  if (buckets_ != nullptr) return Recorded::kNothing;
  if (collective.has_group() || config_.type() == v1::MUON) {
    return Recorded::kGradient;
  }
  return Recorded::kAll;
}

void GradientStep::SetLearningRate(double learning_rate) {
  torch::NoGradGuard no_grad;
  later_->SetLearningRate(learning_rate);
}

void GradientStep::AppliedAgain(double samples, const torch::Tensor& extra) {
  last_samples_ = samples;
  last_ = extra;
}

torch::Tensor GradientStep::Outcome() const {
  torch::Tensor last = last_.to(torch::kFloat64);
  if (last.numel() == 1) {
    last = torch::cat({torch::full({1}, last_samples_, last.options()), last});
  }
  return torch::cat({last, later_->Done()});
}

absl::StatusOr<GradientStep::Result> GradientStep::Finish(
    const double* outcome) {
  *Host<int64_t>(step_) += static_cast<int64_t>(outcome[3]);
  if (!std::isfinite(outcome[2])) return NotFinite(outcome[2]);
  return Result{.samples = outcome[0],
                .extra = outcome[1],
                .grad_norm = outcome[2],
                .sync_seconds = sync_seconds_,
                .sync_bytes = sync_bytes_};
}

double GradientStep::StepWithKernels(double divisor, double learning_rate,
                                     std::optional<double> squares) {
  AdamOptions options = AdamOptionsOf(config_);
  options.learning_rate = learning_rate;
  options.gradient_scale = 1.0 / divisor;
  AdamState state;
  state.size = net_.size();
  state.parameters = Host<float>(net_.parameters);
  state.first_moment = Host<float>(moment1_);
  state.second_moment = Host<float>(moment2_);
  state.step = *Host<int64_t>(step_);
  const float* const gradient = Host<float>(net_.gradients);
  if (!squares.has_value()) {
    squares = 0;
    ForGradients([&](int64_t first, int64_t count) {
      *squares += SumOfSquares(gradient + first, count);
    });
    if (factored_) *squares += factors_->SumOfSquares();
  }
  const auto [done, factors] = BeginAdamStep(options, *squares, &state);
  *Host<int64_t>(step_) = state.step;
  const auto step = [&](int64_t first, int64_t count, const float* of) {
    AdamStepPart(factors, of, first, count, state);
  };
  if (done.applied) {
    ForGradients([&](int64_t first, int64_t count) {
      step(first, count, gradient + first);
    });
    if (factored_) factors_->ForProduct(step);
  }
  // Beyond what float32 can clip it counts as infinite.
  return done.applied || std::isnan(done.norm)
             ? done.norm
             : std::numeric_limits<double>::infinity();
}

double GradientStep::StepWithTorch(double divisor, double learning_rate) {
  torch::Tensor gradient = net_.gradients;
  gradient.div_(divisor);
  const double norm = gradient.norm().item<double>();
  if (!std::isfinite(norm)) return norm;
  if (config_.max_grad_norm() > 0) {
    gradient.mul_(std::min(1.0, config_.max_grad_norm() / (norm + 1e-6)));
  }
  ++*Host<int64_t>(step_);
  if (config_.type() == v1::MUON) {
    MuonStep(net_, config_.beta1(), learning_rate, bfloat16_, &moment1_);
  } else {
    AdamWithTorch(gradient, learning_rate);
  }
  return norm;
}

// The same arithmetic as AdamStep.
void GradientStep::AdamWithTorch(const torch::Tensor& gradient,
                                 double learning_rate) {
  const bool rmsprop = config_.type() == v1::RMSPROP;
  const double beta1 = rmsprop ? 0 : config_.beta1();
  const double step = static_cast<double>(*Host<int64_t>(step_));
  const auto correction = [&](double beta) {
    return rmsprop ? 1.0 : 1 - std::pow(beta, step);
  };
  moment1_.lerp_(gradient, 1 - beta1);
  moment2_.mul_(config_.beta2())
      .addcmul_(gradient, gradient, 1 - config_.beta2());
  net_.parameters.addcdiv_(moment1_,
                           moment2_.sqrt()
                               .div_(std::sqrt(correction(config_.beta2())))
                               .add_(config_.epsilon()),
                           -learning_rate / correction(beta1));
}

absl::Status GradientStep::NotFinite(double norm) const {
  return absl::InternalError(absl::StrCat(
      "the gradient is not finite (norm ", norm, ") after ", count(),
      " gradient steps; the weights are as they were before"));
}

std::vector<NamedTensor> GradientStep::State() {
  switch (config_.type()) {
    case v1::RMSPROP:
      return {{"rmsprop.square_avg", moment2_}, {"rmsprop.step", step_}};
    case v1::MUON:
      return {{"muon.momentum_buffer", moment1_}, {"muon.step", step_}};
    case v1::ADAM:
      break;
  }
  return {{"adam.exp_avg", moment1_},
          {"adam.exp_avg_sq", moment2_},
          {"adam.step", step_}};
}

}  // namespace flotilla
