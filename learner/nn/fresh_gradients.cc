#include "learner/nn/fresh_gradients.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_map>

#include "services/base/mutex.h"

namespace flotilla {
namespace {

using torch::Tensor;

constexpr int64_t kLarge = 1 << 16;  // numbers, whose zeros take time

struct Awaited {
  Mutex mu;
  // By weight: where its gradient goes.
  std::unordered_map<const void*, Tensor> gradient ABSL_GUARDED_BY(mu);
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

}  // namespace

FreshGradients::FreshGradients(const FlatParameters& net) : net_(net) {
  torch::NoGradGuard no_grad;
  if (!net.device().is_cpu()) {
    net_.gradients.zero_();
    return;
  }
  Awaited& all = AllAwaited();
  MutexLock lock(&all.mu);
  int64_t zero = 0, at = 0;  // zeros are due from `zero` on
  for (const Tensor& leaf : net_.leaf) {
    const int64_t size = leaf.numel();
    if (size >= kLarge && !IsWatched(leaf)) {
      net_.gradients.narrow(0, zero, at - zero).zero_();
      zero = at + size;
      all.gradient[leaf.unsafeGetTensorImpl()] = leaf.grad();
      leaf.mutable_grad() = Tensor();
    }
    at += size;
  }
  net_.gradients.narrow(0, zero, at - zero).zero_();
}

FreshGradients::~FreshGradients() {
  torch::NoGradGuard no_grad;
  Awaited& all = AllAwaited();
  MutexLock lock(&all.mu);
  int64_t at = 0;
  for (const Tensor& leaf : net_.leaf) {
    const Tensor place =
        net_.gradients.narrow(0, at, leaf.numel()).view(leaf.sizes());
    at += leaf.numel();
    all.gradient.erase(leaf.unsafeGetTensorImpl());
    Tensor& gradient = leaf.mutable_grad();
    if (gradient.defined() && gradient.is_alias_of(place)) continue;
    // Torch made it, or nothing depends on the weight.
    if (gradient.defined()) {
      place.copy_(gradient);
    } else {
      place.zero_();
    }
    gradient = place;
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

}  // namespace flotilla
