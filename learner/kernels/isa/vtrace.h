#ifndef FLOTILLA_LEARNER_KERNELS_ISA_VTRACE_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_VTRACE_H_

#include <cstdint>

#include "learner/kernels/isa/vec.h"
#include "learner/kernels/trace_steps.h"
#include "learner/kernels/vtrace.h"

// V-trace. Included by kernels.h alone.

namespace flotilla {
namespace {

void VtraceOf(const VtraceInput& in, float* target, float* advantage) {
  const FlushDenormals flush;
  const int64_t rows = in.rows;
  int64_t b = 0;
  for (; b + kLanes <= rows; b += kLanes) {
    Vec error = {};
    for (int64_t t = in.length - 1; t >= 0; --t) {
      const int64_t i = t * rows + b;
      const VtraceLanes<Vec, IntVec> lanes = {
          .reward = Load(in.reward + i),
          .value = Load(in.value + i),
          .next_value = Load(in.value + i + rows),
          .bootstrap_value = Load(in.bootstrap_value + i),
          .ratio = Exp(Load(in.log_prob + i) - Load(in.actor_log_prob + i)),
          .terminated = LoadFlags(in.terminated + i),
          .truncated = LoadFlags(in.truncated + i),
          .valid = in.valid ? LoadFlags(in.valid + i) : IntVec{} - 1};
      Vec target_now, advantage_now;
      lanes.Step(in, &error, &target_now, &advantage_now);
      Store(target + i, target_now);
      Store(advantage + i, advantage_now);
    }
  }
  for (; b < rows; ++b) {
    float error = 0;
    for (int64_t t = in.length - 1; t >= 0; --t) {
      const int64_t i = t * rows + b;
      const VtraceLanes<float, bool> lane = {
          .reward = in.reward[i],
          .value = in.value[i],
          .next_value = in.value[i + rows],
          .bootstrap_value = in.bootstrap_value[i],
          .ratio = Exp(Splat(in.log_prob[i] - in.actor_log_prob[i]))[0],
          .terminated = in.terminated[i] != 0,
          .truncated = in.truncated[i] != 0,
          .valid = in.valid == nullptr || in.valid[i] != 0};
      lane.Step(in, &error, &target[i], &advantage[i]);
    }
  }
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_VTRACE_H_
