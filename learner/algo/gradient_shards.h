#ifndef FLOTILLA_LEARNER_ALGO_GRADIENT_SHARDS_H_
#define FLOTILLA_LEARNER_ALGO_GRADIENT_SHARDS_H_

#include <cstdint>
#include <vector>

#include "ATen/Parallel.h"
#include "learner/device/host.h"
#include "learner/torch.h"

namespace flotilla {

// The samples of a gradient by hand-written kernels, cut into as many shards as Torch
// has threads, if each gets enough of them. Gradients are added in order: the result
// is the same bits on the same number of threads.
//
// Not thread-safe.
class GradientShards {
 public:
  // Calls
  //
  //   Sums compute(int64_t shard, int64_t first, int64_t rows, float* gradient)
  //
  // for each, on threads of their own: it writes the gradient of samples
  // [first, first + rows). `shard` is below CountOf. `gradient` [P] on the host has all
  // of them then; returns the sum of the sums.
  template <typename Sums, typename Compute>
  Sums Run(int64_t rows, const torch::Tensor& gradient,
           const Compute& compute) {
    const int64_t size = gradient.numel(), count = CountOf(rows, size);
    float* const all = Host<float>(gradient);
    if (count == 1) return compute(0, 0, rows, all);
    others_.resize((count - 1) * size);
    std::vector<Sums> sums(count);
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = FirstRow(rows, i, count);
        sums[i] = compute(i, first, FirstRow(rows, i + 1, count) - first,
                          i == 0 ? all : others_.data() + (i - 1) * size);
      }
    });
    AddOthers(count - 1, size, all);
    for (int64_t i = 1; i < count; ++i) sums[0] += sums[i];
    return sums[0];
  }

  // Shards of so many samples, whose gradient has `size` numbers.
  static int64_t CountOf(int64_t rows, int64_t size);

 private:
  static int64_t FirstRow(int64_t rows, int64_t shard, int64_t count);
  // Adds `count` gradients of `size` numbers to `all`, one after the other.
  void AddOthers(int64_t count, int64_t size, float* all) const;

  std::vector<float> others_;  // gradients of all shards but the first
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_GRADIENT_SHARDS_H_
