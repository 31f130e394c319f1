#ifndef FLOTILLA_LEARNER_KERNELS_ISA_DISTRIBUTIONS_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_DISTRIBUTIONS_H_

#include <cstdint>

#include "learner/kernels/isa/mlp_plan.h"
#include "learner/kernels/isa/vec.h"

// Categorical and Gaussian, one sample a lane: outputs are planes, kTileRows
// apart. Deciding and learning share these, so that their log probabilities are
// the same bits. Included by kernels.h alone.

namespace flotilla {
namespace {

// Logits of forbidden actions: their probability is 0, and what it is multiplied with
// stays finite.
constexpr float kForbidden = -1e30f;

// Of one sample, whose logits are [A], kTileRows apart, where `allowed` [A] is 0. One
// that forbids everything forbids nothing: only rows that are lost do.
void ForbidActions(int actions, const uint8_t* allowed, float* logits) {
  bool any = false;
  for (int a = 0; a < actions; ++a) any = any || allowed[a] != 0;
  if (!any) return;
  for (int a = 0; a < actions; ++a) {
    if (allowed[a] == 0) logits[a * kTileRows] = kForbidden;
  }
}

// The same of each choice.
void ForbidChoices(const MlpPlan& plan, const uint8_t* allowed, float* logits) {
  for (int k = 0; k < plan.choices; ++k) {
    const int first = plan.first_logit[k];
    ForbidActions(plan.first_logit[k + 1] - first, allowed + first,
                  logits + first * kTileRows);
  }
}

// The first that is allowed, or `otherwise`.
int32_t FirstAllowed(int actions, const uint8_t* allowed, int32_t otherwise) {
  for (int32_t a = 0; a < actions; ++a) {
    if (allowed[a] != 0) return a;
  }
  return otherwise;
}

// log p_a = (logits_a - largest) - log_sum: NaN where any logit is.
struct Softmax {
  Vec largest;
  Vec sum;  // of e^(logits - largest)
  Vec log_sum;
};

// Leaves e^(logits - largest) in `exponentials`.
FLOTILLA_INLINE Softmax MakeSoftmax(int actions, const float* logits,
                                    float* exponentials) {
  Softmax s;
  s.largest = Load(logits);
  for (int a = 1; a < actions; ++a) {
    const Vec z = Load(logits + a * kTileRows);
    s.largest = ((z > s.largest) | (z != z)) ? z : s.largest;
  }
  s.sum = Vec{};
  for (int a = 0; a < actions; ++a) {
    const Vec e = Exp(Load(logits + a * kTileRows) - s.largest);
    Store(exponentials + a * kTileRows, e);
    s.sum += e;
  }
  s.log_sum = Log(s.sum);
  return s;
}

FLOTILLA_INLINE Vec CategoricalLogProb(int actions, const float* logits,
                                       const Softmax& softmax, IntVec action) {
  Vec chosen = Vec{};
  for (int a = 0; a < actions; ++a) {
    chosen = action == a ? Load(logits + a * kTileRows) : chosen;
  }
  return (chosen - softmax.largest) - softmax.log_sum;
}

// The first action whose cumulative probability exceeds `uniform`.
FLOTILLA_INLINE IntVec InvertCumulative(int actions, const float* exponentials,
                                        Vec sum, Vec uniform) {
  // Below the sum even when rounded, as `uniform` is below 1: the cumulative
  // sums exceed it somewhere, and first at an action that has probability.
  const Vec target = uniform * sum;
  IntVec action = {};
  Vec cumulative = Vec{};
  for (int a = 0; a < actions - 1; ++a) {
    cumulative += Load(exponentials + a * kTileRows);
    action -= cumulative <= target;  // true is -1
  }
  return action;
}

FLOTILLA_INLINE IntVec ArgMax(int actions, const float* logits, Vec largest) {
  IntVec action = {};
  for (int a = actions - 1; a >= 0; --a) {
    action = Load(logits + a * kTileRows) == largest ? IntVec{} + a : action;
  }
  return action;
}

// `gauss` is [3, A]: log_std, std, 1 / std.
FLOTILLA_INLINE Vec GaussianLogProb(int actions, const float* means,
                                    const float* chosen, const float* gauss) {
  constexpr float kHalfLogTwoPi = 0.918938533f;
  Vec log_prob = Vec{};
  for (int a = 0; a < actions; ++a) {
    const Vec z = (Load(chosen + a * kTileRows) - Load(means + a * kTileRows)) *
                  gauss[2 * actions + a];
    log_prob -= 0.5f * (z * z) + (gauss[a] + kHalfLogTwoPi);
  }
  return log_prob;
}

// The same for every state.
FLOTILLA_INLINE float GaussianEntropy(int actions, const float* gauss) {
  constexpr float kHalfLogTwoPiE = 1.418938533f;
  float entropy = 0;
  for (int a = 0; a < actions; ++a) entropy += gauss[a] + kHalfLogTwoPiE;
  return entropy;
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_DISTRIBUTIONS_H_
