#ifndef FLOTILLA_LEARNER_KERNELS_ISA_PPO_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_PPO_H_

#include <cstdint>

#include "learner/kernels/isa/distributions.h"
#include "learner/kernels/isa/mlp.h"
#include "learner/kernels/isa/mlp_plan.h"
#include "learner/kernels/isa/vec.h"
#include "learner/kernels/ppo_loss.h"
#include "learner/kernels/ppo_terms.h"

// PpoGradient::Compute. Included by kernels.h alone.

namespace flotilla {
namespace {

// Rows of MlpPlan::samples.
enum SamplePlane { kOldLogProb, kAdvantage, kReturn, kOldValue };

// How many rows ahead of the one that is copied memory is asked.
constexpr int64_t kGatherAhead = 12;

FLOTILLA_INLINE void Prefetch(const float* from, int64_t size) {
  constexpr int64_t kLine = 64 / sizeof(float);
  for (int64_t i = 0; i < size; i += kLine) __builtin_prefetch(from + i);
  __builtin_prefetch(from + size - 1);
}

// What GatherTile reads of a row.
FLOTILLA_INLINE void PrefetchRow(const MlpPlan& plan, const PpoSamples& samples,
                                 int64_t row) {
  Prefetch(samples.observations + row * plan.observations, plan.observations);
  __builtin_prefetch(samples.log_prob + row);
  __builtin_prefetch(samples.advantage + row);
  __builtin_prefetch(samples.returns + row);
  __builtin_prefetch(samples.value + row);
  if (plan.continuous) {
    Prefetch(samples.continuous_actions + row * plan.actions, plan.actions);
  } else {
    __builtin_prefetch(samples.discrete_actions + row * plan.choices);
  }
}

// Copies up to a tile of valid rows from `rows`, which it advances past them,
// into the workspace, and which they are to `taken` [tile]. Returns how many.
int64_t GatherTile(const MlpPlan& plan, const PpoSamples& samples,
                   const AdvantageScale& advantage, const int32_t** rows,
                   const int32_t* end, int64_t* taken, float* workspace) {
  float* inputs = workspace + plan.inputs;
  const int64_t depth = PairsOf(plan.observations);
  float* planes = workspace + plan.samples;
  float* actions = workspace + plan.action_planes;
  int32_t* discrete = reinterpret_cast<int32_t*>(actions);
  int64_t n = 0;
  for (; *rows != end && n < plan.tile_rows; ++*rows) {
    // Rows are shuffled, and a rollout's observations may be far from the caches.
    if (end - *rows > kGatherAhead) {
      PrefetchRow(plan, samples, (*rows)[kGatherAhead]);
    }
    const int64_t row = **rows;
    if (samples.valid != nullptr && samples.valid[row] == 0) continue;
    const float* observation = samples.observations + row * plan.observations;
    if (plan.bfloat16) {
      RoundEachRow(1, plan.observations, {observation, 0}, depth,
                   PairsAt(inputs, 0) + n * depth);
    } else {
      CopyRow(observation, plan.observations,
              inputs + n * plan.observations_pad);
    }
    planes[kOldLogProb * kTileRows + n] = samples.log_prob[row];
    planes[kAdvantage * kTileRows + n] =
        (samples.advantage[row] - advantage.mean) * advantage.scale;
    planes[kReturn * kTileRows + n] = samples.returns[row];
    planes[kOldValue * kTileRows + n] = samples.value[row];
    if (plan.continuous) {
      for (int a = 0; a < plan.actions; ++a) {
        actions[a * kTileRows + n] =
            samples.continuous_actions[row * plan.actions + a];
      }
    } else {
      for (int k = 0; k < plan.choices; ++k) {
        discrete[k * kTileRows + n] = static_cast<int32_t>(
            samples.discrete_actions[row * plan.choices + k]);
      }
    }
    taken[n++] = row;
  }
  return n;
}

// Sums over samples, one a lane; lanes that hold no sample never count.
struct LaneSumsOfLoss {
  Vec policy_loss, value_loss, entropy, old_approx_kl, approx_kl, clipped;

