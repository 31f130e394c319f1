#include "learner/algo/gradient_buckets.h"

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

GradientBuckets::GradientBuckets(const FlatParameters& net,
                                 int64_t bucket_bytes) {
  int64_t end = net.size(), begin = end;
  for (auto leaf = net.leaf.rbegin(); leaf != net.leaf.rend(); ++leaf) {
    if (begin == end) parameters_.push_back(0);
    const size_t bucket = parameters_.size() - 1;
    ++parameters_[bucket];
    begin -= leaf->numel();
    const auto node = torch::autograd::impl::grad_accumulator(*leaf);
    hook_.push_back({node, node->add_post_hook(std::make_unique<GradientHook>(
                               [this, bucket] { HasGradient(bucket); }))});
    const torch::Tensor slice = net.gradients.narrow(0, begin, end - begin);
    if (begin > 0 && static_cast<int64_t>(slice.nbytes()) < bucket_bytes) {
      continue;
    }
    bucket_.push_back(slice);
    end = begin;
  }
  CHECK_EQ(begin, 0);
  if (!net.device().is_cpu()) {
    stream_ = c10::impl::VirtualGuardImpl(net.device().type())
                  .getStreamFromGlobalPool(net.device());
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

void GradientBuckets::Begin(Collective* collective) {
  if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
  MutexLock lock(&mu_);
  CHECK(collective_ == nullptr) << "a Begin without a Finish";
  collective_ = collective;
  missing_ = parameters_;
}

void GradientBuckets::HasGradient(size_t bucket) {
  MutexLock lock(&mu_);
  if (collective_ == nullptr) return;  // a backward pass before the last
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
    {
      MutexLock lock(&mu_);
      while (!ending_ && summed_ == complete_) lock.Wait(&changed_);
      if (summed_ == complete_) return;
      next = summed_;
      collective = error_.ok() ? collective_ : nullptr;
      if (stream_.has_value()) computed_[next].block(*stream_);
    }
    absl::Status status;
    if (collective != nullptr) {
      status = collective->AllReduceSum(bucket_[next]);
    }
    MutexLock lock(&mu_);
    error_.Update(status);
    ++summed_;
    changed_.notify_all();
  }
}

absl::Status GradientBuckets::Finish(Collective* collective) {
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
    RETURN_IF_ERROR(collective->AllReduceSum(bucket_[next]));
  }
  return absl::OkStatus();
}

}  // namespace flotilla
