#ifndef FLOTILLA_LEARNER_KERNELS_ISA_Q_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_Q_H_

#include <cstdint>

#include "learner/kernels/isa/decide.h"
#include "learner/kernels/isa/mlp.h"
#include "learner/kernels/isa/mlp_plan.h"
#include "learner/kernels/isa/vec.h"
#include "learner/kernels/q_loss.h"

// MlpQ's methods. Included by kernels.h alone.

namespace flotilla {
namespace {

// Rows of MlpPlan::samples.
enum QSamplePlane { kTarget, kWeight };

// Runs the network on at most a tile of rows; Q is in planes 0 to A - 1 then.
void QTile(const MlpPlan& plan, float* workspace, Rows input, int64_t rows) {
  ForwardStack(plan, plan.stacks[0], workspace, input, rows);
  if (!plan.dueling) return;
  for (int64_t n = 0; n < rows; n += kLanes) {
    float* planes = workspace + plan.planes + n;
    Vec sum = {};
    for (int a = 0; a < plan.actions; ++a) sum += Load(planes + a * kTileRows);
    const Vec level = Load(planes + plan.actions * kTileRows) -
                      sum * (1.0f / static_cast<float>(plan.actions));
    for (int a = 0; a < plan.actions; ++a) {
      Store(planes + a * kTileRows, Load(planes + a * kTileRows) + level);
    }
  }
}

void QValues(const MlpPlan& plan, float* workspace, const float* observations,
             int64_t rows, float* q) {
  const FlushDenormals flush;
  ForEachTile(plan, rows, [&](int64_t first, int64_t count) {
    QTile(plan, workspace,
          {observations + first * plan.observations, plan.observations}, count);
    CopyPlanes(workspace + plan.planes, plan.actions, count,
               q + first * plan.actions);
  });
}

// Samples [first, first + count) into the workspace.
void LoadQSamples(const MlpPlan& plan, const QSamples& samples, int64_t first,
                  int64_t count, float* workspace) {
  float* planes = workspace + plan.samples;
  int32_t* actions = reinterpret_cast<int32_t*>(workspace + plan.action_planes);
  for (int64_t n = 0; n < count; ++n) {
    const int64_t row = first + n;
    CopyRow(samples.observations + row * plan.observations, plan.observations,
            workspace + plan.inputs + n * plan.observations_pad);
    planes[kTarget * kTileRows + n] = samples.targets[row];
    planes[kWeight * kTileRows + n] = samples.weights[row];
    actions[n] = static_cast<int32_t>(samples.actions[row]);
  }
}

// Leaves d loss / d outputs in plan.plane_scratch and errors in `error`, for one
// tile.
void QLossTile(const MlpPlan& plan, bool huber, int64_t rows, float* workspace,
               float* error, QSums* sums) {
  const float share = 1.0f / static_cast<float>(plan.actions);
  for (int64_t n = 0; n < rows; n += kLanes) {
    const IntVec present = Present(n, rows);
    const float* planes = workspace + plan.planes + n;
    const float* samples = workspace + plan.samples + n;
    float* gradients = workspace + plan.plane_scratch + n;
    const IntVec action = LoadInt(
        reinterpret_cast<const int32_t*>(workspace + plan.action_planes + n));
    Vec q = {};
    for (int a = 0; a < plan.actions; ++a) {
      q = action == a ? Load(planes + a * kTileRows) : q;
    }
    const Vec off = q - Load(samples + kTarget * kTileRows);
    const Vec weight = Load(samples + kWeight * kTileRows);
    Vec loss = off * off, slope = 2.0f * off;
    if (huber) {
      loss = Abs(off) < 1.0f ? 0.5f * loss : Abs(off) - 0.5f;
      slope = AtLeast(AtMost(off, 1.0f), -1.0f);
    }
    CopyLanes(off, rows - n, error + n);
    sums->loss += LaneSum(present ? weight * loss : Vec{});
    sums->q += LaneSum(present ? q : Vec{});
    const Vec gradient = present ? weight * slope : Vec{};
    const Vec from_mean = plan.dueling ? gradient * share : Vec{};
    for (int a = 0; a < plan.actions; ++a) {
      Store(gradients + a * kTileRows,
            (action == a ? gradient : Vec{}) - from_mean);
    }
    Store(gradients + plan.actions * kTileRows, gradient);  // the value's
  }
}

QSums QGradientOf(const MlpPlan& plan, float* workspace,
                  const QSamples& samples, bool huber, float* error,
                  float* gradient) {
  const FlushDenormals flush;
  QSums sums;
  ClearGradients(plan, workspace);
  ForEachTile(plan, samples.rows, [&](int64_t first, int64_t count) {
    LoadQSamples(plan, samples, first, count, workspace);
    QTile(plan, workspace, {workspace + plan.inputs, plan.observations_pad},
          count);
    QLossTile(plan, huber, count, workspace, error + first, &sums);
    BackwardStack(plan, plan.stacks[0], workspace, count);
  });
  PutGradients(plan, workspace, /*accumulate=*/false, gradient);
  return sums;
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_Q_H_
