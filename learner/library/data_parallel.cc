#include "learner/library/data_parallel.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/collective/gradient_buckets.h"
#include "learner/device/host.h"
#include "services/base/status_macros.h"

namespace flotilla {

// The trained parameters [N] and, in one buffer, what of them travels.
class DataParallel::State {
 public:
  State(std::vector<torch::Tensor> parameters, Collective* collective,
        const DataParallelOptions& options)
      : parameters_(std::move(parameters)),
        collective_(collective),
        type_(options.gradient_type) {
    for (const torch::Tensor& p : parameters_) size_ += p.numel();
    const auto count = static_cast<int64_t>(parameters_.size());
    message_ = torch::zeros({size_ + count}, parameters_.front().options());
    gradients_ = message_.narrow(0, 0, size_);
    weights_ = message_.narrow(0, size_, count);
    int64_t at = 0;
    for (const torch::Tensor& p : parameters_) {
      slice_.push_back(gradients_.narrow(0, at, p.numel()).view(p.sizes()));
      at += p.numel();
    }
    if (options.bucket_bytes > 0) {
      buckets_ = std::make_unique<GradientBuckets>(
          parameters_, gradients_,
          GradientBuckets::Options{.bucket_bytes = options.bucket_bytes,
                                   .type = type_,
                                   .has_gradient = [this](size_t i) {
                                     if (begun_with_ > 0) Take(i);
                                   }});
    }
  }

  void BeforeLastBackward(double samples) {
    if (buckets_ == nullptr) return;
    Clear();
    begun_with_ = samples;
    buckets_->Begin(collective_, samples);
  }

  absl::Status AverageGradients(double samples);
  const Traffic& traffic() const { return traffic_; }

 private:
  void Clear() {
    torch::NoGradGuard no_grad;
    message_.zero_();
    taken_.assign(parameters_.size(), false);
  }

  void Take(size_t i) {
    torch::NoGradGuard no_grad;
    slice_[i].copy_(parameters_[i].grad());
    taken_[i] = true;
  }

  absl::Status Sum(double samples);

  const std::vector<torch::Tensor> parameters_;
  Collective* const collective_;
  const v1::GradientType type_;
  int64_t size_ = 0;         // P
  torch::Tensor message_;    // [P + N]: both of these
  torch::Tensor gradients_;  // [P]
  torch::Tensor weights_;    // [N]  samples of the ranks that have it
  std::vector<torch::Tensor>
      slice_;                // of gradients_, as parameters_ are shaped
  std::vector<char> taken_;  // its gradient is in its slice
  std::optional<double> begun_with_;  // samples
  Traffic traffic_;
  std::unique_ptr<GradientBuckets> buckets_;  // last: it calls Take
};

absl::Status DataParallel::State::AverageGradients(double samples) {
  torch::NoGradGuard no_grad;
  if (begun_with_ && *begun_with_ != samples) {
    return absl::InvalidArgumentError(
        absl::StrCat("BeforeLastBackward was given ", *begun_with_,
                     " samples, AverageGradients ", samples));
  }
  if (!begun_with_) Clear();
  std::vector<float> weight(parameters_.size(), 0);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (samples <= 0 || !parameters_[i].grad().defined()) continue;
    if (!taken_[i]) Take(i);
    weight[i] = static_cast<float>(samples);
  }
  weights_.copy_(torch::tensor(weight));

  const auto began = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(Sum(samples));
  const torch::Tensor all = weights_.to(torch::kCPU);  // waits for a GPU
  traffic_.seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began)
          .count();
  traffic_.bytes +=
      GradientBytes(size_, type_) + static_cast<int64_t>(weights_.nbytes());
  ++traffic_.calls;

  for (size_t i = 0; i < parameters_.size(); ++i) {
    torch::Tensor& gradient = parameters_[i].mutable_grad();
    const float total = Host<float>(all)[i];
    if (total == 0) {
      gradient.reset();
    } else if (gradient.defined()) {
      gradient.copy_(slice_[i]).div_(total);
    } else {
      gradient = slice_[i] / total;
    }
  }
  return absl::OkStatus();
}

absl::Status DataParallel::State::Sum(double samples) {
  begun_with_.reset();
  if (buckets_ != nullptr) {
    RETURN_IF_ERROR(buckets_->Finish(collective_, samples));
    return collective_->AllReduceSum(weights_);
  }
  gradients_.mul_(samples);
  if (type_ == v1::GRADIENT_FLOAT32) return collective_->AllReduceSum(message_);
  RETURN_IF_ERROR(AllReduceGradients(gradients_, type_, collective_));
  return collective_->AllReduceSum(weights_);
}

absl::StatusOr<DataParallel> DataParallel::Wrap(torch::nn::Module* module,
                                                Collective* collective,
                                                DataParallelOptions options) {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> trained;
  for (const auto& parameter : module->named_parameters()) {
    const torch::Tensor& tensor = parameter.value();
    if (!tensor.requires_grad()) continue;
    if (tensor.scalar_type() != torch::kFloat32 ||
        (!trained.empty() && tensor.device() != trained.front().device())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", parameter.key(), " is ",
          c10::toString(tensor.scalar_type()), " on ", tensor.device().str(),
          "; want float32, all on one device"));
    }
    trained.push_back(tensor);
  }
  if (trained.empty()) {
    return absl::InvalidArgumentError("the module has no parameter to train");
  }
  std::vector<torch::Tensor> state = module->parameters();
  for (const torch::Tensor& buffer : module->buffers()) state.push_back(buffer);
  for (torch::Tensor& tensor : state) {
    const torch::Tensor whole = tensor.contiguous();
    RETURN_IF_ERROR(collective->Broadcast(whole, /*root=*/0));
    if (!whole.is_same(tensor)) tensor.copy_(whole);
  }
  return DataParallel(
      std::make_unique<State>(std::move(trained), collective, options));
}

DataParallel::DataParallel(std::unique_ptr<State> state)
    : state_(std::move(state)) {}
DataParallel::~DataParallel() = default;
DataParallel::DataParallel(DataParallel&&) noexcept = default;
DataParallel& DataParallel::operator=(DataParallel&&) noexcept = default;

void DataParallel::BeforeLastBackward(double samples) {
  state_->BeforeLastBackward(samples);
}

absl::Status DataParallel::AverageGradients(double samples) {
  return state_->AverageGradients(samples);
}

const DataParallel::Traffic& DataParallel::traffic() const {
  return state_->traffic();
}

}  // namespace flotilla
