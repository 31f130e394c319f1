#include "learner/algo/gradient_shards.h"

#include <algorithm>

namespace flotilla {
namespace {

// Numbers of samples times parameters of a shard. Fewer take less time than it takes
// to wake a thread, about.
constexpr int64_t kLeastWork = 1 << 20;
// Whole blocks of the six rows that kernels of floats multiply together.
constexpr int64_t kUnit = 24;

}  // namespace

int64_t GradientShards::CountOf(int64_t rows, int64_t size) {
  const int64_t most = std::min(rows / kUnit, rows * size / kLeastWork);
  return std::clamp<int64_t>(most, 1, at::get_num_threads());
}

int64_t GradientShards::FirstRow(int64_t rows, int64_t shard, int64_t count) {
  if (shard == count) return rows;
  return (rows * shard / count + kUnit / 2) / kUnit * kUnit;
}

void GradientShards::AddOthers(int64_t count, int64_t size, float* all) const {
  constexpr int64_t kNumbers = 1 << 14;  // a thread's at least
  at::parallel_for(0, size, kNumbers, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i) {
      const float* const other = others_.data() + i * size;
      for (int64_t p = begin; p < end; ++p) all[p] += other[p];
    }
  });
}

}  // namespace flotilla
