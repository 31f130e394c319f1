#ifndef FLOTILLA_LEARNER_CUDA_ADAM_H_
#define FLOTILLA_LEARNER_CUDA_ADAM_H_

#include <cmath>
#include <cstdint>

#include "learner/cuda/block.h"
#include "learner/kernels/adam_update.h"

namespace flotilla {

// One step of kernels/adam.h of which the host knows nothing: the gradient over the
// divisor, clipped by its norm. Nothing changes, and nothing is counted, where the
// divisor is 0, or where `done` has a norm that is not finite or too large to clip.
// Pointers are the device's.
struct AdamArgs {
  int64_t size = 0;                 // P
  const float* gradient = nullptr;  // [P]
  float* parameters = nullptr;      // [P]
  float* moment1 = nullptr;         // [P]
  float* moment2 = nullptr;         // [P]
  // Of the steps since the host asked: the sum of norms, and how many were taken.
  double* done = nullptr;                 // [2]
  double* count = nullptr;                // [1]  steps taken ever
  const double* learning_rate = nullptr;  // [1]
  const float* divisor = nullptr;         // [1], or null for `host_divisor`
  double host_divisor = 1;
  AdamOptions options;         // but for learning_rate and gradient_scale
  AdamFactors* now = nullptr;  // [1]
  bool* skip = nullptr;        // [1]
  double* squares = nullptr;   // [BlocksFor(P)]
};

namespace {

struct SumOfSquaresKernel {
  AdamArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    double sum[1];
    block.Sum(a.size, sum, [&](int64_t i, double* mine) {
      const double g = a.gradient[i];
      mine[0] += g * g;
    });
    block.Once([&] { a.squares[block.index()] = sum[0]; });
  }
};

// What the step multiplies by, and whether there is one.
struct AdamFactorsKernel {
  AdamArgs a;
  int64_t parts;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    double sum[1];
    block.Sum(parts, sum,
              [&](int64_t i, double* mine) { mine[0] += a.squares[i]; });
    block.Once([&] { Decide(std::sqrt(sum[0])); });
  }

 private:
  FLOTILLA_INLINE void Decide(double whole_norm) const {
    const double divisor = a.divisor == nullptr ? a.host_divisor : *a.divisor;
    const double by = divisor < 1 ? 1 : divisor;
    double norm = whole_norm / by;
    // As AdamStep has it; a NaN stays one.
    if (norm > kLargestNorm) norm = INFINITY;
    a.done[0] += norm;
    // A sum that is not finite stays so, and that minus itself is no number.
    *a.skip = divisor == 0 || a.done[0] - a.done[0] != 0;
    if (*a.skip) return;
    a.done[1] += 1;
    *a.count += 1;
    AdamOptions options = a.options;
    options.learning_rate = *a.learning_rate;
    options.gradient_scale = 1 / by;
    *a.now = AdamFactorsOf(options, norm, *a.count);
  }
};

struct AdamKernel {
  AdamArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    if (*a.skip) return;
    const AdamFactors now = *a.now;
    block.Each(a.size, [&](int64_t i) {
      float m = a.moment1[i], v = a.moment2[i];
      AddToMoments(now, a.gradient[i], &m, &v);
      a.moment1[i] = m;
      a.moment2[i] = v;
      a.parameters[i] -=
          m * now.step / (std::sqrt(v) * now.deviation + now.epsilon);
    });
  }
};

template <typename Run>
void RunKernels(const AdamArgs& args, Run run) {
  const int64_t blocks = BlocksFor(args.size);
  run(SumOfSquaresKernel{args}, blocks);
  run(AdamFactorsKernel{args, blocks}, 1);
  run(AdamKernel{args}, blocks);
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CUDA_ADAM_H_
