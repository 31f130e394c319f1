#ifndef FLOTILLA_LEARNER_CUDA_ADVANTAGES_H_
#define FLOTILLA_LEARNER_CUDA_ADVANTAGES_H_

#include <cmath>
#include <cstdint>

#include "learner/cuda/block.h"
#include "learner/kernels/gae.h"
#include "learner/kernels/trace_steps.h"
#include "learner/kernels/vtrace.h"

namespace flotilla {

// What PPO makes of a minibatch's M advantages: (advantage - mean) * scale, with
// scale 1 / (deviation + 1e-8), the deviation unbiased; of one alone mean 0 and
// scale 1. Pointers are the device's.
struct AdvantageScaleArgs {
  int64_t rows = 0;                  // M
  const float* advantage = nullptr;  // [S]
  const int32_t* index = nullptr;    // [M] among S
  float* mean_and_scale = nullptr;   // [2]
  double* parts = nullptr;           // [BlocksFor(M), 2]
};

// kernels/gae.h and kernels/vtrace.h.
struct GaeArgs {
  GaeInput in;
  float* advantage = nullptr;  // [T, B]
  float* returns = nullptr;    // [T, B]
};
struct VtraceArgs {
  VtraceInput in;
  float* target = nullptr;     // [T, B]
  float* advantage = nullptr;  // [T, B]
};

namespace {

// Sums of what advantages are above the first of them, and of its squares: what
// is lost to rounding there is nothing in float64.
struct AdvantagePartsKernel {
  AdvantageScaleArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    const double first = a.advantage[a.index[0]];
    double sums[2];
    block.Sum(a.rows, sums, [&](int64_t m, double* mine) {
      const double above = a.advantage[a.index[m]] - first;
      mine[0] += above;
      mine[1] += above * above;
    });
    block.Once([&] {
      a.parts[2 * block.index()] = sums[0];
      a.parts[2 * block.index() + 1] = sums[1];
    });
  }
};

struct AdvantageScaleKernel {
  AdvantageScaleArgs a;
  int64_t count;  // of parts

  FLOTILLA_INLINE void operator()(const Block& block) const {
    double sums[2];
    block.Sum(count, sums, [&](int64_t i, double* mine) {
      mine[0] += a.parts[2 * i];
      mine[1] += a.parts[2 * i + 1];
    });
    block.Once([&] {
      const double n = static_cast<double>(a.rows);
      const double above = sums[0] / n;
      double squares = sums[1] - sums[0] * above;
      if (squares < 0) squares = 0;
      const double first = a.advantage[a.index[0]];
      const double deviation = std::sqrt(squares / (n - 1));
      a.mean_and_scale[0] = a.rows < 2 ? 0 : static_cast<float>(first + above);
      a.mean_and_scale[1] =
          a.rows < 2 ? 1 : static_cast<float>(1 / (deviation + 1e-8));
    });
  }
};

template <typename Run>
void RunKernels(const AdvantageScaleArgs& args, Run run) {
  const int64_t blocks = BlocksFor(args.rows);
  run(AdvantagePartsKernel{args}, blocks);
  run(AdvantageScaleKernel{args, blocks}, 1);
}

// One environment a thread.
struct GaeKernel {
  GaeArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    const GaeInput& in = a.in;
    block.Each(in.rows, [&](int64_t b) {
      const float decay = in.discount * in.lambda;
      float next_value = in.value[in.length * in.rows + b];
      float next_advantage = 0;
      for (int64_t t = in.length - 1; t >= 0; --t) {
        const int64_t i = t * in.rows + b;
        const GaeLanes<float, bool> lane = {
            in.reward[i],         in.value[i],
            next_value,           in.bootstrap_value[i],
            next_advantage,       in.terminated[i] != 0,
            in.truncated[i] != 0, in.valid == nullptr || in.valid[i] != 0};
        lane.Step(in.discount, decay, &a.advantage[i], &a.returns[i]);
        next_value = lane.value;
        next_advantage = a.advantage[i];
      }
    });
  }
};

template <typename Run>
void RunKernels(const GaeArgs& args, Run run) {
  run(GaeKernel{args}, BlocksFor(args.in.rows));
}

// One environment a thread.
struct VtraceKernel {
  VtraceArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    const VtraceInput& in = a.in;
    block.Each(in.rows, [&](int64_t b) {
      float next_value = in.value[in.length * in.rows + b];
      float error = 0;
      for (int64_t t = in.length - 1; t >= 0; --t) {
        const int64_t i = t * in.rows + b;
        const VtraceLanes<float, bool> lane = {
            in.reward[i],
            in.value[i],
            next_value,
            in.bootstrap_value[i],
            std::exp(in.log_prob[i] - in.actor_log_prob[i]),
            in.terminated[i] != 0,
            in.truncated[i] != 0,
            in.valid == nullptr || in.valid[i] != 0};
        lane.Step(in, &error, &a.target[i], &a.advantage[i]);
        next_value = lane.value;
      }
    });
  }
};

template <typename Run>
void RunKernels(const VtraceArgs& args, Run run) {
  run(VtraceKernel{args}, BlocksFor(args.in.rows));
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CUDA_ADVANTAGES_H_
