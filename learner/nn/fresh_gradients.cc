#include "learner/nn/fresh_gradients.h"

#include <glog/logging.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>

#include "services/base/mutex.h"

namespace flotilla {
namespace {

using torch::Tensor;

constexpr int64_t kLarge = 1 << 16;  // numbers, whose zeros take time

struct Awaited {
  Mutex mu;
  // By weight: where its gradient goes, or what it is a product of.
  std::unordered_map<const void*, Tensor> gradient ABSL_GUARDED_BY(mu);
  std::unordered_map<const void*, GradientFactors*> factors ABSL_GUARDED_BY(mu);
};

Awaited& AllAwaited() {
  static Awaited& all = *new Awaited;
  return all;
}

// Whether somebody wants to see each gradient in its place as soon as it is there
// (gradient_buckets.h).
bool IsWatched(const Tensor& leaf) {
  const auto node = torch::autograd::impl::try_get_grad_accumulator(leaf);
  return node != nullptr && !node->post_hooks().empty();
}

// Whether `tensor` is what `all` has from number `at` on.
bool IsAt(const Tensor& tensor, const Tensor& all, int64_t at) {
  return tensor.defined() && tensor.layout() == at::kStrided &&
         tensor.is_contiguous() && tensor.is_alias_of(all) &&
         tensor.storage_offset() == all.storage_offset() + at;
}

}  // namespace

FreshGradients::FreshGradients(const FlatParameters& net,
                               GradientFactors* factors) {
  torch::NoGradGuard no_grad;
  const Tensor& all = net.gradients;
  int64_t zero = 0, at = 0;  // zeros are due from `zero` on
  if (net.device().is_cpu()) {
    for (const Tensor& leaf : net.leaf) {
      const int64_t size = leaf.numel();
      const Tensor place = leaf.grad();
      const bool factored =
          factors != nullptr && leaf.is_same(factors->weight());
      // A weight that two modules share is listed twice, and has one place.
      if ((size >= kLarge || factored) && IsAt(place, all, at) &&
          !IsWatched(leaf)) {
        all.narrow(0, zero, at - zero).zero_();
        zero = at + size;
        large_.push_back({leaf, place, factored ? factors : nullptr});
        leaf.mutable_grad() = Tensor();
      }
      at += size;
    }
  }
  all.narrow(0, zero, all.numel() - zero).zero_();
  CHECK(factors == nullptr ||
        std::ranges::any_of(large_, [&](const Weight& weight) {
          return weight.factors != nullptr;
        }));
  if (large_.empty()) return;
  Awaited& awaited = AllAwaited();
  MutexLock lock(&awaited.mu);
  for (const Weight& weight : large_) {
    const void* const key = weight.leaf.unsafeGetTensorImpl();
    if (weight.factors != nullptr) {
      awaited.factors[key] = weight.factors;
    } else {
      awaited.gradient[key] = weight.place;
    }
  }
}

FreshGradients::~FreshGradients() {
  if (large_.empty()) return;
  std::vector<GradientFactors*> unused;
  {
    Awaited& awaited = AllAwaited();
    MutexLock lock(&awaited.mu);
    for (const Weight& weight : large_) {
      const void* const key = weight.leaf.unsafeGetTensorImpl();
      awaited.gradient.erase(key);
      if (awaited.factors.erase(key) > 0) unused.push_back(weight.factors);
    }
  }
  for (GradientFactors* const factors : unused) factors->SetNothing();
  Settle();
  for (const Weight& weight : large_) {
    Tensor& gradient = weight.leaf.mutable_grad();
    if (weight.factors != nullptr) {
      CHECK(!gradient.defined()) << "used twice, or by another's operation";
    } else if (!gradient.defined()) {  // nothing depends on it
      weight.place.zero_();
    }
    gradient = weight.place;
  }
}

void FreshGradients::Settle() const {
  torch::NoGradGuard no_grad;
  for (const Weight& weight : large_) {
    Tensor& gradient = weight.leaf.mutable_grad();
    if (!gradient.defined() || IsAt(gradient, weight.place, 0)) continue;
    weight.place.copy_(gradient.layout() == at::kStrided ? gradient
                                                         : gradient.to_dense());
    gradient = weight.place;
  }
}

Tensor FreshGradients::Take(const Tensor& weight) {
  Awaited& all = AllAwaited();
  MutexLock lock(&all.mu);
  const auto found = all.gradient.find(weight.unsafeGetTensorImpl());
  if (found == all.gradient.end()) return {};
  Tensor gradient = std::move(found->second);
  all.gradient.erase(found);
  weight.mutable_grad() = gradient;
  return gradient;
}

GradientFactors* FreshGradients::TakeFactors(const Tensor& weight) {
  Awaited& all = AllAwaited();
  MutexLock lock(&all.mu);
  const auto found = all.factors.find(weight.unsafeGetTensorImpl());
  if (found == all.factors.end()) return nullptr;
  GradientFactors* const factors = found->second;
  all.factors.erase(found);
  return factors;
}

}  // namespace flotilla