  void AddTo(PpoSums* sums) const {
    sums->policy_loss += LaneSum(policy_loss);
    sums->value_loss += LaneSum(value_loss);
    sums->entropy += LaneSum(entropy);
    sums->old_approx_kl += LaneSum(old_approx_kl);
    sums->approx_kl += LaneSum(approx_kl);
    sums->clipped += LaneSum(clipped);
  }
};

// The loss's constants, and which lanes of a vector hold samples.
struct LossContext {
  const PpoLoss& loss;
  float scale;  // 1 / divisor
  IntVec present;

  FLOTILLA_INLINE Vec Keep(Vec x) const { return present ? x : Vec{}; }
};

// Counts the policy loss and returns d policy loss / d log_prob, unscaled.
FLOTILLA_INLINE Vec PolicyLoss(const LossContext& context, Vec log_prob,
                               Vec old_log_prob, Vec advantage,
                               LaneSumsOfLoss* sums) {
  const Vec log_ratio = log_prob - old_log_prob;
  const Vec ratio = Exp(log_ratio);
  const PolicyTerm<Vec> term =
      PolicyTermOf(ratio, advantage, context.loss.clip_ratio);
  sums->policy_loss += context.Keep(term.loss);
  sums->old_approx_kl -= context.Keep(log_ratio);
  sums->approx_kl += context.Keep((ratio - 1.0f) - log_ratio);
  sums->clipped += context.Keep(term.clipped);
  return term.slope;
}

// Counts the value loss and returns d value loss / d value, unscaled.
FLOTILLA_INLINE Vec ValueLoss(const LossContext& context, Vec value,
                              Vec old_value, Vec target, LaneSumsOfLoss* sums) {
  const ValueTerm<Vec> term =
      ValueTermOf(value, old_value, target, context.loss.value_clip);
  sums->value_loss += context.Keep(term.loss);
  return term.slope;
}

// d loss / d logits of one choice, whose exponentials are in `gradients` and give way
// to them; `slope` is d policy loss / d log_prob, unscaled. Counts the entropy.
FLOTILLA_INLINE void ChoiceGradient(const LossContext& context, int values,
                                    const float* logits, const Softmax& softmax,
                                    IntVec action, Vec slope, float* gradients,
                                    LaneSumsOfLoss* sums) {
  const Vec inverse_sum = 1.0f / softmax.sum;
  Vec entropy = Vec{};
  for (int a = 0; a < values; ++a) {
    const Vec p = Load(gradients + a * kTileRows) * inverse_sum;
    const Vec log_p =
        (Load(logits + a * kTileRows) - softmax.largest) - softmax.log_sum;
    entropy -= p * log_p;
  }
  sums->entropy += context.Keep(entropy);
  for (int a = 0; a < values; ++a) {
    const Vec p = Load(gradients + a * kTileRows) * inverse_sum;
    const Vec log_p =
        (Load(logits + a * kTileRows) - softmax.largest) - softmax.log_sum;
    const Vec policy = (action == a ? slope : Vec{}) - slope * p;
    const Vec bonus = context.loss.entropy_cost * p * (log_p + entropy);
    Store(gradients + a * kTileRows,
          context.Keep((policy + bonus) * context.scale));
  }
}

// The gradients with respect to the logits, in place of `gradients`. `actions` is
// [K, tile].
FLOTILLA_INLINE void CategoricalLoss(const LossContext& context,
                                     const MlpPlan& plan, const float* logits,
                                     const int32_t* actions, Vec old_log_prob,
                                     Vec advantage, float* gradients,
                                     LaneSumsOfLoss* sums) {
  const auto softmax_of = [&](int k) {
    const int first = plan.first_logit[k];
    return MakeSoftmax(plan.first_logit[k + 1] - first,
                       logits + first * kTileRows,
                       gradients + first * kTileRows);
  };
  Softmax softmax = {};
  Vec log_prob = {};
  for (int k = 0; k < plan.choices; ++k) {
    const int first = plan.first_logit[k];
    softmax = softmax_of(k);
    log_prob += CategoricalLogProb(plan.first_logit[k + 1] - first,
                                   logits + first * kTileRows, softmax,
                                   LoadInt(actions + k * kTileRows));
  }
  const Vec slope =
      PolicyLoss(context, log_prob, old_log_prob, advantage, sums);
  for (int k = 0; k < plan.choices; ++k) {
    const int first = plan.first_logit[k];
    if (plan.choices > 1) softmax = softmax_of(k);
    ChoiceGradient(context, plan.first_logit[k + 1] - first,
                   logits + first * kTileRows, softmax,
                   LoadInt(actions + k * kTileRows), slope,
                   gradients + first * kTileRows, sums);
  }
}

// The gradients with respect to the means, and added those of log_std.
FLOTILLA_INLINE void GaussianLoss(const LossContext& context, int actions,
                                  const float* means, const float* chosen,
                                  const float* gauss, Vec old_log_prob,
                                  Vec advantage, float* gradients,
                                  float* log_std_gradient,
                                  LaneSumsOfLoss* sums) {
  const Vec log_prob = GaussianLogProb(actions, means, chosen, gauss);
  const Vec slope =
      PolicyLoss(context, log_prob, old_log_prob, advantage, sums);
  sums->entropy += context.Keep(Splat(GaussianEntropy(actions, gauss)));
  for (int a = 0; a < actions; ++a) {
    const float inverse_std = gauss[2 * actions + a];
    const Vec z = (Load(chosen + a * kTileRows) - Load(means + a * kTileRows)) *
                  inverse_std;
    Store(gradients + a * kTileRows,
          context.Keep(slope * z * (inverse_std * context.scale)));
    const Vec spread = slope * (z * z - 1.0f) - context.loss.entropy_cost;
    log_std_gradient[a] += LaneSum(context.Keep(spread * context.scale));
  }
}

// Leaves d loss / d outputs in plan.plane_scratch.
void LossTile(const MlpPlan& plan, const PpoLoss& loss, int64_t rows,
              float* workspace, PpoSums* sums) {
  LaneSumsOfLoss lane_sums = {};
  LossContext context = {loss, static_cast<float>(1 / loss.divisor), {}};
  const float value_scale = loss.value_cost * context.scale;
  for (int64_t n = 0; n < rows; n += kLanes) {
    context.present = Present(n, rows);
    const float* outputs = workspace + plan.planes + n;
    const float* samples = workspace + plan.samples + n;
    const float* actions = workspace + plan.action_planes + n;
    float* gradients = workspace + plan.plane_scratch + n;
    const Vec old_log_prob = Load(samples + kOldLogProb * kTileRows);
    const Vec advantage = Load(samples + kAdvantage * kTileRows);
    if (plan.continuous) {
      GaussianLoss(context, plan.actions, outputs, actions,
                   workspace + plan.gauss, old_log_prob, advantage, gradients,
                   workspace + plan.log_std_gradient, &lane_sums);
    } else {
      CategoricalLoss(context, plan, outputs,
                      reinterpret_cast<const int32_t*>(actions), old_log_prob,
                      advantage, gradients, &lane_sums);
    }
    const int value_plane = plan.actions * kTileRows;
    const Vec slope =
        ValueLoss(context, Load(outputs + value_plane),
                  Load(samples + kOldValue * kTileRows),
                  Load(samples + kReturn * kTileRows), &lane_sums);
    Store(gradients + value_plane, context.Keep(slope * value_scale));
  }
  lane_sums.AddTo(sums);
  sums->samples += rows;
}

PpoSums PpoGradientOf(const MlpPlan& plan, float* workspace,
                      const PpoSamples& samples, const int32_t* rows,
                      int64_t row_count, const PpoLoss& loss, bool accumulate,
                      float* gradient) {
  const FlushDenormals flush;
  PpoSums sums;
  ClearGradients(plan, workspace);
  const int32_t* const end = rows + row_count;
  while (rows != end) {
    int64_t taken[kTileRows];
    const int64_t count =
        GatherTile(plan, samples, loss.advantage, &rows, end, taken, workspace);
    if (count == 0) break;
    const Rows inputs = {workspace + plan.inputs, plan.observations_pad};
    for (int i = 0; i < plan.stack_count; ++i) {
      ForwardStack(plan, plan.stacks[i], workspace, inputs, count,
                   PairsAt(workspace, plan.inputs));
    }
    for (int64_t n = 0; samples.mask != nullptr && n < count; ++n) {
      ForbidChoices(plan, samples.mask + taken[n] * plan.actions,
                    workspace + plan.planes + n);
    }
    LossTile(plan, loss, count, workspace, &sums);
    for (int i = 0; i < plan.stack_count; ++i) {
      BackwardStack(plan, plan.stacks[i], workspace, count);
    }
  }
  PutGradients(plan, workspace, accumulate, gradient);
  return sums;
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_PPO_H_
