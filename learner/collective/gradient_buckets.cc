#include "learner/collective/gradient_buckets.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <functional>
#include <utility>

#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using Tensors = std::vector<torch::Tensor>;

// Called by autograd when a parameter's gradient has been added up.
class GradientHook : public torch::autograd::FunctionPostHook {
 public:
  explicit GradientHook(std::function<void()> call) : call_(std::move(call)) {}

  Tensors operator()(const Tensors& outputs, const Tensors&) override {
    call_();
    return outputs;
  }

 private:
  const std::function<void()> call_;
};

}  // namespace

GradientBuckets::GradientBuckets(const std::vector<torch::Tensor>& leaf,
                                 const torch::Tensor& gradients,
                                 Options options)
    : options_(std::move(options)) {
  int64_t end = gradients.numel(), begin = end;
  for (size_t i = leaf.size(); i-- > 0;) {
    if (begin == end) parameters_.push_back(0);
    const size_t bucket = parameters_.size() - 1;
    ++parameters_[bucket];
    begin -= leaf[i].numel();
    const auto node = torch::autograd::impl::grad_accumulator(leaf[i]);
    hook_.push_back(
        {node, node->add_post_hook(std::make_unique<GradientHook>(
                   [this, i, bucket] { HasGradient(i, bucket); }))});
    const torch::Tensor slice = gradients.narrow(0, begin, end - begin);
    if (begin > 0 &&
        static_cast<int64_t>(slice.nbytes()) < options_.bucket_bytes) {
      continue;
    }
    bucket_.push_back(slice);
    end = begin;
  }
  CHECK_EQ(begin, 0);
  if (!gradients.device().is_cpu()) {
    stream_ = c10::impl::VirtualGuardImpl(gradients.device().type())
                  .getStreamFromGlobalPool(gradients.device());
  }
}

GradientBuckets::~GradientBuckets() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  for (const Hook& hook : hook_) hook.node->del_post_hook(hook.key);
}

void GradientBuckets::Begin(Collective* collective, double scale) {
  if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
  MutexLock lock(&mu_);
  CHECK(collective_ == nullptr) << "a Begin without a Finish";
  collective_ = collective;
  scale_ = scale;
  missing_ = parameters_;
}

void GradientBuckets::HasGradient(size_t leaf, size_t bucket) {
  MutexLock lock(&mu_);
  if (collective_ == nullptr) return;  // a backward pass before the last
  if (options_.has_gradient) options_.has_gradient(leaf);
  CHECK_GT(missing_[bucket], 0) << "two backward passes after a Begin";
  --missing_[bucket];
  for (; complete_ < missing_.size() && missing_[complete_] == 0; ++complete_) {
    if (stream_.has_value()) {
      const c10::impl::VirtualGuardImpl device(stream_->device_type());
      computed_.emplace_back(stream_->device_type());
      computed_.back().record(device.getStream(stream_->device()));
    }
    changed_.notify_all();
  }
}

void GradientBuckets::Work() {
  c10::OptionalStreamGuard guard;
  if (stream_.has_value()) guard.reset_stream(*stream_);
  for (;;) {
    Collective* collective;
    size_t next;
    double scale;
    {
      MutexLock lock(&mu_);
      while (!ending_ && summed_ == complete_) lock.Wait(&changed_);
      if (summed_ == complete_) return;
      next = summed_;
      scale = scale_;
      collective = error_.ok() ? collective_ : nullptr;
      if (stream_.has_value()) computed_[next].block(*stream_);
    }
    absl::Status status;
    if (collective != nullptr) {
      try {
        status = Sum(collective, next, scale);
      } catch (const std::exception& e) {  // Torch's
        status = absl::InternalError(e.what());
      }
    }
    MutexLock lock(&mu_);
    error_.Update(status);
    ++summed_;
    changed_.notify_all();
  }
}

absl::Status GradientBuckets::Sum(Collective* collective, size_t bucket,
                                  double scale) {
  torch::NoGradGuard no_grad;
  if (scale != 1) bucket_[bucket].mul_(scale);
  return AllReduceGradients(bucket_[bucket], options_.type, collective);
}

absl::Status GradientBuckets::Finish(Collective* collective, double scale) {
  absl::Status error;
  size_t next;
  {
    MutexLock lock(&mu_);
    while (summed_ < complete_) lock.Wait(&changed_);
    error = std::exchange(error_, absl::OkStatus());
    next = std::exchange(complete_, 0);
    summed_ = 0;
    collective_ = nullptr;
    computed_.clear();
  }
  if (next > 0 && stream_.has_value()) {
    c10::Event summed(stream_->device_type());
    summed.record(*stream_);
    summed.block(c10::impl::VirtualGuardImpl(stream_->device_type())
                     .getStream(stream_->device()));
  }
  RETURN_IF_ERROR(error);
  for (; next < bucket_.size(); ++next) {
    RETURN_IF_ERROR(Sum(collective, next, scale));
  }
  return absl::OkStatus();
}

}  // namespace flotilla
