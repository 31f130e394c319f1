#ifndef FLOTILLA_LEARNER_ALGO_GRADIENT_SHARDS_H_
#define FLOTILLA_LEARNER_ALGO_GRADIENT_SHARDS_H_

#include <cstdint>
#include <vector>

#include "ATen/Parallel.h"
#include "learner/device/host.h"
#include "learner/torch.h"

namespace flotilla {

// The samples of a gradient by hand-written kernels, cut into shards that Torch's
// threads share. How many there are depends on the number of samples alone, and their
// gradients are added in order: the result is the same bits on any number of threads.
//
// Not thread-safe.
class GradientShards {
 public:
  // Calls
  //
  //   Sums compute(int thread, int64_t first, int64_t rows, bool accumulate,
  //                float* gradient)
  //
  // for samples [first, first + rows) of each shard: it writes their gradient, or adds
  // it if `accumulate`. `thread` is below at::get_num_threads(), and is one call's at a
  // time. `gradient` [P] on the host has all of them then; returns the sum of the sums.
  template <typename Sums, typename Compute>
  Sums Run(int64_t rows, const torch::Tensor& gradient,
           const Compute& compute) {
    const int64_t count = CountOf(rows);
    float* const all = Host<float>(gradient);
    const auto shard = [&](int thread, int64_t i, bool accumulate, float* to) {
      const int64_t first = FirstRow(rows, i, count);
      return compute(thread, first, FirstRow(rows, i + 1, count) - first,
                     accumulate, to);
    };
    std::vector<Sums> sums(count);
    if (count == 1 || at::get_num_threads() == 1) {
      for (int64_t i = 0; i < count; ++i) sums[i] = shard(0, i, i > 0, all);
    } else {
      const int64_t size = gradient.numel();
      others_.resize((count - 1) * size);
      at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          sums[i] = shard(at::get_thread_num(), i, /*accumulate=*/false,
                          i == 0 ? all : others_.data() + (i - 1) * size);
        }
      });
      AddOthers(count - 1, size, all);
    }
    for (int64_t i = 1; i < count; ++i) sums[0] += sums[i];
    return sums[0];
  }

  // Shards of so many samples: a power of two, of 120 samples each at least.
  static int64_t CountOf(int64_t rows);

 private:
  static int64_t FirstRow(int64_t rows, int64_t shard, int64_t count);
  // Adds `count` gradients of `size` numbers to `all`, one after the other.
  void AddOthers(int64_t count, int64_t size, float* all) const;

  std::vector<float> others_;  // gradients of all shards but the first
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_GRADIENT_SHARDS_H_
