#ifndef FLOTILLA_LEARNER_KERNELS_ISA_DECIDE_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_DECIDE_H_

#include <cstdint>

#include "learner/kernels/isa/distributions.h"
#include "learner/kernels/isa/mlp.h"
#include "learner/kernels/isa/mlp_plan.h"
#include "learner/kernels/isa/vec.h"

// MlpActorCritic's methods. Included by kernels.h alone.

namespace flotilla {
namespace {

bool HasHead(const StackPlan& stack, int plane) {
  for (int i = 0; i < stack.head_count; ++i) {
    if (stack.heads[i].plane == plane) return true;
  }
  return false;
}

// Fills the planes of one tile; runs only the stacks whose output is wanted.
void ForwardTile(const MlpPlan& plan, float* workspace,
                 const float* observations, int64_t rows, bool want_policy,
                 bool want_value) {
  for (int i = 0; i < plan.stack_count; ++i) {
    const StackPlan& stack = plan.stacks[i];
    if ((want_policy && HasHead(stack, 0)) ||
        (want_value && HasHead(stack, plan.actions))) {
      ForwardStack(plan, stack, workspace, {observations, plan.observations},
                   rows);
    }
  }
}

// planes[:, row] to out[row, :].
void CopyPlanes(const float* planes, int count, int64_t rows, float* out) {
  for (int64_t n = 0; n < rows; ++n) {
    for (int a = 0; a < count; ++a)
      out[n * count + a] = planes[a * kTileRows + n];
  }
}

// Calls `tile(first, count)` for all rows, a tile of them at a time.
template <typename Function>
void ForEachTile(const MlpPlan& plan, int64_t rows, Function tile) {
  const int64_t most = plan.tile_rows;
  for (int64_t first = 0; first < rows; first += most) {
    tile(first, rows - first < most ? rows - first : most);
  }
}

void Forward(const MlpPlan& plan, float* workspace, const float* observations,
             int64_t rows, float* policy, float* value) {
  const FlushDenormals flush;
  ForEachTile(plan, rows, [&](int64_t first, int64_t count) {
    ForwardTile(plan, workspace, observations + first * plan.observations,
                count, policy != nullptr, value != nullptr);
    const float* planes = workspace + plan.planes;
    if (policy != nullptr) {
      CopyPlanes(planes, plan.actions, count, policy + first * plan.actions);
    }
    if (value != nullptr) {
      CopyPlanes(planes + plan.actions * kTileRows, 1, count, value + first);
    }
  });
}

// Those of choice k, of [N, K], a sample a lane.
FLOTILLA_INLINE Vec LoadChoice(const float* in, int choices, int k,
                               int64_t count) {
  if (choices == 1) return LoadLanes(in, count);
  Vec lanes = {};
  for (int64_t i = 0; i < kLanes && i < count; ++i) {
    lanes[i] = in[i * choices + k];
  }
  return lanes;
}

void DecideDiscrete(const MlpPlan& plan, float* workspace,
                    const float* observations, const uint8_t* mask,
                    int64_t rows, const float* uniforms, int64_t* action,
                    float* log_prob, float* value) {
  const FlushDenormals flush;
  const int choices = plan.choices;
  ForEachTile(plan, rows, [&](int64_t first, int64_t count) {
    ForwardTile(plan, workspace, observations + first * plan.observations,
                count, true, value != nullptr);
    for (int64_t n = 0; mask != nullptr && n < count; ++n) {
      ForbidChoices(plan, mask + (first + n) * plan.actions,
                    workspace + plan.planes + n);
    }
    for (int64_t n = 0; n < count; n += kLanes) {
      const int64_t at = first + n;
      Vec sum = {};
      for (int k = 0; k < choices; ++k) {
        const int first_logit = plan.first_logit[k];
        const int values = plan.first_logit[k + 1] - first_logit;
        const float* logits =
            workspace + plan.planes + first_logit * kTileRows + n;
        float* exponentials =
            workspace + plan.plane_scratch + first_logit * kTileRows + n;
        const Softmax softmax = MakeSoftmax(values, logits, exponentials);
        IntVec chosen =
            uniforms == nullptr
                ? ArgMax(values, logits, softmax.largest)
                : InvertCumulative(values, exponentials, softmax.sum,
                                   LoadChoice(uniforms + at * choices, choices,
                                              k, count - n));
        // Logits that are NaN or infinite may have led to a forbidden one.
        for (int64_t i = 0; mask != nullptr && i < kLanes && i < count - n;
             ++i) {
          const uint8_t* const allowed =
              mask + (at + i) * plan.actions + first_logit;
          if (allowed[chosen[i]] == 0) {
            chosen[i] = FirstAllowed(values, allowed, chosen[i]);
          }
        }
        sum += CategoricalLogProb(values, logits, softmax, chosen);
        for (int64_t i = 0; i < kLanes && i < count - n; ++i) {
          action[(at + i) * choices + k] = chosen[i];
        }
      }
      CopyLanes(sum, count - n, log_prob + at);
    }
    if (value != nullptr) {
      CopyPlanes(workspace + plan.planes + plan.actions * kTileRows, 1, count,
                 value + first);
    }
  });
}

void DecideContinuous(const MlpPlan& plan, float* workspace,
                      const float* observations, int64_t rows,
                      const float* normals, float* action, float* log_prob,
                      float* value) {
  const FlushDenormals flush;
  const int actions = plan.actions;
  const float* gauss = workspace + plan.gauss;
  const float* means = workspace + plan.planes;
  float* chosen = workspace + plan.action_planes;
  ForEachTile(plan, rows, [&](int64_t first, int64_t count) {
    ForwardTile(plan, workspace, observations + first * plan.observations,
                count, true, value != nullptr);
    for (int64_t n = 0; n < count; ++n) {
      for (int a = 0; a < actions; ++a) {
        const int64_t at = (first + n) * actions + a;
        const float noise =
            normals == nullptr ? 0.0f : gauss[actions + a] * normals[at];
        action[at] = means[a * kTileRows + n] + noise;
        chosen[a * kTileRows + n] = action[at];
      }
    }
    for (int64_t n = 0; n < count; n += kLanes) {
      CopyLanes(GaussianLogProb(actions, means + n, chosen + n, gauss),
                count - n, log_prob + first + n);
    }
    if (value != nullptr) {
      CopyPlanes(means + actions * kTileRows, 1, count, value + first);
    }
  });
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_DECIDE_H_
