#ifndef FLOTILLA_LEARNER_KERNELS_ISA_SAC_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_SAC_H_

#include <cstdint>

#include "learner/kernels/isa/decide.h"
#include "learner/kernels/isa/mlp.h"
#include "learner/kernels/isa/mlp_plan.h"
#include "learner/kernels/isa/vec.h"
#include "learner/kernels/sac_samples.h"

// SacGradient's methods. Included by kernels.h alone.

namespace flotilla {
namespace {

// Of MlpPlan::draws, each [A, tile].
enum DrawPlane {
  kNoise,
  kBent,      // tanh of what the layer says, of which the log std is made
  kSpread,    // std * noise
  kSquashed,  // tanh(u)
};

// Log standard deviations are their middle plus so much times a tanh.
constexpr float kHalfRange = 0.5f * (kMostLogStd - kLeastLogStd);

// Of critics' MlpPlan::samples.
enum SacSamplePlane { kAim };  // y

// log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), without the cancellation
// where tanh is close to 1.
FLOTILLA_INLINE Vec LogTanhSlope(Vec u) {
  constexpr float kLog2 = 0.693147181f;
  const Vec softplus =
      AtLeast(-2.0f * u, 0.0f) + Log(1.0f + Exp(-2.0f * Abs(u)));
  return 2.0f * (kLog2 - u - softplus);
}

// min(q1, q2), which is NaN if one of them is.
FLOTILLA_INLINE Vec Smaller(Vec q1, Vec q2) {
  return ((q1 < q2) | (q1 != q1)) ? q1 : q2;
}

// Runs the actor on at most a tile of rows of `input` and draws: actions to planes
// plan.action_planes, log-probabilities to `log_prob` [tile]. Lanes past `rows` are
// anything.
void DrawTile(PlannedMlp actor, const ActionRange& range, Rows input,
              const float* noise, int64_t rows, float* log_prob) {
  constexpr float kHalfLogTwoPi = 0.918938533f;
  const MlpPlan& plan = actor.plan;
  const int A = plan.actions;
  ForwardStack(plan, plan.stacks[0], actor.workspace, input, rows);
  float* const draws = actor.workspace + plan.draws;
  for (int64_t n = 0; n < rows; ++n) {
    for (int a = 0; a < A; ++a) draws[a * kTileRows + n] = noise[n * A + a];
  }
  for (int64_t n = 0; n < rows; n += kLanes) {
    Vec sum = Splat(-range.log_scale);
    for (int a = 0; a < A; ++a) {
      const float* outputs = actor.workspace + plan.planes + n;
      float* const kept = draws + a * kTileRows + n;
      const int64_t plane = int64_t{A} * kTileRows;
      const Vec e = Load(kept + kNoise * plane);
      const Vec bent = Tanh(Load(outputs + (A + a) * kTileRows));
      const Vec log_std = kLeastLogStd + kHalfRange * (bent + 1.0f);
      const Vec spread = Exp(log_std) * e;
      const Vec u = Load(outputs + a * kTileRows) + spread;
      const Vec squashed = Tanh(u);
      sum -= 0.5f * (e * e) + log_std + kHalfLogTwoPi + LogTanhSlope(u);
      Store(kept + kBent * plane, bent);
      Store(kept + kSpread * plane, spread);
      Store(kept + kSquashed * plane, squashed);
      Store(actor.workspace + plan.action_planes + a * kTileRows + n,
            range.center[a] + range.scale[a] * squashed);
    }
    Store(log_prob + n, sum);
  }
}

// Runs the critics on what lies in their inputs: Q1 and Q2 are planes 0 and 1 then.
void CriticsTile(PlannedMlp critics, int64_t rows) {
  const MlpPlan& plan = critics.plan;
  for (int i = 0; i < plan.stack_count; ++i) {
    ForwardStack(plan, plan.stacks[i], critics.workspace,
                 {critics.workspace + plan.inputs, plan.observations_pad},
                 rows);
  }
}

// The first `width` columns of the critics' inputs, of [rows, width].
void PutObservations(PlannedMlp critics, const float* observations, int width,
                     int64_t rows) {
  CopyRows(observations, width, static_cast<int>(rows), width,
           critics.workspace + critics.plan.inputs,
           critics.plan.observations_pad);
}

// The columns behind them, of what the actor drew.
void PutDrawn(PlannedMlp critics, PlannedMlp actor, int64_t rows) {
  const int A = actor.plan.actions;
  const float* planes = actor.workspace + actor.plan.action_planes;
  float* to = critics.workspace + critics.plan.inputs + actor.plan.observations;
  for (int64_t n = 0; n < rows; ++n, to += critics.plan.observations_pad) {
    for (int a = 0; a < A; ++a) to[a] = planes[a * kTileRows + n];
  }
}

// What the critics aim at, of samples [first, first + rows): their plane kAim.
void AimTile(PlannedMlp actor, PlannedMlp targets, PlannedMlp critics,
             const SacSamples& samples, const ActionRange& range, float alpha,
             int64_t first, int64_t rows) {
  const int D = actor.plan.observations;
  const float* seen = samples.next_observations + first * D;
  float log_prob[kTileRows];
  DrawTile(actor, range, {seen, D}, samples.noise + first * actor.plan.actions,
           rows, log_prob);
  PutObservations(targets, seen, D, rows);
  PutDrawn(targets, actor, rows);
  CriticsTile(targets, rows);
  for (int64_t n = 0; n < rows; n += kLanes) {
    const float* q = targets.workspace + targets.plan.planes + n;
    const Vec q1 = Load(q), q2 = Load(q + kTileRows);
    const Vec soft = Smaller(q1, q2) - alpha * Load(log_prob + n);
    Store(critics.workspace + critics.plan.samples + kAim * kTileRows + n,
          LoadLanes(samples.n_step_return + first + n, rows - n) +
              LoadLanes(samples.discount + first + n, rows - n) * soft);
  }
}

SacSums SacCriticsOf(PlannedMlp actor, PlannedMlp targets, PlannedMlp critics,
                     const SacSamples& samples, const ActionRange& range,
                     float alpha, float* gradient) {
  const FlushDenormals flush;
  const int D = actor.plan.observations, A = actor.plan.actions;
  const MlpPlan& plan = critics.plan;
  SacSums sums;
  ClearGradients(plan, critics.workspace);
  ForEachTile(plan, samples.rows, [&](int64_t first, int64_t rows) {
    AimTile(actor, targets, critics, samples, range, alpha, first, rows);
    PutObservations(critics, samples.observations + first * D, D, rows);
    CopyRows(samples.actions + first * A, A, static_cast<int>(rows), A,
             critics.workspace + plan.inputs + D, plan.observations_pad);
    CriticsTile(critics, rows);
    for (int64_t n = 0; n < rows; n += kLanes) {
      const IntVec present = Present(n, rows);
      const Vec aim =
          Load(critics.workspace + plan.samples + kAim * kTileRows + n);
      for (int i = 0; i < plan.stack_count; ++i) {
        const int64_t at = i * kTileRows + n;
        const Vec q = Load(critics.workspace + plan.planes + at);
        const Vec off = present ? q - aim : Vec{};
        sums.loss += LaneSum(off * off);
        sums.q += 0.5 * LaneSum(present ? q : Vec{});
        Store(critics.workspace + plan.plane_scratch + at, 2.0f * off);
      }
    }
    for (int i = 0; i < plan.stack_count; ++i) {
      BackwardStack(plan, plan.stacks[i], critics.workspace, rows);
    }
  });
  PutGradients(plan, critics.workspace, /*accumulate=*/false, gradient);
  return sums;
}

// d -min(Q1, Q2) / d action of what was drawn, to planes plan.action_planes of the
// actor; adds what it is of to `q`.
void SmallerByAction(PlannedMlp actor, PlannedMlp critics, int64_t rows,
                     double* q) {
  const MlpPlan& plan = critics.plan;
  for (int64_t n = 0; n < rows; n += kLanes) {
    const IntVec present = Present(n, rows);
    const float* planes = critics.workspace + plan.planes + n;
    float* gradients = critics.workspace + plan.plane_scratch + n;
    const Vec q1 = Load(planes), q2 = Load(planes + kTileRows);
    *q += LaneSum(present ? Smaller(q1, q2) : Vec{});
    const Vec of_first =
        q1 < q2 ? Splat(-1.0f) : (q1 == q2 ? Splat(-0.5f) : Vec{});
    Store(gradients, present ? of_first : Vec{});
    Store(gradients + kTileRows, present ? -1.0f - of_first : Vec{});
  }
  const float* const by_input = critics.workspace + plan.input_gradient;
  BackwardToInputs(plan, plan.stacks[0], critics.workspace, rows,
                   {critics.workspace + plan.zero, 0});
  BackwardToInputs(plan, plan.stacks[1], critics.workspace, rows,
                   {by_input, plan.observations_pad});
  const float* from = by_input + actor.plan.observations;
  float* planes = actor.workspace + actor.plan.action_planes;
  for (int64_t n = 0; n < rows; ++n, from += plan.observations_pad) {
    for (int a = 0; a < actor.plan.actions; ++a) {
      planes[a * kTileRows + n] = from[a];
    }
  }
}

// d loss / d outputs of the actor to its plan.plane_scratch, from what
// SmallerByAction and DrawTile left.
void ActorSlopes(PlannedMlp actor, const ActionRange& range, float alpha,
                 int64_t rows) {
  const MlpPlan& plan = actor.plan;
  const int A = plan.actions;
  for (int64_t n = 0; n < rows; n += kLanes) {
    const IntVec present = Present(n, rows);
    for (int a = 0; a < A; ++a) {
      const int64_t plane = int64_t{A} * kTileRows, at = a * kTileRows + n;
      const float* kept = actor.workspace + plan.draws + at;
      const Vec bent = Load(kept + kBent * plane);
      const Vec squashed = Load(kept + kSquashed * plane);
      const Vec by_action = Load(actor.workspace + plan.action_planes + at);
      const Vec by_u =
          alpha * 2.0f * squashed +
          by_action * range.scale[a] * (1.0f - squashed * squashed);
      const Vec by_log_std = by_u * Load(kept + kSpread * plane) - alpha;
      const Vec by_bent = by_log_std * kHalfRange * (1.0f - bent * bent);
      float* gradients = actor.workspace + plan.plane_scratch + at;
      Store(gradients, present ? by_u : Vec{});
      Store(gradients + plane, present ? by_bent : Vec{});
    }
  }
}

SacSums SacPolicyOf(PlannedMlp actor, PlannedMlp critics,
                    const SacSamples& samples, const ActionRange& range,
                    float alpha, float* gradient) {
  const FlushDenormals flush;
  const MlpPlan& plan = actor.plan;
  const int D = plan.observations;
  double q = 0;
  SacSums sums;
  ClearGradients(plan, actor.workspace);
  ForEachTile(plan, samples.rows, [&](int64_t first, int64_t rows) {
    const float* seen = samples.observations + first * D;
    float* const inputs = actor.workspace + plan.inputs;
    float log_prob[kTileRows];
    CopyRows(seen, D, static_cast<int>(rows), D, inputs, plan.observations_pad);
    DrawTile(actor, range, {inputs, plan.observations_pad},
             samples.noise + first * plan.actions, rows, log_prob);
    PutObservations(critics, seen, D, rows);
    PutDrawn(critics, actor, rows);
    CriticsTile(critics, rows);
    for (int64_t n = 0; n < rows; n += kLanes) {
      sums.log_prob += LaneSum(Present(n, rows) ? Load(log_prob + n) : Vec{});
    }
    SmallerByAction(actor, critics, rows, &q);
    ActorSlopes(actor, range, alpha, rows);
    BackwardStack(plan, plan.stacks[0], actor.workspace, rows);
  });
  sums.loss = alpha * sums.log_prob - q;
  PutGradients(plan, actor.workspace, /*accumulate=*/false, gradient);
  return sums;
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_SAC_H_
